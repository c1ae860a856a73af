"""Parts of a range that a mirror reads one after the other; without a session."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.lake.log_range import pieces_of
from pgwire_codec.log import segment_sequence
from pgwire_codec.log.relation_history import RelationHistory
from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, relation

X, Y, K = column("x", "int4"), column("y", "int4"), column("k")
BY_X = relation(1, column("id", "int4"), column("x", "int4", key=True), K, identity="i")


def pieces(folder: Path) -> list[Any]:
    source = log.Log(str(folder / "log"))
    versions = RelationHistory(source).between(1, 0, source.end.lsn)
    return pieces_of(versions, 0, source.end.lsn)


def shown(folder: Path) -> list[tuple[int, int, list[str]]]:
    return [
        (each.after, each.until, [" ".join(c.name for c in v.columns) for v in each.versions])
        for each in pieces(folder)
    ]


def test_pieces_end_where_a_column_goes(tmp_path: Path) -> None:
    """Or the replica identity changes; not for a new column, nor within a transaction."""
    writer = Writer(tmp_path)
    row = build.insert(1, "1", "5", "a")
    writer.commit(relation(1, ID, X, K), row)
    writer.commit(row, relation(1, ID, X, K, column("n")), build.insert(1, "2", "6", "b", "n"))
    writer.commit(build.insert(1, "3", "6", "b", "n"))
    writer.commit(relation(1, ID, X, K), row, relation(1, ID, Y, K), row)
    writer.commit(BY_X, row)
    writer.flush()
    assert shown(tmp_path) == [
        (0, 39, ["id x k", "id x k n"]),
        (39, 49, ["id x k n", "id x k", "id y k"]),
        (49, 50, ["id y k", "id x k"]),
    ]


def test_columns_that_change_in_the_first_transaction(tmp_path: Path) -> None:
    """No piece ends before it, where the log has no relation."""
    writer = Writer(tmp_path)
    writer.commit(relation(2, ID), build.insert(2, "1"))
    row = build.insert(1, "1", "5", "a")
    writer.commit(relation(1, ID, X, K), row, relation(1, ID, Y, K), row)
    writer.commit(relation(1, ID, K), build.insert(1, "2", "b"))
    writer.flush()
    assert shown(tmp_path) == [
        (0, 29, ["id x k", "id y k"]),
        (29, 30, ["id y k", "id k"]),
    ]


def test_many_tables_read_the_versions_of_relations_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of all tables for each of them would cost the square of their number."""
    writer = Writer(tmp_path)
    for oid in range(1, 31):
        writer.commit(relation(oid, ID), build.insert(oid, "1"))
    writer.flush()
    lists: list[str] = []

    def counted(name: str, get: Any) -> Any:
        return lambda *arguments: [lists.append(name), get(*arguments)][1]

    unique = counted("versions", segment_sequence.unique_versions)
    monkeypatch.setattr(segment_sequence, "unique_versions", unique)
    monkeypatch.setattr(log.Log, "relations_at", counted("known", log.Log.relations_at))
    mirror = MirrorOf(None, tmp_path, "local")
    mirror.run()
    assert len(mirror.status()) == 30
    assert Counter(lists)["versions"] < 5
    assert Counter(lists)["known"] < 15


@pytest.mark.parametrize("is_mixed", [True, False])
def test_a_rename_after_other_changes_of_its_transaction(tmp_path: Path, is_mixed: bool) -> None:
    writer = Writer(tmp_path)
    row = build.insert(1, "1", "5", "a")
    writer.commit(relation(1, ID, X, K), row)
    writer.flush()
    mirror = MirrorOf(None, tmp_path, "local")
    mirror.run()
    other = build.insert(1, "2", "6", "b")
    writer.commit(
        *([other] if is_mixed else []), relation(1, ID, Y, K), build.insert(1, "3", "7", "c")
    )
    writer.flush()
    mirror.run(on_schema_change="rename")
    status = mirror.status()["public.t1"]
    if is_mixed:
        assert status["state"] == "set aside"
        assert re.match(r"column x of public\.t1 was renamed in the .* LSN 0/14", status["error"])
        return
    assert status["evolutions"] == ["rename column x to y"]
    assert [row["y"] for row in mirror.rows("public.t1")] == [5, 7]
