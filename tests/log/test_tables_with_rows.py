"""Relations of a log that are tables, and partitions of which only the root has changes."""

from __future__ import annotations

from pathlib import Path

from pgwire_codec import log
from pgwire_codec.log.tables_with_rows import TablesWithRows
from tests.support import build
from tests.support.logs import SOURCE, append


def test_relations(tmp_path: Path) -> None:
    empty, root, leaf, later = (build.relation(oid, name=f"t{oid}") for oid in (1, 2, 3, 4))
    with log.LogWriter(tmp_path, SOURCE) as writer:
        writer.new_session(snapshot=True)
        append(writer, build.wire(build.transaction(empty, lsn=10)))
        writer.flush()
        writer.new_session()
        append(writer, build.wire(build.transaction(root, leaf, build.insert(2), lsn=20)))
        writer.flush()
        found = TablesWithRows(opened := log.Log(tmp_path))
        assert found.among({1, 2, 3, 4}) == {1, 2}
        assert found.among(()) == set()
        append(writer, build.wire(build.transaction(later, build.truncate(4), lsn=30)))
        append(writer, build.wire(build.transaction(build.insert(3), lsn=40)))
        writer.flush()
        opened.refresh()
        assert found.among({1, 3, 4}) == {1, 3, 4}


def test_publications_of_a_source() -> None:
    names = '"p","A ""b"", c",plain'
    source = log.LogSource("7", 1, "shop", "slot", 180000, {"publication_names": names})
    assert source.publications == ("p", 'A "b", c', "plain")
    assert SOURCE.publications == ()
