"""Histories: a row for each change, as format("pgoutput") has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.errors import OptionError
from tests.support import build
from tests.support.build import column
from tests.support.lakehouse import usable_format
from tests.support.mirrors import ID, MirrorOf, Row, Writer, in_order, relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

pytest.importorskip("deltalake")

TABLE = relation(1, ID, column("name"), column("big"))
# The server flags all columns of such a table.
BAG = relation(2, column("a", key=True), column("b", key=True), identity="f")
NEITHER = relation(3, column("a"), identity="n")


@pytest.fixture(params=["local", "delta", "iceberg", "parquet"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each runner and format of a mirror that writes histories."""
    return usable_format(request.param)


def key(text: str) -> Any:
    return build.row(text, None, None)


CHANGES = [
    [
        TABLE, BAG, NEITHER,
        *(build.insert(1, str(n), f"name {n}", f"big {n}") for n in range(1, 4)),
        build.insert(2, "x", "y"), build.insert(2, "x", "y"), build.insert(3, "x"),
    ],
    [
        build.update(1, build.row("1", "new 1", ...)),
        build.update(1, build.row("20", "moved", ...), key=key("2")),
        build.delete(1, key=key("20")),
        build.update(2, build.row("x", "z"), old=build.row("x", "y")),
        build.delete(2, old=build.row("x", "y")),
        build.insert(3, "x"),
    ],
    [build.truncate(1, 2), build.insert(1, "1", None, "again")],
]  # fmt: skip


KINDS = {"I": "insert", "U": "update_postimage", "D": "delete", "T": "truncate"}


def feed(spark: SparkSession, made: MirrorOf, *, oid: int) -> list[Row]:
    """Changes of a relation as the source has them, in the form of a history."""
    reader = spark.read.format("pgoutput").option("path", made.log)
    rows = reader.options(relationOid=str(oid), before="full").load().toArrow()
    images = []
    for row in rows.to_pylist():
        position = {name: row[name] for name in ("_commit_lsn", "_commit_time", "_seq")}
        if row["_op"] == "U" and row.get("_before") is not None:
            before = {"_change": "update_preimage", "_unchanged": None}
            images.append(row["_before"] | before | position)
        after = {"_change": KINDS[row["_op"]], "_unchanged": row["_unchanged"]}
        values = {name: value for name, value in row.items() if not name.startswith("_")}
        images.append(values | after | position)
    return in_order(images)


@pytest.mark.parametrize("in_steps", [True, False], ids=["in steps", "at once"])
def test_all_changes(spark: SparkSession, made: MirrorOf, writer: Writer, in_steps: bool) -> None:
    for inside in CHANGES:
        writer.commit(*inside)
        if in_steps:
            writer.flush()
            made.run(history=True)
    writer.flush()
    made.run(history=True)
    rows = {oid: made.rows(f"public.t{oid}") for oid in (1, 2, 3)}
    assert rows == {oid: feed(spark, made, oid=oid) for oid in (1, 2, 3)}
    assert [len(each) for each in rows.values()] == [9, 6, 2]
    commits = made.commits()
    made.run(history=True)
    assert made.commits() == commits
    assert {each["state"] for each in made.status().values()} == {"ok"}


def test_other_columns(spark: SparkSession, made: MirrorOf, writer: Writer) -> None:
    """Rows keep the values of a dropped column, also if a new one has its name."""
    writer.commit(TABLE, build.insert(1, "1", "a", "b"))
    writer.flush()
    made.run(history=True)
    writer.commit(relation(1, ID, column("big")), build.insert(1, "2", "b"))
    writer.commit(relation(1, ID, column("big"), column("name"), column("new")),
                  build.insert(1, "3", "b", "c", "d"), build.delete(1, key=key("1")))  # fmt: skip
    writer.flush()
    made.run(history=True)
    assert [(row["id"], row["name"], row["big"], row["new"]) for row in ordered(made)] == [
        (1, "a", "b", None), (2, None, "b", None), (3, "c", "b", "d"), (1, None, None, None),
    ]  # fmt: skip


def test_another_relation(made: MirrorOf, writer: Writer) -> None:
    """Its changes follow from the commit on that the history has, and the others remain."""
    writer.commit(TABLE, build.insert(1, "1", "a", "b"))
    writer.commit(relation(4, ID, column("name"), name="new"), build.insert(4, "2", "before"))
    writer.flush()
    made.run(history=True)
    writer.commit(relation(1, ID, column("name"), column("big"), name="old"),
                  relation(4, ID, column("name"), name="t1"),
                  build.insert(4, "3", "after"))  # fmt: skip
    writer.flush()
    made.run(history=True)
    assert [(row["id"], row["name"]) for row in ordered(made)] == [(1, "a"), (3, "after")]
    assert [(row["id"], row["name"]) for row in ordered(made, "public.new")] == [(2, "before")]


def ordered(made: MirrorOf, table: str = "public.t1") -> list[Row]:
    return sorted(made.rows(table), key=lambda row: (row["_commit_lsn"], row["_seq"]))


def test_masks(made: MirrorOf, writer: Writer) -> None:
    writer.commit(
        BAG,
        build.insert(2, "x", "SECRET"),
        build.update(2, build.row("x", "SECRET 2"), old=build.row("x", "SECRET")),
    )
    writer.flush()
    made.run(history=True, masks={"*.b": "constant:-"})
    rows = made.rows("public.t2")
    assert [row["b"] for row in rows] == ["-"] * 3
    assert {row["_change"] for row in rows} == {"insert", "update_preimage", "update_postimage"}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_target_of_the_other_form(made: MirrorOf, writer: Writer, is_first: bool) -> None:
    if made.engine == "parquet":
        pytest.skip("has no other form")
    writer.commit(TABLE, build.insert(1, "1", "a", "b"))
    writer.flush()
    made.run(history=is_first)
    rows = made.rows("public.t1")
    writer.commit(build.insert(1, "2", "a", "b"))
    writer.flush()
    made.run(history=not is_first)
    status = made.status()["public.t1"]
    assert status["state"] == "set aside"
    assert status["error"].startswith("the target of public.t1 has ")
    assert made.rows("public.t1") == rows


def test_a_resumed_table_lacks_nothing(spark: SparkSession, made: MirrorOf, writer: Writer) -> None:
    """A later truncate does not end what is to be applied, as it does for rows."""
    writer.commit(TABLE, build.insert(1, "1", "a", "b"))
    writer.flush()
    made.run(history=True)
    writer.commit(relation(1, ID, column("name"), column("big"), column("new")),
                  build.insert(1, "2", "a", "b", "c"))  # fmt: skip
    writer.commit(build.truncate(1), build.insert(1, "3", "a", "b", "c"))
    writer.flush()
    made.run(history=True, on_schema_change="fail")
    assert made.status()["public.t1"]["state"] == "set aside"
    made.resume("public.t1")
    made.run(history=True)
    assert made.rows("public.t1") == feed(spark, made, oid=1)


def test_options_that_exclude_one_another() -> None:
    from pgwire_codec.lake.row_columns import RowColumns

    with pytest.raises(OptionError, match="a history excludes soft deletes"):
        RowColumns(commits=True, is_history=True)
