"""Tables without a key: rows are counted, as the server would leave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pgwire_codec import spark as api
from pgwire_codec.lake.row_counts import count_rows
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.servers import database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[int, int, str | None, bool]  # hash, place, value, removed


def random_changes(chance: Random) -> tuple[list[Change], list[tuple[str | None, int]]]:
    """Changes of equal rows, and the rows that they leave, with the places of their changes.

    Some rows are removed that nothing added. Hashes collide.
    """
    hashes = {"a": 1, "b": 1, "c": 2, None: 2, "": 3}
    stacks: dict[str | None, list[int]] = {value: [] for value in hashes}
    changes = []
    for place in range(chance.randrange(1, 60)):
        value, removed = chance.choice(list(hashes)), chance.random() < 0.5
        changes.append((hashes[value], place, value, removed))
        if not removed:
            stacks[value].append(place)
        elif stacks[value]:
            stacks[value].pop()
    left = [(value, place) for value, places in stacks.items() for place in places]
    return changes, left


def batches(changes: list[Change], chance: Random) -> Iterator[pa.RecordBatch]:
    """The changes as Spark sorts them, in batches of any size."""
    ordered = sorted(changes, key=lambda each: (each[0], each[2] or "~", -each[1], each[3]))
    start = 0
    while start < len(ordered):
        some = ordered[start : start + chance.choice((1, 2, 3, 20))]
        hashes, places, values, removed = zip(*some, strict=True)
        yield pa.RecordBatch.from_pydict(
            {
                "row_hash": pa.array(hashes, pa.int64()),
                "c0": pa.array(values, pa.string()),
                "_commit_lsn": pa.array(places, pa.int64()),
                "_seq": pa.array(places, pa.int64()),
                "removed": pa.array(removed),
            }
        )
        start += len(some)


@pytest.mark.parametrize("seed", range(300))
def test_the_newest_of_equal_rows_is_removed(seed: int) -> None:
    chance = Random(seed)
    changes, expected = random_changes(chance)
    stored = [*changes, *chance.sample(changes, len(changes) // 2)]  # some of them twice
    names = ["c0", "_commit_lsn", "_seq"]
    rows = [
        row
        for batch in count_rows(batches(stored, chance), ["c0"], names)
        for row in batch.to_pylist()
    ]
    left = [(row["c0"], row["_seq"]) for row in rows if not row["removed"]]
    assert sorted(left, key=repr) == sorted(expected, key=repr)
    balance = Counter(row["c0"] for row in rows if not row["removed"])
    balance.subtract({row["c0"]: row["count"] for row in rows if row["removed"]})
    plain = Counter(value for _, _, value, removed in changes if not removed)
    plain.subtract(value for _, _, value, removed in changes if removed)
    assert {k: n for k, n in balance.items() if n} == {k: n for k, n in plain.items() if n}


BEFORE = ", _before struct<a: double, b: string>"
SCHEMA = (
    "a double, b string, _op string, _commit_lsn long, _seq long, _unchanged array<string>" + BEFORE
)


def left(spark: SparkSession, *changes: tuple[Any, ...], schema: str = SCHEMA) -> list[str]:
    """Rows and the LSNs of their changes, of ``(a, b, op, unchanged, before)``."""
    rows = [(*c[:3], lsn, 0, *c[3:]) for lsn, c in enumerate(changes, start=1)]
    found = api.latest(spark.createDataFrame(rows, schema), None).collect()
    assert {row["_unchanged"] for row in found} <= {None}
    return sorted(f"{row['a']} {row['b']} {row['_commit_lsn']}" for row in found)


@pytest.mark.slow
def test_rows_are_counted(spark: SparkSession) -> None:
    insert = (7.0, "dup", "I", None, None)
    delete = (7.0, "dup", "D", None, None)
    assert left(spark, insert, insert, insert, delete) == ["7.0 dup 1", "7.0 dup 2"]
    assert left(spark, delete, insert) == ["7.0 dup 2"]  # the removed row was there before
    assert left(spark, insert, (None, None, "T", None, None), insert) == ["7.0 dup 3"]
    # An update that changes nothing is the row's last change all the same.
    update = (7.0, "dup", "U", None, (7.0, "dup"))
    assert left(spark, insert, update) == ["7.0 dup 2"]
    toast = (8.0, None, "U", ["b"], (7.0, "dup"))
    assert left(spark, insert, insert, toast) == ["7.0 dup 1", "8.0 dup 3"]


@pytest.mark.slow
def test_values_are_compared_as_they_were_sent(spark: SparkSession) -> None:
    nan = float("nan")
    assert left(
        spark,
        (-0.0, None, "I", None, None),
        (0.0, None, "I", None, None),
        (nan, "", "I", None, None),
        (nan, None, "I", None, None),
        (-0.0, None, "D", None, None),
        (nan, None, "D", None, None),
    ) == ["0.0 None 2", "nan  3"]


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", ", _before struct<a: double>", BEFORE])
def test_an_old_row_that_is_not_whole(spark: SparkSession, before: str) -> None:
    """Inserts need none; an update without one cannot be applied."""
    schema = SCHEMA.removesuffix(BEFORE) + before
    old = [None] if before else []
    insert = (7.0, "dup", "I", None, *old)
    assert left(spark, insert, insert, schema=schema) == ["7.0 dup 1", "7.0 dup 2"]
    update = (8.0, "dup", "U", None, *old)
    with pytest.raises(Exception, match=r"without the whole old row .* Set REPLICA IDENTITY FULL"):
        left(spark, insert, update, schema=schema)


#: Few values, so that many rows are equal.
VALUES = {
    "i": "(random() < 0.5)::int",
    "f": "(ARRAY['NaN', '0', '-0', NULL])[1 + floor(random() * 4)::int]::float8",
    "n": "(ARRAY['1.0', '1.00', 'NaN', NULL])[1 + floor(random() * 4)::int]::numeric",
    "g": "(ARRAY['{0}', '{-0}', '{NULL}', '{}'])[1 + floor(random() * 4)::int]::float8[]",
    "large": "repeat((ARRAY['x', 'y', NULL])[1 + floor(random() * 3)::int], 3000)",
}

#: Each makes one change, if the table has rows.
ACTIONS = {
    "insert": f"INSERT INTO t SELECT {', '.join(VALUES.values())};",
    "delete": "DELETE FROM t WHERE ctid = (SELECT ctid FROM t ORDER BY random() LIMIT 1);",
    "truncate": "TRUNCATE t;",
} | {
    name: f"UPDATE t SET {name} = {value}"
    " WHERE ctid = (SELECT ctid FROM t ORDER BY random() LIMIT 1);"
    for name, value in VALUES.items()
}


def transactions(chance: Random, changes: int) -> Iterator[str]:
    """Transactions of up to 400 changes, of which some roll back a savepoint."""
    yield "SELECT setseed(0.5)"
    made = 0
    while made < changes:
        count = chance.randrange(1, 400)
        weights = [40, 24, 0.05, *[10] * len(VALUES)]
        body = "\n".join(chance.choices([*ACTIONS.values()], weights, k=count))
        undone = f"BEGIN {ACTIONS['insert']} {ACTIONS['delete']} RAISE 'no'; EXCEPTION WHEN OTHERS"
        yield f"DO $$ BEGIN {body} {undone} THEN NULL; END; END $$"
        made += count


def as_multiset(rows: pa.Table) -> Counter[str]:
    """The table's rows, with all digits."""
    return Counter(map(repr, rows.select(list(VALUES)).to_pylist()))


@pytest.mark.slow
def test_equal_rows_of_a_target(spark: SparkSession, merge_into: Any, tmp_path: Path) -> None:
    """As many of them are deleted as the changes remove."""
    target = str(tmp_path / "target")

    def merge(lsn: int, *changes: tuple[Any, ...]) -> tuple[int, int]:
        rows = [(*c[:3], lsn, seq, *c[3:]) for seq, c in enumerate(changes)]
        merged = merge_into(spark.createDataFrame(rows, SCHEMA), target, None)
        return merged.inserted, merged.deleted

    def rows() -> list[tuple[Any, ...]]:
        found = merge_into.rows(target)
        return sorted(((row["a"], row["b"]) for row in found), key=repr)

    one, zero = (7.0, "dup", "I", None, None), (-0.0, None, "I", None, None)
    delete = (7.0, "dup", "D", None, None)
    with pytest.raises(
        ValueError, match=r"has 0 rows with a = 7.0, b = 'dup', of which .* remove 1"
    ):
        merge(1, delete)
    assert merge_into.version(target) is None
    assert merge(2, one, one, one, zero, (0.0, None, "I", None, None)) == (5, 0)
    assert merge(3, delete) == (0, 1)
    assert merge(4, (-0.0, None, "D", None, None)) == (0, 1)
    assert rows() == [(0.0, None), (7.0, "dup"), (7.0, "dup")]
    assert repr(rows()[0][0]) == "0.0"
    # One of two is removed, and as many are added.
    assert merge(5, delete, one, (8.0, None, "U", ["b"], (7.0, "dup")), one) == (2, 1)
    assert rows() == [(0.0, None), (7.0, "dup"), (7.0, "dup"), (8.0, "dup")]
    with pytest.raises(
        ValueError, match=r"has 2 rows with a = 7.0, b = 'dup', of which .* remove 3"
    ):
        merge(6, delete, delete, delete)
    assert merge(7, (None, None, "T", None, None), zero) == (1, 4)
    assert [repr(row) for row in rows()] == ["(-0.0, None)"]


@pytest.mark.slow
def test_a_servers_table(spark: SparkSession, merge_into: Any, pg18: Any, tmp_path: Path) -> None:
    """10,000 changes of equal rows with large values; a snapshot in the end is the truth."""
    source = spark.read.format("pgoutput").option("table", "public.t")
    with database(pg18) as made:
        made.execute(
            "CREATE TABLE t (i int, f float8, n numeric, g float8[], large text)",
            "ALTER TABLE t ALTER large SET STORAGE EXTERNAL, REPLICA IDENTITY FULL",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        made.create_slot()
        made.execute(*transactions(Random(1), 10_000))
        capture_into(made, tmp_path / "log").run(until_lsn=flush_lsn(made))
        capture_into(
            made, tmp_path / "truth", slot=f"{made.slot}_2", create_slot=True, snapshot=True
        ).run(until_lsn=flush_lsn(made))
    expected = as_multiset(source.load(str(tmp_path / "truth")).toArrow())
    changes = source.load(str(tmp_path / "log")).persist()
    counts = {row["_op"]: row["count"] for row in changes.groupBy("_op").count().collect()}
    assert counts["T"] >= 1
    assert sum(counts.values()) > 9_000
    assert changes.where("size(_unchanged) > 0").count() > 500
    assert sum(expected.values()) > len(expected) + 20
    assert as_multiset(api.latest(changes, None).toArrow()) == expected
    # A repeated change counts once.
    again = changes.union(changes.where("_seq % 3 = 0"))
    assert as_multiset(api.latest(again, None).toArrow()) == expected
    lsns = sorted(row[0] for row in changes.select("_commit_lsn").distinct().collect())
    target = str(tmp_path / "target")
    for part in (4, 2, 1):
        batch = changes.where(f"_commit_lsn <= {lsns[len(lsns) // part - 1]}")
        expected_then = as_multiset(api.latest(batch, None).toArrow())
        merged = merge_into(batch, target, None)
        schema = batch.select(*VALUES).toArrow().schema
        assert as_multiset(merge_into.table(target).cast(schema)) == expected_then
        assert merge_into(batch, target, None) == api.Merged(merged.commit_lsn)
    changes.unpersist()
