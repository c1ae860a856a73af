"""A mirror with dead letters: changes that do not decode are left out, recorded and replayed."""

from __future__ import annotations

import shutil
from random import Random
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import OptionError, PgwireError, TableError
from pgwire_codec.lake.mirror_run import MirrorRun
from pgwire_codec.lake.table_turns import TableTurns
from tests.support import build
from tests.support.applied_tables import Table, apply
from tests.support.build import column
from tests.support.lakehouse import iceberg_table
from tests.support.mirrors import ID, MirrorOf, Row, Writer, in_order, relation

pytest.importorskip("deltalake")

PRICE = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
NOTE = column("note")
T1 = relation(1, ID, PRICE, NOTE)
T2 = relation(2, ID, column("v", "int4"))
CUT = pgc.encode_message(build.insert(1, "9", "0.00", "cut"))[:-1]

MENDED = {"dead_letters": True, "unrepresentable": "null"}


def run(made: MirrorOf, **options: Any) -> Row:
    """Run the mirror with dead letters; return the status of the first table."""
    made.run(**{"dead_letters": True, **options})
    status: Row = made.status()["public.t1"]
    return status


def replay(made: MirrorOf, table: str = "public.t1") -> None:
    made.replay(table)


def letters(made: MirrorOf) -> list[Row]:
    """The rows of the table of dead letters, in order."""
    if made.engine == "iceberg":
        name = made.name("_mirror.dead_letters")
        found = iceberg_table(made._spark, name).to_pylist()
    else:
        found = made.rows("_dead_letters")
    return sorted(found, key=lambda row: row["ordinal"])


def rows(made: MirrorOf) -> list[tuple[Any, ...]]:
    """The rows of the first table."""
    return sorted((r["id"], str(r["price"]), r["note"]) for r in made.rows("public.t1"))


def begin(made: MirrorOf, writer: Writer) -> None:
    """Mirror two tables, and then a change of each that does not decode."""
    writer.commit(
        T1, *(build.insert(1, str(n), "1.00", f"note {n}") for n in range(1, 6)),
        T2, build.insert(2, "1", "1"),
    )  # fmt: skip
    writer.flush()
    assert run(made)["dead_letters"] == 0
    writer.commit(
        build.update(1, build.row("1", "NaN", ...)),
        build.insert(1, "6", "6.00", "sound"),
        build.insert(2, "2", "bad"),
    )
    writer.flush()


def _killed(*arguments: Any, **options: Any) -> None:
    raise PgwireError("Killed", is_transient=True)


def test_changes_are_left_out_and_recorded_once(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(made, writer)
    with monkeypatch.context() as patch:  # in place of the death of the process
        patch.setattr(MirrorRun, "write_status", _killed)
        with pytest.raises(Exception, match="Killed"):
            run(made)
    assert len(letters(made)) == 2
    status = run(made)
    assert (status["state"], status["dead_letters"], status["commit_lsn"]) == ("ok", 1, 20)
    assert rows(made)[0] == (1, "1.00", "note 1")
    assert rows(made)[-1] == (6, "6.00", "sound")
    assert made.status()["public.t2"]["dead_letters"] == 1
    first, second = letters(made)
    assert (first["table"], first["relation_oid"], first["commit_lsn"]) == ("public.t1", 1, 20)
    assert (first["code"], second["code"]) == ("unrepresentable", "bad_value")
    assert pgc.decode_message(first["data"]) == build.update(1, build.row("1", "NaN", ...))
    # Nor are they recorded again without the status.
    of_mirror = made.lake / "_mirror"
    shutil.rmtree(of_mirror / "status" if made.engine == "iceberg" else of_mirror)
    writer.commit(T1, build.update(1, build.row("2", "NaN", ...)))
    writer.flush()
    assert run(made)["dead_letters"] == 2
    assert [each["ordinal"] for each in letters(made)][:2] == [first["ordinal"], second["ordinal"]]
    assert len(letters(made)) == 3


@pytest.mark.slow
def test_many_letters_of_a_new_target(made: MirrorOf, writer: Writer) -> None:
    """As many as a copy may have: no statement grows with them, nor what the driver takes."""
    random = Random(4)
    values = ((str(n), "NaN", random.randbytes(500).hex()) for n in range(20_000))
    writer.commit(T1, *(build.insert(1, *row) for row in values))
    writer.flush()
    assert run(made)["dead_letters"] == 20_000
    replay(made)
    assert run(made)["dead_letters"] == 20_000  # the cause is there still


def test_a_table_without_another_change(made: MirrorOf, writer: Writer) -> None:
    """Neither in the turn nor before."""
    writer.commit(T1, build.insert(1, "1", "NaN", "new"), T2, build.insert(2, "1", "1"))
    writer.flush()
    assert run(made)["dead_letters"] == 1
    writer.commit(T1, build.insert(1, "2", "NaN", "new"))
    writer.flush()
    status = run(made)
    assert (status["state"], status["dead_letters"], status["complete_lsn"]) == ("ok", 2, 20)
    replay(made)
    status = run(made, **MENDED)
    assert (status["dead_letters"], letters(made)) == (0, [])
    assert rows(made) == [(1, "None", "new"), (2, "None", "new")]


def test_a_replay(made: MirrorOf, writer: Writer) -> None:
    """With inserts, updates, deletes and keys that change, before and after the letters."""
    begin(made, writer)
    run(made)
    writer.commit(
        build.update(1, build.row("2", "NaN", "new 2")),
        build.update(1, build.row("30", "NaN", "moved"), key=build.row("3", None, None)),
        build.update(1, build.row("2", "2.50", ...)),
    )
    writer.commit(
        build.insert(1, "3", "3.30", "another 3"),
        build.delete(1, key=build.row("4", None, None)),
        build.insert(1, "7", "NaN", "gone again"),
        build.delete(1, key=build.row("7", None, None)),
        build.insert(1, "4", "NaN", "another 4"),
    )
    writer.flush()
    status = run(made)
    assert (status["state"], status["dead_letters"]) == ("ok", 5)
    replay(made)
    assert made.status()["public.t1"]["state"] == "replaying"
    assert run(made)["dead_letters"] == 5  # the cause is there still
    replay(made)
    writer.commit(build.update(1, build.row("5", "5.50", ...)))
    writer.flush()
    status = run(made, **MENDED)
    assert (status["state"], status["dead_letters"], status["complete_lsn"]) == ("ok", 0, 50)
    assert rows(made) == [
        (1, "None", "note 1"), (2, "2.50", "new 2"), (3, "3.30", "another 3"),
        (4, "None", "another 4"), (5, "5.50", "note 5"), (6, "6.00", "sound"),
        (30, "None", "moved"),
    ]  # fmt: skip
    assert [each["table"] for each in letters(made)] == ["public.t2"]
    with pytest.raises(TableError, match=r"no dead letters — hint: .*: public\.t2\."):
        replay(made)
    writer.commit(build.insert(1, "8", "8.00", "later"))
    writer.flush()
    assert run(made)["dead_letters"] == 0
    assert rows(made)[-2] == (8, "8.00", "later")


def random_change(random: Random, held: set[int]) -> Any:
    """Return a change of the first table, whose keys are ``held``; some have a bad value."""
    price = "NaN" if random.random() < 0.25 else f"{random.randrange(900)}.00"
    note = f"note {random.randrange(1000)}"
    kind = random.choice("IUUUKD") if held else "I"
    free = random.choice(sorted(set(range(20)) - held))
    key = free if kind == "I" else random.choice(sorted(held))
    old = build.row(str(key), None, None)
    if kind == "D":
        held.discard(key)
        return build.delete(1, key=old)
    if kind == "U":
        return build.update(1, build.row(str(key), price, random.choice([note, ...])))
    held.add(free)
    if kind == "I":
        return build.insert(1, str(free), price, note)
    held.discard(key)
    return build.update(1, build.row(str(free), price, note), key=old)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 4))]
)
def test_a_replay_of_random_changes(seed: int, made: MirrorOf, writer: Writer) -> None:
    """The rows are those of a mirror that never left out a change."""
    random = Random(seed)
    held: set[int] = set()
    writer.commit(T1, *(random_change(random, held) for _ in range(8)))
    for _ in range(2):
        for _ in range(4):
            writer.commit(*(random_change(random, held) for _ in range(6)))
        writer.flush()
        assert run(made)["dead_letters"]
    replay(made)
    status = run(made, **MENDED)
    assert (status["state"], status["error"], status["dead_letters"]) == ("ok", None, 0)
    tables: dict[int, Table] = {}
    apply(log.Log(made.log).read("public.t1", unrepresentable="null"), tables)
    assert made.rows("public.t1") == in_order(
        [row for each in tables.values() for row in each.rows]
    )


def test_a_replay_with_a_truncate(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    run(made)
    writer.commit(build.truncate(1), build.insert(1, "1", "NaN", "after"))
    writer.flush()
    status = run(made)
    # No letter remains from before the truncate.
    assert status["dead_letters"] == 1
    assert rows(made) == []
    replay(made)
    assert run(made, **MENDED)["dead_letters"] == 0
    assert rows(made) == [(1, "None", "after")]


def test_a_table_that_is_set_aside_is_replayed(made: MirrorOf, writer: Writer) -> None:
    """An update of a row that was left out needs it."""
    begin(made, writer)
    writer.commit(build.insert(1, "8", "NaN", "eight"))
    writer.commit(build.update(1, build.row("8", "8.00", ...)))
    writer.flush()
    status = run(made)
    assert (status["state"], status["dead_letters"]) == ("set aside", 2)
    assert "has no row id = 8" in status["error"]
    replay(made)
    status = run(made, **MENDED)
    assert (status["state"], status["dead_letters"], status["error"]) == ("ok", 0, None)
    assert rows(made)[-1] == (8, "8.00", "eight")
    assert rows(made)[0] == (1, "None", "note 1")


@pytest.mark.parametrize(
    ("later", "problem"),
    [
        (
            [build.update(1, build.row("20", "2.00", ...), key=build.row("2", None, None))],
            "the update with commit LSN 0/1E changed a key and did not send all values",
        ),
        (
            [relation(1, ID, PRICE, NOTE, column("more")), build.insert(1, "8", "8.00", "", "")],
            "its columns or its replica identity changed since the first of them",
        ),
    ],
)
def test_a_replay_that_is_not_certain(
    later: list[Any], problem: str, made: MirrorOf, writer: Writer
) -> None:
    """It changes no row: the table is copied again."""
    begin(made, writer)
    writer.commit(*later)
    writer.flush()
    run(made)
    before = rows(made)
    replay(made)
    status = run(made, **MENDED)
    assert (status["state"], status["dead_letters"]) == ("set aside", 1)
    assert status["error"] == f"changes of public.t1 cannot be replayed: {problem}" + (
        " (unchanged TOAST)" if "send" in problem else ""
    )
    assert "log add-table" in status["hint"]
    assert rows(made) == before
    last = later[0] if isinstance(later[0], pgc.Relation) else T1
    values = ["1", "1.00", "copied", "more"][: len(last.columns)]
    writer.commit(last, build.truncate(1), build.insert(1, *values))
    writer.flush()
    made.resume("public.t1")
    status = run(made)
    assert (status["state"], status["dead_letters"]) == ("ok", 0)
    assert rows(made) == [(1, "1.00", "copied")]


def test_tables_that_are_not_replayed(made: MirrorOf, writer: Writer) -> None:
    whole = relation(3, column("v", "int4", key=True), identity="f")
    neither = relation(4, column("v", "int4"), identity="n")
    writer.commit(
        whole, build.insert(3, "1"), build.insert(3, "x"), neither, build.insert(4, "x"),
        T1, build.insert(1, "1", "NaN", "one"),
    )  # fmt: skip
    writer.flush()
    run(made)
    with pytest.raises(TableError, match=r"by all their values — hint: .*log add-table"):
        replay(made, "public.t3")
    with pytest.raises(TableError, match="by nothing"):
        replay(made, "public.t4")
    assert {row["state"] for row in made.status().values()} == {"ok"}


def test_a_history(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    assert run(made, history=True)["state"] == "set aside"  # of rows
    shutil.rmtree(made.lake / "public")
    made.resume("public.t1")
    assert run(made, history=True)["dead_letters"] == 1
    assert len(made.rows("public.t1")) == 6
    with pytest.raises(TableError, match="its history would have them twice"):
        replay(made)


def test_damaged_messages(made: MirrorOf, writer: Writer) -> None:
    """By default, one that names a table sets it aside; any is a dead letter."""
    begin(made, writer)
    run(made)
    writer.commit(CUT, build.insert(2, "3", "3"))
    writer.flush()
    made.run()
    status = made.status()
    assert (status["public.t1"]["state"], status["public.t2"]["state"]) == ("set aside", "ok")
    assert "truncated: byte " in status["public.t1"]["error"]
    assert len(made.rows("public.t2")) == 2
    writer.commit(b"?", build.insert(1, "7", "7.00", "seven"))
    writer.flush()
    with pytest.raises(Exception, match="unknown_tag"):
        made.run()
    made.resume("public.t1")
    status = run(made)
    assert (status["state"], status["dead_letters"]) == ("ok", 2)
    found = [(each["table"], each["code"]) for each in letters(made)][-2:]
    assert found == [("public.t1", "truncated"), (None, "unknown_tag")]
    assert rows(made)[-1] == (7, "7.00", "seven")


def test_masked_values_are_not_recorded(made: MirrorOf, writer: Writer) -> None:
    writer.commit(T1, build.insert(1, "17", "NaN", "secret"))
    writer.flush()
    run(made, masks={"*.note": "drop"})
    [letter] = letters(made)
    assert letter["data"] is None
    assert "row id='…'" in letter["error"]
    assert "17" not in letter["error"].partition("row id=")[2].partition(":")[0]


def test_options_that_exclude_one_another(made: MirrorOf, writer: Writer) -> None:
    writer.commit(T1)
    writer.flush()
    with pytest.raises(OptionError, match="`dead_letters=True` and `on_error='skip'` exclude"):
        made.run(dead_letters=True, on_error="skip")


def test_a_replay_while_the_mirror_runs(made: MirrorOf, writer: Writer) -> None:
    """A request remains that comes in the middle of a micro-batch with changes of the table."""
    begin(made, writer)
    run(made)
    requested: list[int] = []
    commit = TableTurns._commit_of

    def asked(*arguments: Any, **options: Any) -> Any:
        if not requested:
            requested.append(1)
            replay(made)
        return commit(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableTurns, "_commit_of", asked)
        writer.commit(build.insert(1, "7", "7.00", "seven"))
        writer.flush()
        run(made)
    assert made.status()["public.t1"]["state"] == "replaying"
    assert run(made, **MENDED)["dead_letters"] == 0
    assert rows(made)[0] == (1, "None", "note 1")
    assert rows(made)[-1] == (7, "7.00", "seven")
