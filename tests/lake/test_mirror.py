"""A mirror has the rows of every table of a log, whatever happens to it and to the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.table_turns import TableTurns
from tests.support import build
from tests.support.build import column
from tests.support.logs import SOURCE, append
from tests.support.mirrors import ID, MirrorOf, Writer, relation

pytest.importorskip("deltalake")


def test_all_kinds_of_changes(made: MirrorOf, writer: Writer) -> None:
    """Of tables with a key, without one, without identity, and with names of all kinds."""
    keyed = relation(1, ID, column("v"), column("note"))
    both = [column("v", "int4", key=True), column("w", key=True)]
    whole = relation(2, *both, identity="f")
    bare = relation(3, column("v", "int4"), identity="n")
    named = relation(4, ID, column("a b"), name="Grö ße/%", namespace="_s.x")
    pairs = relation(5, ID, column("other", "int4", key=True))
    dotted = [
        relation(6, ID, name="c", namespace="a.b"),
        relation(7, ID, name="b.c", namespace="a"),
    ]
    writer.commit(keyed, *(build.insert(1, str(n), "v", "n") for n in range(4)))
    writer.commit(whole, *(build.insert(2, "7", "same") for _ in range(3)))
    writer.commit(bare, build.insert(3, "1"), build.insert(3, "1"))
    writer.commit(named, build.insert(4, "1", "x"), pairs, build.insert(5, "1", "2"))
    writer.commit(*dotted, build.insert(6, "1"), build.insert(7, "1"), build.insert(7, "2"))
    writer.flush()
    made.run()
    first = {"public.t1": 4, "public.t2": 3, "public.t3": 2, "public.t5": 1}
    assert {name: len(made.rows(name)) for name in first} == first
    writer.commit(
        keyed,
        build.update(1, build.row("0", "changed", ...)),
        build.update(1, build.row("9", "moved", ...), key=build.row("1", None, None)),
        build.delete(1, key=build.row("2", None, None)),
    )
    writer.commit(whole, build.delete(2, old=build.row("7", "same")), build.insert(2, "8", "new"))
    writer.commit(bare, build.insert(3, "1"))
    writer.commit(named, build.update(4, build.row("1", "y")), build.insert(4, "2", None))
    writer.commit(pairs, build.update(5, build.row("1", "3"), key=build.row("1", "2")))
    writer.flush()
    made.run()
    for name in first:
        assert made.rows(name) == made.expected(name), name
    schema = "~5Fs~2Ex" if made.engine == "iceberg" else "~5Fs.x"
    assert made.rows(f"{schema}.Gr~C3~B6~20~C3~9Fe~2F~25") == made.expected('"_s.x"."Grö ße/%"')
    status = made.status()
    assert {each["state"] for each in status.values()} == {"ok"}
    names = {'"a.b".c', 'a."b.c"', '"_s.x"."Grö ße/%"'}
    assert status.keys() == first.keys() | names


def test_status(made: MirrorOf, writer: Writer) -> None:
    writer.commit(relation(1, ID), build.insert(1, "1"))
    first = writer.commit(relation(2, ID), build.insert(2, "1"), build.insert(2, "2"))
    writer.flush()
    made.run()
    last = writer.commit(relation(2, ID), build.insert(2, "3"))
    writer.flush()
    made.run()
    one, two = (made.status()[f"public.t{oid}"] for oid in (1, 2))
    assert (one["relation_oid"], one["commit_lsn"], one["commit_lsn_text"]) == (1, 10, "0/A")
    assert (two["commit_lsn"], two["complete_lsn"], two["complete_lsn_text"]) == (
        last,
        last,
        "0/1E",
    )
    assert one["complete_lsn"] == last
    assert (one["changes"], two["changes"], two["state"], two["error"]) == (1, 1, "ok", None)
    assert two["commit_time"] is not None
    assert {"public.t1": one["version"], "public.t2": two["version"]} == made.versions()
    assert [(each.batch, each.until, len(each.changed)) for each in made.batches] == [
        (0, first, 2),
        (1, last, 1),
    ]


def test_tables_without_rows(made: MirrorOf, tmp_path: Path) -> None:
    """They have targets, but not a partition that is published as its root."""
    empty = relation(1, ID, column("v")), relation(2, ID)
    with log.LogWriter(tmp_path / "log", SOURCE) as writer:
        writer.new_session(snapshot=True)
        append(writer, build.wire(build.transaction(*empty, lsn=10)))
        writer.flush()
        made.run("public.t1", commit_columns=True)
        assert made.rows("public.t1") == []
        one = made.status()["public.t1"]
        assert (one["state"], one["complete_lsn"], one["commit_lsn"]) == ("ok", 10, 10)
        assert one["row_columns"] == ["_commit_lsn", "_commit_time"]
        root, leaf = relation(3, ID), relation(4, ID)
        writer.new_session()
        append(writer, build.wire(build.transaction(root, leaf, build.insert(3, "1"), lsn=20)))
        writer.flush()
        made.run(commit_columns=True)
        rows = made.status()
        assert {name: (row["state"], row["complete_lsn"]) for name, row in rows.items()} == {
            f"public.t{oid}": ("ok", 20) for oid in (1, 2, 3)
        }
        assert [len(made.rows(f"public.t{oid}")) for oid in (1, 2, 3)] == [0, 0, 1]
        inserted = build.transaction(empty[0], build.insert(1, "1", "v"), lsn=30)
        append(writer, build.wire(inserted))
        writer.flush()
        made.run(commit_columns=True)
    [row] = made.rows("public.t1")
    assert (row["id"], row["v"], row["_commit_lsn"]) == (1, "v", 30)


def test_errors(made: MirrorOf, writer: Writer) -> None:
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    with pytest.raises(OptionError, match="one of evolve, rename, freeze, fail, not 'no'"):
        made.run(on_schema_change="no")
    with pytest.raises(OptionError, match="'table'"):
        made.run(on_error="table")
    with pytest.raises(TableError, match=r"table public\.t1 is not set aside — hint: .*: none"):
        made.resume("public.t1")


def test_a_new_table_while_the_log_is_pruned(
    made: MirrorOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log before the micro-batch is not read for it, and may be gone."""
    first, second = relation(1, ID), relation(2, ID)
    advance = TableTurns._advance

    def late(self: TableTurns, table: Any) -> None:
        log.prune(made.log, 20)
        advance(self, table)

    with log.LogWriter(tmp_path / "log", SOURCE) as writer:

        def commit(lsn: int, *inside: Any) -> None:
            append(writer, build.wire(build.transaction(*inside, xid=lsn, lsn=lsn)))
            writer.flush()

        for lsn in (10, 20, 30):
            commit(lsn, first, build.insert(1, str(lsn)))
            writer.seal()
        commit(40, first, build.insert(1, "40"))
        made.run()
        commit(50, second, build.insert(2, "50"))  # in the part that has 40, too
        monkeypatch.setattr(TableTurns, "_advance", late)
        made.run()
    assert log.Log(made.log).begin.lsn == 20
    assert {name: row["state"] for name, row in made.status().items()} == {
        "public.t1": "ok",
        "public.t2": "ok",
    }
    assert made.rows("public.t2") == [{"id": 50}]


def test_a_mirror_in_a_thread(made: MirrorOf, writer: Writer) -> None:
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    running = made._mirror("*").start()
    running.processAllAvailable()
    assert made.rows("public.t1") == [{"id": 1}]
    writer.commit(relation(1, ID), build.insert(1, "2"))
    writer.flush()
    running.processAllAvailable()
    assert made.rows("public.t1") == [{"id": 1}, {"id": 2}]
    assert (running.isActive, running.awaitTermination(0.01)) == (True, False)
    running.stop()
    assert running.awaitTermination(60)
    assert (running.isActive, running.exception()) == (False, None)

    def report(_: Any) -> None:
        raise RuntimeError("full")

    writer.commit(relation(1, ID), build.insert(1, "3"))
    writer.flush()
    failing = made._mirror("*", report=report).start()
    with pytest.raises(RuntimeError, match="full"):
        failing.awaitTermination(60)
    assert isinstance(failing.exception(), RuntimeError)
    assert not failing.isActive
