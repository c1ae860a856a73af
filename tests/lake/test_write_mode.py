"""Tables without deletion vectors: files with rows to delete are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pgwire_codec.errors import OptionError
from pgwire_codec.lake import rewriting
from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Row, Writer, in_order, relation

deltalake: Any = pytest.importorskip("deltalake")

TABLE = "public.t1"
KEYED = relation(1, ID, column("v"), column("note"))
COPIES = {"write_mode": "copy-on-write"}
ENABLED = "delta.enableDeletionVectors"


def plain_rows(mirror: MirrorOf, table: str = TABLE) -> list[Row]:
    """Rows by a reader that does not support vectors."""
    path = mirror.lake.joinpath(*table.split("."))
    return in_order(deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist())


def delta_table(mirror: MirrorOf) -> Any:
    return deltalake.DeltaTable(str(mirror.lake / "public" / "t1"))


def turn(mirror: MirrorOf, writer: Writer, *changes: Any, **options: Any) -> None:
    writer.commit(KEYED, *changes)
    writer.flush()
    mirror.run(**options)


def inserts(*keys: int) -> list[Any]:
    return [build.insert(1, str(key), "v", f"note {key}") for key in keys]


UPDATES = [
    build.update(1, build.row("1", "changed", ...)),
    build.update(1, build.row("9", "moved", ...), key=build.row("2", None, None)),
    build.delete(1, key=build.row("3", None, None)),
    build.insert(1, "10", "new", None),
]


def test_rows_are_read_without_vectors(made: MirrorOf, writer: Writer) -> None:
    """Of tables with a key and without one; what was not sent comes from the old file."""
    whole = relation(2, column("v", "int4", key=True), identity="f")
    turn(made, writer, *inserts(1, 2, 3, 4), whole, *(build.insert(2, "7"),) * 3, **COPIES)
    turn(made, writer, *inserts(5, 6), **COPIES)
    turn(made, writer, *UPDATES, build.delete(2, old=build.row("7")), **COPIES)
    for table in (TABLE, "public.t2"):
        assert made.rows(table) == made.expected(table)
        if made.engine != "iceberg":
            assert plain_rows(made, table) == made.expected(table)
    assert made.status()[TABLE]["state"] == "ok"
    # The next mirror need not be asked for it.
    turn(made, writer, build.update(1, build.row("5", "again", ...)))
    assert made.rows(TABLE) == made.expected(TABLE)
    if made.engine == "iceberg":
        assert made._spark is not None
        files = made._spark.table(f"{made.name(TABLE)}.all_delete_files")
        properties = made._spark.sql(f"SHOW TBLPROPERTIES {made.name(TABLE)}").collect()
        assert {"format-version": "2", "write.update.mode": "copy-on-write"}.items() <= dict(
            map(tuple, properties)
        ).items()
        assert files.count() == 0
    else:
        assert plain_rows(made) == made.expected(TABLE)
        assert delta_table(made).protocol().reader_features is None


def test_other_files_remain(tmp_path: Path, writer: Writer) -> None:
    mirror = MirrorOf(None, tmp_path, "local")
    turn(mirror, writer, *inserts(1, 2, 3), **COPIES)
    turn(mirror, writer, *inserts(4, 5), **COPIES)
    first, second = sorted(delta_table(mirror).file_uris())
    rows = {file: pq.read_metadata(file).num_rows for file in (first, second)}
    (other,) = (file for file, count in rows.items() if count == 2)
    turn(mirror, writer, build.delete(1, key=build.row("1", None, None)), **COPIES)
    files = delta_table(mirror).file_uris()
    assert other in files
    assert len(files) == 2
    changed = build.delete(1, key=build.row("4", None, None))
    turn(mirror, writer, changed, build.delete(1, key=build.row("5", None, None)), **COPIES)
    assert len(delta_table(mirror).file_uris()) == 1, "a file without other rows is not replaced"
    assert plain_rows(mirror) == mirror.expected(TABLE)


def test_the_properties_of_a_table_decide(tmp_path: Path, writer: Writer) -> None:
    """Also those of a table with vectors, whose owner switches them off."""
    mirror = MirrorOf(None, tmp_path, "local")
    turn(mirror, writer, *inserts(1, 2, 3, 4, 5))
    turn(mirror, writer, build.delete(1, key=build.row("4", None, None)))
    assert mirror.rows(TABLE) == mirror.expected(TABLE)
    delta_table(mirror).alter.set_table_properties({ENABLED: "false"})
    turn(mirror, writer, *UPDATES)
    assert vectors(mirror) == [0, 0]
    assert mirror.rows(TABLE) == mirror.expected(TABLE)
    delta_table(mirror).alter.set_table_properties({ENABLED: "true"})
    turn(mirror, writer, build.delete(1, key=build.row("10", None, None)), **COPIES)
    assert sorted(vectors(mirror)) == [0, 1]
    assert mirror.rows(TABLE) == mirror.expected(TABLE)


def vectors(mirror: MirrorOf) -> list[int]:
    """Number of deleted rows of each file."""
    (opened,) = mirror.lake.glob("public/*")
    return [file.deleted for file in mirror.opened._open(str(opened)).files.files]


def test_another_commit_comes_first(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are written once more, and those of the lost race are removed."""
    mirror = MirrorOf(None, tmp_path, "local")
    turn(mirror, writer, *inserts(1, 2, 3, 4), **COPIES)
    written: list[Any] = []
    write = rewriting.write_data_files

    def after_another(*args: Any) -> Any:
        files = write(*args)
        if not written:
            delta_table(mirror).delete("id = 4")
        written.append([file.path for file in files])
        return files

    monkeypatch.setattr(rewriting, "write_data_files", after_another)
    turn(mirror, writer, build.delete(1, key=build.row("1", None, None)))
    assert [row["id"] for row in plain_rows(mirror)] == [2, 3]
    (lost,), (used,) = written
    folder = mirror.lake / "public" / "t1"
    assert (folder / used).exists()
    assert not (folder / lost).exists()


def test_other_modes(tmp_path: Path, writer: Writer) -> None:
    mirror = MirrorOf(None, tmp_path, "local")
    with pytest.raises(OptionError, match=r"write_mode must be one of .*copy-on-write, not 'copy'"):
        turn(mirror, writer, write_mode="copy")
