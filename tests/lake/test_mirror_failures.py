"""A mirror that was killed, or whose tables failed, has the same rows in the end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.errors import PgwireError, TableError
from pgwire_codec.lake import status
from pgwire_codec.lake.mirror_run import MirrorRun
from pgwire_codec.lake.table_turns import TableTurns
from tests.support import build
from tests.support.build import column
from tests.support.logs import SOURCE, append
from tests.support.mirrors import ID, MirrorOf, Writer, relation

pytest.importorskip("deltalake")

V = column("v", "int4")
NAMES = [f"public.t{oid}" for oid in (1, 2, 3)]


def change(writer: Writer, *oids: int) -> None:
    """Change each of some tables: a row more, and another value in the first one."""
    for oid in oids:
        key = str(writer.lsn + 1)
        writer.commit(
            relation(oid, ID, V),
            build.insert(oid, key, "0"),
            build.update(oid, build.row(key, "1")),
        )
    writer.flush()


def check(made: MirrorOf, *names: str) -> None:
    for name in names or NAMES:
        assert made.rows(name) == made.expected(name), name


def kill_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next turn end when two tables have their changes, or at its end."""
    finish, write = TableTurns._finish, MirrorRun.write_status
    finished: list[Any] = []

    def killed() -> None:
        monkeypatch.setattr(TableTurns, "_finish", finish)
        monkeypatch.setattr(MirrorRun, "write_status", write)
        raise PgwireError("Killed", is_transient=True)

    def finish_or_die(self: Any, *results: Any) -> Any:
        if len(finished) == 2:
            killed()
        finished.append(results)
        return finish(self, *results)

    monkeypatch.setattr(TableTurns, "_finish", finish_or_die)
    monkeypatch.setattr(MirrorRun, "write_status", lambda *_, **__: killed())


def test_killed_between_two_tables(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(writer, 1, 2, 3)
    made.run()
    change(writer, 1, 2, 3)
    kill_once(monkeypatch)
    with pytest.raises(Exception, match="Killed"):
        made.run()
    before = made.commits()
    assert made.rows(NAMES[2]) != made.expected(NAMES[2])
    assert {each["complete_lsn"] for each in made.status().values()} == {30}
    change(writer, 2)
    made.run()
    check(made)
    # The first two are not merged again, except for the new change.
    added = {name: count - before[name] for name, count in made.commits().items()}
    assert added == {NAMES[0]: 0, NAMES[1]: 1, NAMES[2]: 1}
    assert {each["complete_lsn"] for each in made.status().values()} == {writer.lsn}


def test_a_column_that_came_before_a_kill(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has it, and no status has been written: rows lack its value all the same."""

    def killed(*arguments: Any, **options: Any) -> None:
        raise PgwireError("Killed", is_transient=True)

    change(writer, 1)
    made.run()
    wide = relation(1, ID, V, column("more"))
    lsn = writer.commit(wide, build.insert(1, "100", "5", "m"))
    writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(MirrorRun, "write_status", killed)
        with pytest.raises(Exception, match="Killed"):
            made.run()
    for _ in range(2):
        writer.commit(build.update(1, build.row("100", "6", "n")))
        writer.flush()
        made.run()
        row = made.status()[NAMES[0]]
        assert (row["state"], row["incomplete"]) == ("incomplete", [f"more since 0/{lsn:X}"])


def test_restart(made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    change(writer, 1, 2, 3)
    made.run()
    change(writer, 1, 2)
    kill_once(monkeypatch)
    with pytest.raises(Exception, match="Killed"):
        made.run()
    before = made.commits()
    made.run()
    check(made)
    assert made.commits() == before
    assert made.batches[-1].until == writer.lsn
    # Nor without the status table: the mirror begins at the log's beginning.
    shutil.rmtree(made.lake / "_mirror")
    change(writer, 3)
    made.run()
    check(made)
    assert made.commits() == before | {NAMES[2]: before[NAMES[2]] + 1}
    assert {each["state"] for each in made.status().values()} == {"ok"}


def test_a_target_that_was_set_back(made: MirrorOf, writer: Writer) -> None:
    """It gets the changes again: its own commit decides, not the status."""
    change(writer, 1, 2, 3)
    made.run()
    shutil.copytree(made.lake / "public" / "t1", made.lake / "old")
    change(writer, 1)
    made.run()
    shutil.rmtree(made.lake / "public" / "t1")
    shutil.move(made.lake / "old", made.lake / "public" / "t1")
    shutil.rmtree(made.lake / "public" / "t2")
    change(writer, 1, 2)
    made.run()
    check(made)


def test_a_table_that_fails(made: MirrorOf, writer: Writer) -> None:
    """The others go on; it is resumed from the commit that it has."""
    change(writer, 1, 2, 3)
    made.run(on_schema_change="fail")
    wide = relation(2, ID, V, column("more"))
    writer.commit(wide, build.insert(2, "100", "5", "m"))
    change(writer, 3)
    made.run(on_schema_change="fail")
    check(made, NAMES[0], NAMES[2])
    row = made.status()[NAMES[1]]
    assert (row["state"], row["complete_lsn"], row["commit_lsn"]) == ("set aside", 30, 20)
    assert row["error"] == "the table's columns changed: add column more string"
    assert row["hint"].startswith('Use `on_schema_change="evolve"`')
    commits = made.commits()[NAMES[1]]
    writer.commit(wide, build.delete(2, key=build.row("100", None, None)))
    writer.commit(wide, build.insert(2, "101", "6", "n"))
    change(writer, 1)
    made.run()
    assert made.commits()[NAMES[1]] == commits
    with pytest.raises(TableError, match=r"public\.t1 is not set aside — hint: .*: public\.t2\."):
        made.resume(NAMES[0])
    made.resume(NAMES[1])
    made.run()  # without new changes of any table
    row = made.status()[NAMES[1]]
    assert (row["state"], row["complete_lsn"]) == ("incomplete", writer.lsn)
    assert row["evolutions"] == ["add column more string"]
    check(made, NAMES[0], NAMES[2])
    assert [r for r in made.rows(NAMES[1]) if r["id"] > 99] == [{"id": 101, "v": 6, "more": "n"}]
    change(writer, 2)
    made.run()
    assert len(made.rows(NAMES[1])) == 3


def test_resumed_after_its_changes_were_pruned(made: MirrorOf, tmp_path: Path) -> None:
    """It is set aside again, until the log has a copy of it."""
    narrow, wide = relation(1, ID), relation(1, ID, V)
    with log.LogWriter(tmp_path / "log", SOURCE) as writer:

        def commit(lsn: int, *inside: Any) -> None:
            append(writer, build.wire(build.transaction(*inside, xid=lsn, lsn=lsn)))
            writer.flush()
            writer.seal()

        commit(10, narrow, build.insert(1, "1"))
        made.run()
        commit(20, wide, build.insert(1, "2", "2"))
        commit(30, build.insert(1, "3", "3"))
        commit(40, build.insert(1, "4", "4"))
        made.run(on_schema_change="fail")
        assert log.prune(made.log, 30)
        made.resume(NAMES[0])
        made.run()
        row = made.status()[NAMES[0]]
        assert row["state"] == "set aside"
        assert row["error"].startswith(f"earlier changes of {NAMES[0]} were pruned from {made.log}")
        assert "log add-table" in row["hint"]
        commit(50, wide, build.truncate(1), build.insert(1, "5", "5"))
        made.resume(NAMES[0])
        made.run()
    assert made.status()[NAMES[0]]["state"] == "ok"
    assert made.rows(NAMES[0]) == [{"id": 5, "v": 5}]


def test_resumed_with_a_batch(made: MirrorOf, writer: Writer) -> None:
    """Of which it has no changes; its changes are in batches that are over."""
    change(writer, 1, 2)
    made.run()
    writer.commit(relation(1, ID, column("v")), build.insert(1, "50", "text"))
    change(writer, 2)
    made.run()
    assert made.status()[NAMES[0]]["state"] == "set aside"
    assert "which does not hold string" in made.status()[NAMES[0]]["error"]
    shutil.rmtree(made.lake / "public" / "t1")  # as the hint advises
    change(writer, 2)
    made.resume(NAMES[0])
    change(writer, 2)
    made.run()
    assert [row["v"] for row in made.rows(NAMES[0])] == ["1", "text"]
    check(made, NAMES[1])


def test_resumed_while_the_status_is_written(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is not overwritten."""
    change(writer, 1, 2)
    made.run()
    writer.commit(relation(1, ID, column("v")), build.insert(1, "50", "text"))
    change(writer, 2)
    made.run()
    assert made.status()[NAMES[0]]["state"] == "set aside"
    shutil.rmtree(made.lake / "public" / "t1")  # as the hint advises
    to_arrow = status._to_arrow

    def late(rows: Any) -> Any:
        monkeypatch.setattr(status, "_to_arrow", to_arrow)
        made.resume(NAMES[0])
        return to_arrow(rows)

    monkeypatch.setattr(status, "_to_arrow", late)
    change(writer, 2)
    made.run()
    assert status._to_arrow is to_arrow
    assert made.status()[NAMES[0]]["state"] == "resuming"
    made.run()
    assert [row["v"] for row in made.rows(NAMES[0])] == ["1", "text"]
    assert {row["state"] for row in made.status().values()} == {"ok"}
    check(made, NAMES[1])


def test_a_value_that_does_not_decode(made: MirrorOf, writer: Writer) -> None:
    """Of one table: the others go on, and it is resumed with another option."""
    price = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    writer.commit(relation(4, ID, price), build.insert(4, "1", "1.50"))
    change(writer, 1, 2)
    made.run()
    writer.commit(build.insert(4, "2", "NaN"))
    change(writer, 1, 2)
    made.run()
    check(made, *NAMES[:2])
    row = made.status()["public.t4"]
    assert (row["state"], row["commit_lsn"]) == ("set aside", 10)
    assert row["error"].startswith("unrepresentable: message ")
    assert "row id='2'; public.t4, commit LSN 0/28, segment " in row["error"]
    made.resume("public.t4")
    made.run()
    assert made.status()["public.t4"]["error"] == row["error"]
    made.resume("public.t4")
    change(writer, 1)
    made.run(unrepresentable="null")
    assert made.status()["public.t4"]["state"] == "ok"
    assert [(r["id"], str(r["price"])) for r in made.rows("public.t4")] == [
        (1, "1.50"),
        (2, "None"),
    ]
    check(made, *NAMES[:2])


def test_another_relation_with_the_name_of_one_that_is_set_aside(
    made: MirrorOf, writer: Writer
) -> None:
    """Values of the dropped table do not concern it."""
    price = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    writer.commit(relation(1, ID, price), build.insert(1, "1", "NaN"))
    change(writer, 2)
    made.run()
    assert made.status()["public.t1"]["state"] == "set aside"
    # The same text as key, and another value that does not decode.
    writer.commit(relation(9, ID, price, name="t1"), build.insert(9, "1", "2.50"))
    writer.flush()
    made.run()
    row = made.status()["public.t1"]
    assert (row["state"], row["error"], row["relation_oid"]) == ("ok", None, 9)
    assert made.rows("public.t1") == made.expected("public.t1")
    writer.commit(build.insert(9, "2", "NaN"))
    writer.flush()
    made.run()
    assert made.status()["public.t1"]["state"] == "set aside"
    change(writer, 2)
    made.run()
    row = made.status()["public.t1"]
    assert (row["state"], row["relation_oid"]) == ("set aside", 9)
    writer.commit(relation(10, ID, price, name="t1"), build.insert(10, "3", "3.50"))
    writer.flush()
    made.run()
    assert [row["id"] for row in made.rows("public.t1")] == [3]


def test_a_table_without_columns(made: MirrorOf, writer: Writer) -> None:
    writer.commit(relation(1), build.insert(1))
    change(writer, 2)
    made.run()
    row = made.status()["public.t1"]
    assert row["error"] == "public.t1 has no columns to mirror, and a target has at least one"
    check(made, NAMES[1])


def test_resumed_after_a_kill(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status has tables of which no micro-batch ended, and the log has a copy of the table."""
    price = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    table = relation(4, ID, price)
    # A partition of a published root has a Relation, and none of the changes.
    root = relation(9, ID, name="leaf")
    writer.commit(table, root, build.insert(4, "1", "1.50"), build.insert(4, "2", "NaN"))
    change(writer, 1)
    made.run()
    assert made.status()["public.t4"]["state"] == "set aside"
    change(writer, 1, 2, 3)
    writer.commit(build.truncate(4), build.insert(4, "1", "1.50"))
    writer.flush()
    kill_once(monkeypatch)
    with pytest.raises(Exception, match="Killed"):
        made.run()
    made.resume("public.t4")
    made.run()
    rows = made.status()
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(
        [*NAMES, "public.t4"], "ok"
    )
    assert {row["complete_lsn"] for row in rows.values()} == {writer.lsn}
    assert [row["id"] for row in made.rows("public.t4")] == [1]
    check(made)


def test_resumed_before_a_type_that_does_not_fit(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes before it are applied: later types do not count."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no space left")

    change(writer, 1, 2)
    made.run()
    with monkeypatch.context() as patch:
        patch.setattr(TableTurns, "_commit_of", fail)
        change(writer, 1)
        made.run("public.t1")
    change(writer, 2)
    made.run("public.t2")
    lsn = writer.lsn
    writer.commit(relation(1, ID, column("v")), build.insert(1, "50", "text"))
    writer.flush()
    made.resume(NAMES[0])
    made.run()
    row = made.status()[NAMES[0]]
    assert "which does not hold string" in row["error"]
    assert lsn <= row["complete_lsn"] < writer.lsn
    assert len(made.rows(NAMES[0])) == 2


def test_an_error_that_passes(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = []
    commit = TableTurns._commit_of

    def flaky(*arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append(1)
            raise OSError("connection lost")
        return commit(*arguments, **options)

    monkeypatch.setattr(TableTurns, "_commit_of", flaky)
    change(writer, 1, 2, 3)
    made.run()
    assert failed
    check(made)
    assert {each["state"] for each in made.status().values()} == {"ok"}


def test_more_tables(made: MirrorOf, writer: Writer) -> None:
    """A table that the patterns leave out is not whole, and is caught up when it is named."""
    change(writer, 1, 2)
    made.run("public.t1")
    change(writer, 1, 3)
    made.run("public.t1")
    assert set(made.status()) == {NAMES[0]}
    change(writer, 1)
    made.run("public.t1,public.t2,public.t[3-9]")
    check(made)
    change(writer, 1, 3)
    made.run("public.t1")
    assert made.status()[NAMES[2]]["complete_lsn"] < writer.lsn
    change(writer, 1)
    made.run()
    check(made)
    assert {each["complete_lsn"] for each in made.status().values()} == {writer.lsn}


def test_columns_that_differ_in_case(made: MirrorOf, writer: Writer) -> None:
    both = relation(4, ID, column("userId"), column("userid"), name="users")
    writer.commit(both, build.insert(4, "1", "a", "b"))
    writer.flush()
    made.run()
    row = made.status()["public.users"]
    assert "columns userId, userid differ in case only" in row["error"]
    assert "--mask public.users.userid=drop" in row["hint"]
    made.resume("public.users")
    made.run(masks={"public.users.userid": "drop"})
    assert made.rows("public.users") == [{"id": 1, "userId": "a"}]
