"""A mirror follows the columns, the identity and the names of its tables."""

from __future__ import annotations

from typing import Any

import pytest

from pgwire_codec.errors import OptionError
from pgwire_codec.lake.table_turns import TableTurns
from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, in_order, relation

pytest.importorskip("deltalake")

X, K = column("x", "int4"), column("k")


def rows(*values: dict[str, Any]) -> list[dict[str, Any]]:
    return in_order(list(values))


def follow(made: MirrorOf, writer: Writer, *inside: Any, **options: Any) -> dict[str, Any]:
    """Mirror another transaction, and return the status of the first table."""
    writer.commit(*inside)
    writer.flush()
    made.run(**options)
    status: dict[str, Any] = made.status()["public.t1"]
    return status


def begin(made: MirrorOf, writer: Writer) -> None:
    """Mirror a table of two rows."""
    old = relation(1, ID, X, K)
    follow(made, writer, old, build.insert(1, "1", "5", "a"), build.insert(1, "2", "6", "b"))


def test_a_column_is_added_and_dropped(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    more = relation(1, ID, X, K, column("n", "numeric", typmod=(10 << 16) + 2 + 4))
    status = follow(made, writer, more, build.insert(1, "3", "7", "c", "1.50"))
    assert status["evolutions"] == ["add column n decimal(10,2)"]
    assert (status["state"], status["incomplete"]) == ("incomplete", ["n since 0/14"])
    less = relation(1, ID, K, column("n", "numeric", typmod=(10 << 16) + 2 + 4))
    status = follow(made, writer, less, build.update(1, build.row("1", "z", "2.5")))
    assert status["evolutions"][1:] == ["drop column x, which is kept"]
    found = made.rows("public.t1")
    assert [(r["id"], r["x"], r["k"], r["n"] and str(r["n"])) for r in found] == [
        (1, None, "z", "2.50"),
        (2, 6, "b", None),
        (3, 7, "c", "1.50"),
    ]
    # Another column gets the name: rows that are not written again do not have its values.
    again = relation(1, ID, K, column("n", "numeric", typmod=(10 << 16) + 2 + 4), X)
    status = follow(made, writer, again, build.insert(1, "4", "d", None, "9"))
    assert status["evolutions"][2:] == ["clear column x"]
    assert [(r["id"], r["x"]) for r in made.rows("public.t1")] == [
        (1, None),
        (2, None),
        (3, None),
        (4, 9),
    ]
    assert status["incomplete"] == ["n since 0/14", "x since 0/28"]
    assert status["error"] is None
    assert "(n since 0/14, x since 0/28)" in status["hint"]
    assert status["hint"].endswith("pgwire-codec log add-table --table public.t1 LOG")
    # A copy of the table has them.
    every = [build.insert(1, str(n), "k", None, "1") for n in range(5)]
    status = follow(made, writer, again, build.truncate(1), *every)
    assert (status["state"], status["incomplete"], status["hint"]) == ("ok", [], None)


def test_rows_from_before_a_column(made: MirrorOf, writer: Writer) -> None:
    """They lack its values until all of them were written again."""
    both = relation(1, ID, X)
    writer.commit(relation(1, ID), build.insert(1, "1"), build.insert(1, "2"))
    status = follow(made, writer, both, build.insert(1, "3", "7"))  # of a new target
    assert (status["state"], status["incomplete"]) == ("incomplete", ["x since 0/14"])
    status = follow(made, writer, both, build.update(1, build.row("1", "7")))
    assert (status["state"], status["changes"]) == ("incomplete", 1)
    status = follow(made, writer, both, build.update(1, build.row("2", "7")))
    assert (status["state"], status["incomplete"]) == ("ok", [])
    # Of a target without rows, no row is from before.
    status = follow(made, writer, both, build.truncate(1))
    status = follow(made, writer, relation(1, ID, X, K), build.insert(1, "1", None, None))
    assert (status["state"], status["incomplete"]) == ("ok", [])
    # A renamed column is another one.
    status = follow(made, writer, relation(1, ID, X, column("l")), build.insert(1, "2", "1", "l"))
    assert (status["state"], status["incomplete"]) == ("incomplete", ["l since 0/46"])
    # Another relation has other rows.
    status = follow(made, writer, relation(9, ID, name="t1"), build.insert(9, "2"))
    assert (status["state"], status["incomplete"]) == ("ok", [])


@pytest.mark.parametrize("identity", ["n", "f"])
def test_a_dropped_column_of_a_table_without_a_key(
    made: MirrorOf, writer: Writer, identity: str
) -> None:
    """Its rows are appended: those from then on have null."""
    is_key = identity == "f"
    a, b = column("a", key=is_key), column("b", "int4", key=is_key)
    writer.commit(relation(1, a, b, identity=identity), build.insert(1, "x", "1"))
    writer.flush()
    made.run()
    writer.commit(relation(1, a, identity=identity), build.insert(1, "y"), build.insert(1, "z"))
    writer.flush()
    made.run()
    status = made.status()["public.t1"]
    assert (status["state"], status["error"]) == ("ok", None)
    assert made.rows("public.t1") == [
        {"a": "x", "b": 1}, {"a": "y", "b": None}, {"a": "z", "b": None},
    ]  # fmt: skip


def test_columns_that_change_within_a_batch(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    writer.commit(relation(1, ID, K), build.insert(1, "3", "c"))
    writer.commit(relation(1, ID, K, X), build.insert(1, "4", "d", "8"))
    status = follow(made, writer, build.update(1, build.row("2", "e", "9")))
    assert status["evolutions"] == ["clear column x", "drop column x, which is kept"]
    assert made.rows("public.t1") == rows(
        {"id": 1, "x": None, "k": "a"},
        {"id": 2, "x": 9, "k": "e"},
        {"id": 3, "x": None, "k": "c"},
        {"id": 4, "x": 8, "k": "d"},
    )


def test_renamed_and_wider(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    wide = column("id", "int8", key=True)
    new = relation(1, wide, column("y", "int4"), K)
    status = follow(
        made, writer, new, build.insert(1, str(1 << 40), "8", "c"), on_schema_change="rename"
    )
    assert status["evolutions"] == ["rename column x to y", "widen column id to bigint"]
    follow(made, writer, new, build.update(1, build.row("1", "9", "a")))
    assert made.rows("public.t1") == rows(
        {"id": 1, "y": 9, "k": "a"},
        {"id": 2, "y": 6, "k": "b"},
        {"id": 1 << 40, "y": 8, "k": "c"},
    )
    follow(made, writer, relation(1, ID, column("y", "int4"), K), build.insert(1, "3", "1", "d"))
    assert len(made.rows("public.t1")) == 4


def test_a_failure_between_the_columns_and_the_rows(
    made: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps that were done are not done again, nor undone."""
    begin(made, writer)

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no space left")

    options = {"on_schema_change": "rename"}
    new = relation(1, column("id", "int8", key=True), column("y", "int4"), K, column("n"))
    with monkeypatch.context() as patch:
        patch.setattr(TableTurns, "_commit_of", fail)
        status = follow(made, writer, new, build.insert(1, "3", "7", "c", "n"), **options)
        error = "public.t1: RuntimeError: no space left"
        assert (status["state"], status["error"]) == ("set aside", error)
    made.resume("public.t1")
    made.run(**options)
    assert made.status()["public.t1"]["incomplete"] == ["n since 0/14"]
    found = made.rows("public.t1")
    assert [list(row.values()) for row in found] == [
        [1, 5, "a", None],
        [2, 6, "b", None],
        [3, 7, "c", "n"],
    ]


def test_frozen_columns(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    new = relation(1, ID, K, column("n"))
    follow(made, writer, new, build.insert(1, "3", "c", "n"), on_schema_change="freeze")
    status = follow(
        made, writer, new, build.update(1, build.row("1", "z", "n")), on_schema_change="freeze"
    )
    assert (status["state"], status["evolutions"][:1]) == ("ok", ["drop column x, which is kept"])
    assert made.rows("public.t1") == rows(
        {"id": 1, "x": None, "k": "z"}, {"id": 2, "x": 6, "k": "b"}, {"id": 3, "x": None, "k": "c"}
    )


def test_a_rename_that_is_not_certain(made: MirrorOf, writer: Writer) -> None:
    """Another list of columns looks the same: no value goes to another column."""
    begin(made, writer)
    listed = relation(1, ID, column("y", "int4"), K)
    writer.commit(build.update(1, build.row("1", "7", "a")))
    status = follow(made, writer, listed, build.insert(1, "3", "8", "c"))
    assert status["evolutions"] == ["add column y int", "drop column x, which is kept"]
    assert made.rows("public.t1") == rows(
        {"id": 1, "x": 7, "k": "a", "y": None},
        {"id": 2, "x": 6, "k": "b", "y": None},
        {"id": 3, "x": None, "k": "c", "y": 8},
    )


def test_a_renamed_key(made: MirrorOf, writer: Writer) -> None:
    """Its values are not in the target under the new name: updates would add rows."""
    begin(made, writer)
    new = relation(1, column("number", "int4", key=True), X, K)
    status = follow(made, writer, new, build.update(1, build.row("1", "7", "a")))
    assert status["state"] == "set aside"
    assert status["error"].startswith("column number of the replica identity is new: it is null")
    assert len(made.rows("public.t1")) == 2


def test_a_rename_in_the_middle_of_a_transaction(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    new = relation(1, ID, column("y", "int4"), K)
    writer.commit(build.update(1, build.row("2", "60", "b")))
    status = follow(
        made,
        writer,
        build.insert(1, "3", "8", "c"),
        new,
        build.insert(1, "4", "9", "d"),
        on_schema_change="rename",
    )
    assert status["state"] == "set aside"
    assert "column x of public.t1 was renamed in the transaction" in status["error"]
    assert made.rows("public.t1") == rows({"id": 1, "x": 5, "k": "a"}, {"id": 2, "x": 60, "k": "b"})


def test_another_table_with_the_name(made: MirrorOf, writer: Writer) -> None:
    """DROP TABLE, CREATE TABLE: rows and columns are those of the new one."""
    begin(made, writer)
    other = relation(9, column("uid", "uuid", key=True), column("x", "text"), name="t1")
    uid = "00000000-0000-0000-0000-000000000001"
    status = follow(made, writer, other, build.insert(9, uid, "text"))
    assert status["relation_oid"] == 9
    assert status["evolutions"] == ["replace relation 1 by 9"]
    assert made.rows("public.t1") == [{"uid": uid, "x": "text"}]
    follow(made, writer, other, build.insert(9, uid[:-1] + "2", "t"), build.truncate(9))
    assert made.rows("public.t1") == []
    follow(made, writer, other, build.insert(9, uid, "again"))
    assert made.rows("public.t1") == [{"uid": uid, "x": "again"}]


def test_another_table_with_the_name_fails(made: MirrorOf, writer: Writer) -> None:
    begin(made, writer)
    other = relation(9, ID, X, K, name="t1")
    status = follow(made, writer, other, build.insert(9, "7", "8", "c"), on_schema_change="fail")
    assert status["error"] == "relation 9 has the name public.t1 now, which relation 1 had"
    made.resume("public.t1")
    made.run(on_schema_change="freeze")
    assert made.rows("public.t1") == [{"id": 7, "x": 8, "k": "c"}]


def test_another_key_within_a_batch(made: MirrorOf, writer: Writer) -> None:
    """Old rows are found by the key that they were sent with."""
    begin(made, writer)
    by_x = relation(1, column("id", "int4"), column("x", "int4", key=True), K, identity="i")
    old = relation(1, ID, X, K)
    writer.commit(old, build.update(1, build.row("1", "50", "a")))
    writer.commit(by_x, build.update(1, build.row("10", "50", "a2")))
    writer.commit(
        build.update(1, build.row("2", "60", "b2"), key=build.row(None, "6", None)),
        build.insert(1, "3", "70", "c"),
    )
    whole = [column(name, kind, key=True) for name, kind in (("id", "int4"), ("x", "int4"))]
    full = relation(1, *whole, column("k", key=True), identity="f")
    status = follow(
        made,
        writer,
        full,
        build.update(1, build.row("3", "70", "d"), old=build.row("3", "70", "c")),
    )
    assert (status["state"], status["error"]) == ("ok", None)
    assert made.rows("public.t1") == rows(
        {"id": 10, "x": 50, "k": "a2"},
        {"id": 2, "x": 60, "k": "b2"},
        {"id": 3, "x": 70, "k": "d"},
    )
    assert status["complete_lsn"] == writer.lsn


def test_a_table_with_another_name_and_other_columns(made: MirrorOf, writer: Writer) -> None:
    """All its rows are in the target with the new name, which has all columns that it had."""
    begin(made, writer)
    less = relation(1, ID, K)
    follow(made, writer, less, build.insert(1, "3", "c"))
    before = made.rows("public.t1"), made.versions()["public.t1"]
    status = follow(made, writer, relation(1, ID, K, name="t9"), build.insert(1, "4", "d"))
    assert status["state"] == "gone"
    assert (made.rows("public.t1"), made.versions()["public.t1"]) == before
    assert made.rows("public.t9") == rows(
        {"id": 1, "x": 5, "k": "a"},
        {"id": 2, "x": 6, "k": "b"},
        {"id": 3, "x": None, "k": "c"},
        {"id": 4, "x": None, "k": "d"},
    )


def test_policies_by_table(made: MirrorOf, writer: Writer) -> None:
    """The first that matches counts; other tables have the usual one."""
    policies = {"public.t1": "freeze", "public.t[12]": "rename", "*": "fail"}
    options = {"on_schema_change": "evolve", "table_policies": policies}
    for oid in (1, 2, 3):
        writer.commit(relation(oid, ID, column("v"), column("n")), build.insert(oid, "1", "a", "b"))
    writer.flush()
    made.run(**options)
    for oid in (1, 2, 3):
        new = relation(oid, ID, column("w"), column("n"))
        writer.commit(new, build.insert(oid, "2", "c", "d"))
    writer.flush()
    made.run(**options)
    assert made.table("public.t1").column_names == ["id", "v", "n"]
    assert made.table("public.t2").column_names == ["id", "w", "n"]
    states = {table: row["state"] for table, row in made.status().items()}
    assert states == {"public.t1": "ok", "public.t2": "ok", "public.t3": "set aside"}
    with pytest.raises(OptionError, match=r"public\.t1 must be one of evolve, .*, not 'no'"):
        made.run(table_policies={"public.t1": "no"})
    with pytest.raises(TypeError, match="policies must be a mapping, not str"):
        made.run(table_policies="freeze")
