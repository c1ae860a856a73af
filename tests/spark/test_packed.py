"""Packed rows of many tables have the rows of each table by itself; without a Spark session."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import TableError
from tests.support import build, corpus, spark_logs
from tests.support.build import column
from tests.support.spark_logs import Row

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pyspark.sql.datasource import CaseInsensitiveDict

from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.spark import PgoutputDataSource
from pgwire_codec.spark.formats import packed
from pgwire_codec.spark.tables import LogTables

ID = column("id", "int4", key=True)


def source(path: str, **options: str) -> PgoutputDataSource:
    return PgoutputDataSource(CaseInsensitiveDict({"path": path} | options))


def packed_rows(reader: Any, partitions: Any) -> list[pa.RecordBatch]:
    """The rows as tasks read them."""
    reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))
    batches = [batch for each in partitions for batch in reader.read(each)]
    assert all(batch.schema.equals(packed.PACKED) for batch in batches)
    return batches


def unpacked(batches: list[pa.RecordBatch]) -> dict[str, pa.Table]:
    """The rows of each table, in order."""
    found: dict[str, list[pa.RecordBatch]] = {}
    schemas: dict[str, pa.Schema] = {}
    for batch in batches:
        for place, row in enumerate(batch.to_pylist()):
            name = row["relation"]
            schema = pa.ipc.read_schema(pa.py_buffer(row["schema"]))
            assert schemas.setdefault(name, schema).equals(schema)
            assert row["bytes"] == len(row["data"])
            records = list(packed.unpack([batch.slice(place, 1)], schema))
            assert sum(map(len, records)) == row["rows"]
            found.setdefault(name, []).extend(records)
    return {name: pa.Table.from_batches(each, schemas[name]) for name, each in found.items()}


def read_packed(path: str, tables: str = "*", **options: str) -> dict[str, pa.Table]:
    made = source(path, tables=tables, **options)
    reader = made.reader(made.schema())
    return unpacked(packed_rows(reader, reader.partitions()))


def read_table(path: str, table: str, **options: str) -> pa.Table:
    made = source(path, table=table, **options)
    reader = made.reader(made.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    assert isinstance(reader._rows.schema, pa.Schema)
    return pa.Table.from_batches(batches, reader._rows.schema)


def place_of(row: Row) -> tuple[int, int]:
    """Return the place of a row of any style in the order of the table's changes."""
    if "source" in row:
        return row["source"]["commit_lsn"], row["source"]["seq"]
    return row.get("_commit_lsn", row.get("_commit_version")), row["_seq"]


def in_order(rows: pa.Table) -> list[str]:
    """Return columns in order as texts, which have all dates and are equal for NaN."""
    names = {"source", "_commit_lsn", "_commit_version", "_seq"} & set(rows.column_names)
    places = list(map(place_of, rows.select(sorted(names)).to_pylist()))
    order = sorted(range(len(places)), key=places.__getitem__)
    taken = rows.take(pa.array(order, pa.int64())).combine_chunks()
    return [column.to_string(window=len(rows) + 1) for column in taken.columns]


CAPTURES = [
    "dml.pg18.v1-text",
    "traps.pg18.v2-stream",
    pytest.param("streams.pg18.v4-parallel-2pc", marks=pytest.mark.slow),
    pytest.param("types.pg18.v1-binary", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", CAPTURES)
def test_each_table_has_its_rows(name: str, tmp_path: Path) -> None:
    """Of all parts, in the schema that the option table has, in one pass."""
    path = spark_logs.to_log(corpus.capture(name), tmp_path, part_bytes=8 << 10)
    options = {"unrepresentable": "null", "maxPartitionBytes": "20k"}
    found = read_packed(path, **options)
    assert set(found) == {each.name for each in log.Log(path).relations if each.is_current}
    for table, rows in found.items():
        alone = read_table(path, table, **options)
        assert rows.schema.equals(alone.schema)
        assert in_order(rows) == in_order(alone), table


@pytest.mark.parametrize("style", ["native", "debezium", "delta"])
def test_options_of_rows(style: str, tmp_path: Path) -> None:
    path = spark_logs.to_log(corpus.capture("dml.pg18.v1-text"), tmp_path, part_bytes=8 << 10)
    options = {"types": "text", "style": style}
    if style == "native":
        options |= {"before": "full", "withRelationOid": "true"}
    for table, rows in read_packed(path, **options).items():
        alone = read_table(path, table, **options)
        assert rows.schema.equals(alone.schema)
        found, expected = (sorted(each.to_pylist(), key=place_of) for each in (rows, alone))
        assert found == expected, table


def table(oid: int, name: str, lsn: int, *columns: pgc.RelationColumn, rows: int = 1) -> list[Any]:
    """A transaction that inserts rows of its LSN into a table that has this name."""
    values = [str(lsn), *["1"] * len(columns)]
    relation = build.relation(oid, ID, *columns, name=name)
    return build.transaction(relation, *[build.insert(oid, *values)] * rows, lsn=lsn)


@pytest.fixture
def path(tmp_path: Path) -> str:
    changes = [*table(1, "a", 10), *table(2, "b", 20, column("v")), *table(3, "other", 30)]
    return spark_logs.write(tmp_path / "log", build.wire(changes))


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ("*", {"public.a", "public.b", "public.other"}),
        ("public.?", {"public.a", "public.b"}),
        ("public.[b-z]*", {"public.b", "public.other"}),
        ("public.b, public.o*,public.other", {"public.b", "public.other"}),
        ("public.a", {"public.a"}),
    ],
)
def test_names_and_patterns(path: str, tables: str, names: set[str]) -> None:
    assert {name: len(rows) for name, rows in read_packed(path, tables).items()} == dict.fromkeys(
        names, 1
    )


def test_a_pattern_matches_whole_names() -> None:
    names = TableNames.parse(["public.*", "a+b.c"])
    assert names.exact == ("a+b.c",)
    (pattern,) = names.patterns
    assert pattern.match("public.x")
    assert not pattern.match("publicxx")
    assert not pattern.match("x.public.x")


def test_names_without_a_relation(path: str) -> None:
    with pytest.raises(ValueError, match=r"no table 'public\.nope' — hint: Their tables: pub"):
        read_packed(path, "public.*,public.nope")
    hint = re.escape("no table matches publik.*, x? — hint: The log's tables: public.a, public.b")
    with pytest.raises(ValueError, match=hint):
        read_packed(path, "publik.*,x?")


def test_a_table_without_changes_in_the_range(path: str) -> None:
    found = read_packed(path, startingLsn="10", endingLsn="20")
    assert {name: len(rows) for name, rows in found.items()} == {"public.a": 0, "public.b": 1}
    assert found["public.a"].schema.equals(read_table(path, "public.a").schema)


def test_the_size_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large run is cut, small ones of a table are combined."""
    changes = [change for lsn in range(1, 41) for change in table(1 + lsn % 2, f"t{lsn % 2}", lsn)]
    changes += table(3, "big", 50, column("v"), rows=200)
    path = spark_logs.write(tmp_path / "log", build.wire(changes), part_bytes=1 << 20, flushes=20)
    made = source(path, tables="*")
    reader = made.reader(made.schema())
    counts = [
        row["rows"]
        for batch in packed_rows(reader, reader.partitions())
        for row in batch.to_pylist()
        if row["rows"]
    ]
    assert sorted(counts) == [20, 20, 200]
    monkeypatch.setattr(packed, "_PIECE_BYTES", 4 << 10)
    whole = packed_rows(reader, reader.partitions())
    sizes = [len(row["data"]) for batch in whole for row in batch.to_pylist()]
    assert len(sizes) > 6
    assert max(sizes) < 12 << 10
    assert len(unpacked(whole)["public.big"]) == 200


def test_a_partition_has_the_formats_of_its_tables(tmp_path: Path) -> None:
    """Its size depends on the tables that it has changes of, not on all tables."""
    changes = [change for oid in range(1, 101) for change in table(oid, f"t{oid}", oid)]
    last = [*table(1, "t1", 200), *table(2, "t2", 210)]
    spark_logs.write(tmp_path / "log", build.wire(changes))
    path = spark_logs.write(tmp_path / "log", build.wire(last))
    made = source(path, tables="*")
    empty, first, second = made.reader(made.schema()).partitions()
    assert set(empty.tables) == set(first.tables) == set(range(1, 101))
    assert set(second.tables) == {1, 2}
    assert 20 * len(pickle.dumps(second)) < len(pickle.dumps(first))


def test_a_value_that_does_not_decode(tmp_path: Path) -> None:
    changes = [
        *table(1, "a", 10),
        *build.transaction(build.relation(2, ID, name="b"), build.insert(2, "x"), lsn=20),
    ]
    path = spark_logs.write(tmp_path / "log", build.wire(changes))
    assert len(read_packed(path, "public.a")["public.a"]) == 1
    errors = []
    for read in (read_packed, read_table):
        with pytest.raises(pgc.DecodeError) as caught:
            read(path, "public.b")
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "column id (int4), row id='x'; public.b, commit LSN 0/14" in errors[0]
    found = read_packed(path, onError="skip")
    assert {name: len(rows) for name, rows in found.items()} == {"public.a": 1, "public.b": 0}


def test_an_error_of_one_table(tmp_path: Path) -> None:
    """The others have all their rows, in the same pass."""
    of_b = build.relation(2, ID, name="b")
    spark_logs.write(tmp_path / "log", build.wire([*table(1, "a", 10), *table(2, "b", 20)]))
    bad = [build.insert(2, value) for value in ("5", "x", "6", "y")]
    changes = [*build.transaction(of_b, *bad, lsn=30), *table(1, "a", 40)]
    path = spark_logs.write(tmp_path / "log", build.wire(changes))
    made = source(path, tables="*", onError="table")
    reader = made.reader(made.schema())
    batches = packed_rows(reader, reader.partitions())
    errors = {(row["relation"], row["error"]) for each in batches for row in each.to_pylist()}
    ((name, error),) = (each for each in errors if each[1] is not None)
    assert name == "public.b"
    assert "column id (int4), row id='x'; public.b, commit LSN 0/1E" in error
    found = unpacked(batches)
    assert found["public.a"]["id"].to_pylist() == [10, 40]


def test_a_table_with_an_error_is_one_of_the_tables() -> None:
    error = TableError("a value does not decode")
    kept: Any = None
    found = LogTables(kept, {"public.b": error}, {"public.b": 0}, {"public.b": 2}, {})
    assert ("public.b" in found, list(found), "public.a" in found) == (True, ["public.b"], False)
    with pytest.raises(TableError, match="a value does not decode"):
        found["public.b"]


def test_updates_with_another_identity(tmp_path: Path) -> None:
    """They are refused, if a query asks for that: the newest key does not find their rows."""
    pair = [column("id", "int4"), column("x", "int4", key=True)]
    by_id, by_x = build.relation(1, ID, column("x", "int4")), build.relation(1, *pair)
    update = build.update(1, build.row("1", "2"))
    first = build.transaction(by_id, build.insert(1, "1", "1"), lsn=10)
    second = build.transaction(by_id, update, by_x, build.insert(1, "2", "3"), lsn=20)
    path = spark_logs.write(tmp_path / "log", build.wire([*first, *second]))

    assert len(read_table(path, "public.t", checkIdentity="true", endingLsn="10")) == 1
    error = "commit LSN 0/14: an update or delete was sent with the replica identity id, and the "
    with pytest.raises(ValueError, match=error):
        read_table(path, "public.t", checkIdentity="true")


def stream(path: str, tables: str, **options: str) -> Any:
    made = source(path, tables=tables, **options)
    return made.streamReader(made.schema())


def micro_batch(reader: Any, after: int, until: int) -> dict[str, list[Row]]:
    start, end = ({"ordinal": 0, "lsn": f"0/{lsn:X}"} for lsn in (after, until))
    batches = packed_rows(reader, reader.partitions(start, end))
    return {
        name: sorted(rows.to_pylist(), key=place_of) for name, rows in unpacked(batches).items()
    }


def test_a_stream_goes_on_when_tables_change(tmp_path: Path) -> None:
    """A new column, another type, a new table: each micro-batch has its own schemas."""
    folder = tmp_path / "log"
    path = spark_logs.write(folder, build.wire(table(1, "a", 10, column("n", "int4"))))
    reader = stream(path, "public.*")
    ((row,),) = micro_batch(reader, 0, 10).values()
    assert (row["id"], row["n"]) == (10, 1)
    spark_logs.write(folder, build.wire(table(1, "a", 20, column("n", "text"), column("more"))))
    spark_logs.write(folder, build.wire(table(2, "b", 30)))
    found = micro_batch(reader, 10, 30)
    assert {name: [row["id"] for row in rows] for name, rows in found.items()} == {
        "public.a": [20],
        "public.b": [30],
    }
    assert (found["public.a"][0]["n"], found["public.a"][0]["more"]) == ("1", "1")
    rows = micro_batch(reader, 0, 30)["public.a"]
    assert [(row["id"], row["n"], row["more"]) for row in rows] == [
        (10, "1", None),
        (20, "1", "1"),
    ]
    assert micro_batch(reader, 30, 30) == {}


def test_a_stream_of_names_that_change_hands(tmp_path: Path) -> None:
    """As for one table: the query fails, or has the new relation from its beginning."""
    folder = tmp_path / "log"
    for lsn, (oid, name) in {10: (1, "r"), 20: (2, "s"), 30: (1, "q"), 40: (2, "r")}.items():
        path = spark_logs.write(folder, build.wire(table(oid, name, lsn)))
    with pytest.raises(log.LogError, match=r"relation 1 had the name public\.r at 0/14, but rel"):
        micro_batch(stream(path, "public.r"), 20, 40)
    with pytest.raises(log.LogError, match=r"relation 1 is public\.q now — hint: Set onRelationC"):
        micro_batch(stream(path, "public.*"), 20, 30)
    replacing = stream(path, "public.*", onRelationChange="replace")
    found = micro_batch(replacing, 20, 40)
    ids = {
        name: [(row["id"], row["_relation_oid"]) for row in rows] for name, rows in found.items()
    }
    assert ids == {"public.q": [(10, 1), (30, 1)], "public.r": [(20, 2), (40, 2)]}


def test_a_stream_of_an_unknown_name(path: str) -> None:
    with pytest.raises(ValueError, match=r"no table 'public\.nope'"):
        stream(path, "public.nope")
    assert micro_batch(stream(path, "nope.*"), 0, 30) == {}
