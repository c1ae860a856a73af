"""latest and merge_into leave the rows that a subscriber would have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.histories import KEYS, VALUES, History, Key, Row
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.servers import database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

SHELVES = 50


@pytest.fixture(scope="module")
def api() -> Any:
    return pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")


def history(seed: int, *, full: bool = False, truncate: bool = False) -> History:
    """Many small tables in one: key changes happen within a shelf only."""
    made = History(seed, full=full)
    for number in range(2):
        for shelf in range(SHELVES):
            made.transaction(shelf, made.random.randrange(1, 6))
        if truncate and number < 1:
            made.transaction(0, 1)
            made.truncate()
            made.change(0)
    return made


def to_df(spark: SparkSession, made: History, changes: list[Any] | None = None) -> DataFrame:
    rows = list(made.changes if changes is None else changes)
    Random(made.seed).shuffle(rows)
    return spark.createDataFrame(rows, made.schema)


def by_key(rows: list[Row]) -> dict[Key, Row]:
    found = {tuple(row[name] for name in KEYS): {n: row[n] for n in VALUES} for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize(
    ("full", "truncate"),
    [(False, False), (False, True), (True, True)],
    ids=["identity default", "identity default, truncate", "identity full, truncate"],
)
def test_latest_is_the_table(spark: SparkSession, api: Any, full: bool, truncate: bool) -> None:
    made = history(1, full=full, truncate=truncate)
    changes = to_df(spark, made)
    # A repeated change counts once.
    rows = api.latest(changes.union(changes.limit(500)), list(KEYS)).toArrow().to_pylist()
    assert by_key(rows) == made.expected()
    assert {row["_unchanged"] is None for row in rows} == {True}


def test_latest_says_what_it_cannot_know(spark: SparkSession, api: Any) -> None:
    """Of changes that begin in the middle, what was written before them is unknown, not NULL."""
    made = history(2)
    expected = made.expected()
    rows = (
        api.latest(to_df(spark, made, made.changes[len(made.changes) // 2 :]), list(KEYS))
        .toArrow()
        .to_pylist()
    )
    unknown = 0
    for row in rows:
        whole = expected[tuple(row[name] for name in KEYS)]
        for name in VALUES:
            if name in (row["_unchanged"] or ()):
                unknown += 1
                assert row[name] is None
            else:
                assert row[name] == whole[name]
    assert unknown > 10


def test_latest_tells_the_change_that_made_a_row(spark: SparkSession, api: Any) -> None:
    made = History(3)
    made.lsn = 7
    made.insert((1, 1))
    made.insert((1, 2))
    made.lsn = 9
    made.update((1, 2), (1, 3))
    rows = api.latest(to_df(spark, made), list(KEYS)).orderBy("id").toArrow().to_pylist()
    assert [(row["id"], row["_commit_lsn"], row["_seq"]) for row in rows] == [(1, 7, 0), (3, 9, 2)]
    assert rows[0]["_commit_time"].second == 7


def test_names_of_all_kinds(spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path) -> None:
    """Names with dots, quotes and blanks, of metadata columns, and a table of keys only."""
    names = ["a.b", "o'clock", 'say "x"', "tick`", "Größe", "_op", "key", "cells"]
    table = ", ".join(f"`{name.replace('`', '``')}` string" for name in names)
    schema = (
        f"{table}, __op string, _commit_lsn long, _seq long, _unchanged array<string>,"
        " _before struct<`a.b`: string>"
    )
    changes = spark.createDataFrame(
        [
            (*names, "I", 5, 0, None, None),
            ("moved", *names[1:3], None, *names[4:], "U", 6, 0, ["tick`"], ("a.b",)),
        ],
        schema,
    )
    expected = {name: name for name in names} | {"a.b": "moved"}
    (row,) = api.latest(changes, ["a.b"]).select("*").toArrow().to_pylist()
    assert {name: row[name] for name in names} == expected
    target = str(tmp_path / "t")
    first = merge_into(changes.where("_commit_lsn = 5"), target, ["a.b"])
    assert first == api.Merged(5, inserted=1)
    merge_into(changes, target, ["a.b"])
    assert merge_into.rows(target) == [expected]
    only_keys = spark.createDataFrame(
        [(1, "I", 5, 0, None, None), (2, "U", 5, 1, None, (1,))],
        "id int, _op string, _commit_lsn long, _seq long, _unchanged array<string>,"
        " _before struct<id: int>",
    )
    assert [row["id"] for row in api.latest(only_keys, ["id"]).collect()] == [2]


@pytest.mark.parametrize(
    ("full", "bucket_rows"),
    [(False, 10**6), (False, 100), (True, 10**6)],
    ids=["identity default", "identity default, many tasks", "identity full"],
)
def test_merged_batches_are_the_table(
    spark: SparkSession,
    merge_into: Any,
    api: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    full: bool,
    bucket_rows: int,
) -> None:
    """Batches cut between transactions, applied once and again: the rows, and nothing twice."""
    from pgwire_codec.spark.sinks import merge_tasks

    monkeypatch.setattr(merge_tasks, "BUCKET_ROWS", bucket_rows)
    made = History(4, full=full)
    target = str(tmp_path / "target")
    done = 0
    seen: list[list[Any]] = []
    for number in range(4):
        for shelf in range(SHELVES):
            made.transaction(shelf, made.random.randrange(1, 6))
        if number == 2:
            made.transaction(1, 1)
            made.truncate()
            made.change(2)
        batch, done = made.changes[done:], len(made.changes)
        merged = merge_into(to_df(spark, made, batch), target, list(KEYS))
        assert merged.commit_lsn == made.lsn
        assert by_key(merge_into.rows(target)) == made.expected()
        version = merge_into.version(target)
        seen.append(batch)
        again = to_df(spark, made, [*batch, *seen[0]])
        assert merge_into(again, target, list(KEYS)) == api.Merged(made.lsn)
        assert merge_into.version(target) == version
        # The next batch overlaps: what was applied is passed over.
        done -= 50


def test_streams_of_two_slots_do_not_hide_one_another(
    spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path
) -> None:
    one, two = History(5, lsn=10**6), History(6)
    one.insert((1, 1))
    two.insert((2, 2))
    target = str(tmp_path / "target")
    for made, slot in ((one, "one"), (two, "two")):
        merged = merge_into(to_df(spark, made), target, list(KEYS), app_id=slot)
        assert merged.inserted == 1
    assert by_key(merge_into.rows(target)) == one.expected() | two.expected()


def test_a_row_that_the_target_lacks(
    spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path
) -> None:
    """An update that leaves values as they were needs the row: NULL there would be wrong."""
    made = History(7)
    made.rows = {(1, 1): {"v": "v", "note": "long", "tags": ["long"]}}
    made.random = Random(1)
    while not made.changes or made.changes[-1][-2] is None:
        made.lsn += 1
        made.update((1, 1), (1, 1))
    target = str(tmp_path / "target")
    changes = to_df(spark, made, made.changes[-1:])
    with pytest.raises(ValueError, match=r"has no row shelf = 1, id = 1, which an update changed"):
        merge_into(changes, target, list(KEYS))
    assert merge_into.version(target) is None
    other = History(8)
    other.insert((1, 2))
    merge_into(to_df(spark, other), target, list(KEYS), app_id="other")
    with pytest.raises(ValueError, match=r"has no row shelf = 1, id = 1, which an update changed"):
        merge_into(changes, target, list(KEYS))
    assert by_key(merge_into.rows(target)) == other.expected()


def test_what_is_not_changes_is_refused(
    spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path
) -> None:
    made = History(9)
    made.insert((1, 1))
    changes = to_df(spark, made)
    with pytest.raises(ValueError, match=r"no column _op, _seq .* this one are shelf, id"):
        api.latest(changes.drop("_op", "_seq"), ["id"])
    with pytest.raises(
        ValueError, match="no key column nope — hint: Its columns are shelf, id, v, note, tags"
    ):
        api.latest(changes, ["nope"])
    with pytest.raises(ValueError, match="key column v is not in the table's replica identity"):
        api.latest(changes, ["v"])
    with pytest.raises(TypeError, match="changes must be a Spark DataFrame, not NoneType"):
        api.latest(None, ["id"])
    with pytest.raises(ValueError, match="keys must be a list of at least one column, or None"):
        api.latest(changes, "id")
    target = str(tmp_path / "target")
    merge_into(changes.drop("note"), target, list(KEYS))
    made.lsn += 1
    made.insert((1, 2))
    with pytest.raises(ValueError, match=r"has no column note .* are shelf, id, v, tags"):
        merge_into(to_df(spark, made), target, list(KEYS))


def test_targets_of_other_kinds(spark: SparkSession, api: Any, tmp_path: Path) -> None:
    made = History(12)
    made.insert((1, 1))
    changes, keys = to_df(spark, made), list(KEYS)
    for target in (f"parquet:{tmp_path / 'target'}", "hudi:somewhere", "delta:"):
        with pytest.raises(ValueError, match=f"unsupported target {target!r} — hint: Use delta:L"):
            api.merge_into(changes, target, keys)
    with pytest.raises(ValueError, match="storage_options are for Delta tables"):
        api.merge_into(changes, "iceberg:lake.made.t", keys, storage_options={"a": "b"})
    assert not list(tmp_path.iterdir())


def test_updates_without_before(spark: SparkSession, api: Any) -> None:
    """Inserts need no old tuple; an update without one could be a change of the key."""
    made = History(10)
    made.insert((1, 1))
    made.insert((1, 2))
    assert api.latest(to_df(spark, made).drop("_before"), list(KEYS)).count() == 2
    made.update((1, 1), (1, 1))
    with pytest.raises(Exception, match="update without _before"):
        api.latest(to_df(spark, made).drop("_before"), list(KEYS)).collect()


def test_names_that_differ_in_case(
    spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path
) -> None:
    """Spark takes two such columns for one, unless they are named by their place."""
    schema = (
        "id int, a string, A string, _OP string, _op string, _commit_lsn long, _seq long,"
        " _unchanged array<string>, _before struct<id: int, a: string, A: string>"
    )
    changes = spark.createDataFrame(
        [
            (1, "a1", "A1", "x", "I", 5, 0, None, None),
            (2, None, "A2", "y", "U", 6, 0, ["a"], (1, "a1", "A1")),
        ],
        schema,
    )
    expected = [{"id": 2, "a": "a1", "A": "A2", "_OP": "y"}]
    columns = ["id", "a", "A", "_OP"]
    latest = api.latest(changes, ["id"]).toArrow()
    assert latest.select(columns).to_pylist() == expected
    with pytest.raises(ValueError, match="columns a, A differ in case only"):
        merge_into(changes, str(tmp_path / "target"), ["id"])


@pytest.mark.parametrize("columns", [200, pytest.param(1600, marks=pytest.mark.thorough)])
def test_a_table_of_many_columns(spark: SparkSession, api: Any, columns: int) -> None:
    """Up to as many as PostgreSQL allows: a plan that repeats expressions would never be made."""
    values = [f"c{number}" for number in range(1, columns)]
    schema = (
        f"id int, {', '.join(f'{name} int' for name in values)}, _op string, _commit_lsn long,"
        " _seq long, _unchanged array<string>, _before struct<id: int>"
    )
    one = list(range(columns))
    two = [-1, *(None if number % 2 else -number for number in range(1, columns))]
    odd = [name for number, name in enumerate(values, start=1) if number % 2]
    changes = spark.createDataFrame(
        [(*one, "I", 5, 0, None, None), (*two, "U", 6, 0, odd, (0,))], schema
    )
    latest = api.latest(changes, ["id"])
    [row] = latest.collect()
    assert list(row[:columns]) == [-1, *(n if n % 2 else -n for n in range(1, columns))]
    assert row["_unchanged"] is None


@pytest.fixture(scope="module")
def shop_log(api: Any, pg18: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The demo shop's changes; the shop is still on the server."""
    from pgwire_codec.demo import shop, steps, workload

    folder = tmp_path_factory.mktemp("shop") / "log"
    shop.create(pg18.dsn, drop_existing=True)
    steps.capture_until_now(pg18.dsn, folder)
    workload.run(pg18.dsn)
    steps.capture_until_now(pg18.dsn, folder)
    yield str(folder)
    shop.drop(pg18.dsn)


@pytest.mark.parametrize("table", ["customers", "order_lines", "prices", "carts"])
def test_a_servers_tables(
    spark: SparkSession,
    merge_into: Any,
    api: Any,
    pg18: Any,
    shop_log: str,
    tmp_path: Path,
    table: str,
) -> None:
    """TOAST, keys of two columns, REPLICA IDENTITY FULL, truncates: what a real server sends."""
    from pgwire_codec.demo import shop
    from tests.support import shop_rows
    from tests.support.keyed_rows import AppliedTable, differences

    key = shop.KEYS[table]
    server = shop_rows.typed_rows(pg18.dsn, table)
    source = spark.read.format("pgoutput").option("table", f"{shop.SCHEMA}.{table}")

    def compare(rows: list[Row]) -> None:
        found = {tuple(row[name] for name in key): row for row in rows}
        assert len(found) == len(rows)
        assert differences(AppliedTable(key, found), server) == []

    changes = source.load(shop_log).persist()
    left = api.latest(changes, key)
    table_columns = [name for name in left.columns if not name.startswith("_")]
    compare(left.select(table_columns).toArrow().to_pylist())
    lsns = sorted(row[0] for row in changes.select("_commit_lsn").distinct().collect())
    middle = lsns[len(lsns) // 2]
    for batch in (changes.where(f"_commit_lsn <= {middle}"), changes):
        merge_into(batch, str(tmp_path / table), key)
    changes.unpersist()
    compare(merge_into.rows(str(tmp_path / table)))


#: Types, and random values of them.
WIDE = {
    "boolean": "random() < 0.5",
    "smallint": "(random() * 30000)::smallint",
    "integer": "(random() * 1e9)::int",
    "bigint": "(random() * 1e15)::bigint",
    "real": "random()::real",
    "double precision": "random() - 0.5",
    "numeric(12, 3)": "(random() * 1e6)::numeric(12, 3)",
    "numeric": "(random() * 1e6)::numeric",
    "text": "repeat(md5(random()::text), 150)",  # of a size for TOAST
    "varchar(40)": "md5(random()::text)",
    "char(9)": "left(md5(random()::text), 7)",
    "bytea": "decode(md5(random()::text), 'hex')",
    "uuid": "gen_random_uuid()",
    "date": "date '2024-01-01' + (random() * 1000)::int",
    "timestamp": "timestamp '2024-01-01' + random() * interval '900 days'",
    "timestamptz": "timestamptz '2024-01-01Z' + random() * interval '900 days'",
    "time": "time '00:00' + random() * interval '23 hours'",
    "interval": "random() * interval '90 days'",
    "json": "json_build_object('a', random())",
    "jsonb": "jsonb_build_object('a', repeat(md5(random()::text), 150))",
    "integer[]": "ARRAY[(random() * 9)::int, NULL, (random() * 9)::int]",
    "text[]": "ARRAY[repeat(md5(random()::text), 150), NULL]",
    "inet": "('10.0.0.' || (random() * 250)::int)::inet",
    "int4range": "int4range((random() * 9)::int, 10)",
    "oid": "(random() * 4e9)::bigint::oid",
    "money": "(random() * 1000)::numeric::money",
}
COLUMNS = {f"c{number}": kind for number, kind in enumerate([*WIDE, *WIDE, *WIDE][:77], start=1)}


def wide_statements(chance: Random) -> Iterator[str]:
    """Transactions that insert, update some of the columns, change keys and delete."""

    def value(name: str) -> str:
        return f"CASE WHEN random() < 0.8 THEN {WIDE[COLUMNS[name]]} END"

    yield "SELECT setseed(0.5)"
    every = ", ".join(map(value, COLUMNS))
    yield f"INSERT INTO wide SELECT g, {every} FROM generate_series(1, 60) AS g"
    for turn in range(12):
        some = chance.sample(list(COLUMNS), chance.randrange(1, 9))
        changed = ", ".join(f"{name} = {value(name)}" for name in some)
        yield f"UPDATE wide SET {changed} WHERE id % 3 = {turn % 3}"
        yield f"UPDATE wide SET id = id + {10_000 << turn}, {changed} WHERE id % 7 = {turn % 7}"
        yield f"DELETE FROM wide WHERE id % 41 = {turn}"
        first = 100 * (turn + 1)
        yield f"INSERT INTO wide SELECT g, {every} FROM generate_series({first}, {first + 5}) AS g"


def as_multiset(table: Any) -> Counter[str]:
    """Rows, with all digits."""
    return Counter(map(repr, table.to_pylist()))


def test_a_servers_table_of_78_columns(
    spark: SparkSession, merge_into: Any, api: Any, pg18: Any, tmp_path: Path
) -> None:
    """Types of all kinds; a snapshot of the table in the end is the truth."""
    source = spark.read.format("pgoutput").option("table", "public.wide")
    with database(pg18) as made:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        large = ", ".join(
            f"ALTER {name} SET STORAGE EXTERNAL"
            for name, kind in COLUMNS.items()
            if kind in ("text", "jsonb", "text[]")
        )
        made.execute(
            f"CREATE TABLE wide (id int PRIMARY KEY, {columns})",
            f"ALTER TABLE wide {large}",
            "CREATE PUBLICATION p FOR TABLE wide",
        )
        made.create_slot()
        made.execute(*wide_statements(Random(1)))
        capture_into(made, tmp_path / "log").run(until_lsn=flush_lsn(made))
        capture_into(
            made, tmp_path / "truth", slot=f"{made.slot}_2", create_slot=True, snapshot=True
        ).run(until_lsn=flush_lsn(made))
    names = ["id", *COLUMNS]
    expected = as_multiset(source.load(str(tmp_path / "truth")).select(names).toArrow())
    changes = source.load(str(tmp_path / "log")).persist()
    assert changes.where("size(_unchanged) > 0 AND _before IS NOT NULL").count() > 50
    left = api.latest(changes, ["id"])
    assert left.where("_unchanged IS NOT NULL").count() == 0
    assert as_multiset(left.select(names).toArrow()) == expected
    lsns = sorted(row[0] for row in changes.select("_commit_lsn").distinct().collect())
    for batch in (changes.where(f"_commit_lsn <= {lsns[len(lsns) // 2]}"), changes):
        merge_into(batch, str(tmp_path / "target"), ["id"])
    changes.unpersist()
    schema = left.select(names).toArrow().schema
    merged = merge_into.table(str(tmp_path / "target"))
    assert as_multiset(merged.select(names).cast(schema)) == expected
