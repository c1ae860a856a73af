"""Keys of the rows that a range of a log changes, and when all rows may have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.comparing.log_changes import ChangedRows, changed_rows
from pgwire_codec.errors import DecodeError
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.options import DecoderOptions
from tests.support import build
from tests.support.mirrors import ID, Writer, relation

V = build.column("v")
T = relation(1, ID, V)
FULL = relation(1, build.column("id", "int4", key=True), build.column("v", key=True), identity="f")
KINDS = {"id": pa.int32(), "v": pa.string()}


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def changed(
    folder: Path, after: int = 0, until: int = 99, columns: Any = None, like: Any = T
) -> ChangedRows:
    log = Log(folder / "log")
    columns = columns or ComparedColumns.choose(like, KINDS, {})
    options = DecoderOptions(arrow_types=ROW_TYPES)
    return changed_rows(Threads(1), log, RelationHistory(log), 1, after, until, columns, options)


def keys(rows: list[tuple[int, str | None]], like: Any = T) -> list[int]:
    """Hashes of the keys of rows."""
    columns = ComparedColumns.choose(like, KINDS, {})
    data = dict(zip(KINDS, map(list, zip(*rows, strict=True)), strict=True))
    batch = pa.record_batch({name: pa.array(data[name], kind) for name, kind in KINDS.items()})
    return sorted({*columns.hashes(batch).keys.tolist()})


def test_old_and_new_keys_in_a_range(tmp_path: Path, writer: Writer) -> None:
    writer.commit(T, relation(2, ID), build.insert(1, "1", "a"), build.insert(2, "9"))
    writer.commit(build.insert(1, "2", "b"), build.update(1, build.row("1", "c")))
    writer.commit(build.update(1, build.row("3", "b"), key=build.row("2", None)))
    writer.flush()
    writer.commit(build.delete(1, key=build.row("1", None)), build.insert(2, "8"))
    writer.commit(build.insert(2, "7"))
    writer.flush()
    for after, until, last, rows in (
        (0, 10, 10, [1]), (0, 99, 40, [1, 2, 3]), (20, 30, 30, [2, 3]), (30, 99, 40, [1]),
    ):  # fmt: skip
        found = changed(tmp_path, after, until)
        assert found.last_lsn == last
        assert found.keys is not None
        assert found.keys.tolist() == keys([(number, None) for number in rows])
        assert found.explain(found.keys).all()
    for after, until in ((40, 99), (50, 50)):
        found = changed(tmp_path, after, until)
        assert (found.last_lsn, found.keys is not None and found.keys.tolist()) == (0, [])


def test_whole_rows_with_values_that_were_not_sent(tmp_path: Path, writer: Writer) -> None:
    writer.commit(FULL, build.insert(1, "1", "large"), build.insert(1, "2", None))
    writer.commit(build.update(1, build.row("5", ...), old=build.row("1", "large")))
    writer.flush()
    found = changed(tmp_path, 10, like=FULL)
    assert found.keys is not None
    assert found.keys.tolist() == keys([(1, "large"), (5, "large")], FULL)


def test_keys_that_are_compared_as_texts(tmp_path: Path, writer: Writer) -> None:
    writer.commit(T, build.insert(1, "12", "a"))
    writer.flush()
    columns = ComparedColumns.choose(T, KINDS, {"id": pa.string()})
    found = changed(tmp_path, columns=columns)
    assert found.keys is not None
    assert found.keys.tolist() == columns.key_hashes({"id": pa.array(["12"])}).tolist()


BY_V = relation(1, build.column("id", "int4"), build.column("v", key=True))


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        pytest.param([build.truncate(1)], False, id="truncate"),
        pytest.param([BY_V, build.insert(1, "2", "b")], False, id="another key"),
        pytest.param([FULL, build.insert(1, "2", "b")], True, id="whole rows"),
        pytest.param([relation(1, V, ID), build.insert(1, "b", "2")], True, id="other columns"),
    ],
)
def test_when_all_rows_may_have_changed(
    tmp_path: Path, writer: Writer, changes: list[Any], is_known: bool
) -> None:
    writer.commit(T, build.insert(1, "1", "a"))
    writer.commit(*changes)
    writer.flush()
    assert (changed(tmp_path, 10).keys is not None) == is_known
    bag = ComparedColumns.choose(T, KINDS, {}, {"id"})  # whose key is not in all old rows
    assert changed(tmp_path, 10, columns=bag) == ChangedRows(20, None)


def test_errors_of_the_table_only(tmp_path: Path, writer: Writer) -> None:
    writer.commit(T, relation(2, ID), build.insert(1, "1", "a"), build.insert(2, "wrong"))
    writer.flush()
    assert changed(tmp_path).last_lsn == 10
    writer.commit(build.insert(1, "wrong", "a"))
    writer.flush()
    with pytest.raises(DecodeError, match="wrong"):
        changed(tmp_path)
