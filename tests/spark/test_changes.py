"""Decode on Spark gives the rows of the serial decoder, whatever the partitioning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.log import Log
from tests.support import build, corpus, spark_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

CAPTURES = [
    corpus.capture("streams.pg18.v4-parallel-2pc"),
    corpus.capture("immediate.pg16.v2-stream"),
    corpus.capture("dml.pg18.v1-text"),
]


@pytest.fixture(scope="module")
def spark_api() -> Any:
    return pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")


def to_df(spark: SparkSession, messages: list[bytes], lsns: Any, slices: int) -> DataFrame:
    """A DataFrame whose partitions are `slices` runs of the messages."""
    rows = [(n, data, int(lsn)) for n, (data, lsn) in enumerate(zip(messages, lsns, strict=True))]
    rdd = spark.sparkContext.parallelize(rows, slices)
    return spark.createDataFrame(rdd, "n long, message binary, at long")


def serial_rows(
    capture: corpus.Capture, table: str, columns: list[str], types: str = "native"
) -> list[dict[str, Any]]:
    """Return a table's rows from the serial decoder, in order, with its newest version's names."""
    decoder = pgc.Decoder(arrow_types=ROW_TYPES, unrepresentable="null", types=types)
    rows = []
    changes = decoder.decode(capture.messages, capture.lsns)
    newest = decoder.carry.scope.named(table)
    assert newest is not None
    for batch in changes:
        if batch.relation.oid == newest.relation.oid:
            rows += [{name: row.get(name) for name in columns} for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["_commit_lsn"], row["_seq"]))


def spark_rows(changes: DataFrame) -> list[dict[str, Any]]:
    if hasattr(changes, "toArrow"):
        table = changes.toArrow()
    else:  # before Spark 4
        table = pa.Table.from_batches(changes._collect_as_arrow())
    rows = table.to_pylist()
    return sorted(rows, key=lambda row: (row["_commit_lsn"], row["_seq"]))


def tables_of(capture: corpus.Capture) -> list[str]:
    """The names of those that changed most, as they are in the end."""
    decoder = pgc.Decoder()
    batches = decoder.decode(capture.messages).batches
    counts: dict[str, int] = {}
    for batch in batches:
        _, newest = decoder.carry.scope.relations[batch.relation.oid]
        name = newest.qualified_name
        counts[name] = counts.get(name, 0) + len(batch)
    return sorted(counts, key=lambda name: -counts[name])[:2]


@pytest.mark.parametrize("slices", [1, 7, 32])
@pytest.mark.parametrize("capture", CAPTURES, ids=str)
def test_any_number_of_partitions(
    spark: SparkSession, spark_api: Any, capture: corpus.Capture, slices: int
) -> None:
    messages = to_df(spark, capture.messages, capture.lsns, slices)
    # The scenario dml changes a column's type: there, compare what all its types can be.
    types = "text" if capture.scenario == "dml" else "native"
    for table in tables_of(capture):
        changes = spark_api.decode_changes(
            messages,
            table=table,
            ordinal="n",
            data="message",
            lsn="at",
            unrepresentable="null",
            types=types,
        )
        assert spark_rows(changes) == serial_rows(capture, table, changes.columns, types)


def test_partitions_out_of_order_are_put_in_order(spark: SparkSession, spark_api: Any) -> None:
    capture = CAPTURES[1]
    (table, *_) = tables_of(capture)
    messages = to_df(spark, capture.messages, capture.lsns, 3)
    for mixed in (messages.repartition(5), messages.sort(messages.n.desc()).coalesce(2)):
        changes = spark_api.decode_changes(
            mixed, table=table, ordinal="n", data="message", lsn="at", unrepresentable="null"
        )
        assert spark_rows(changes) == serial_rows(capture, table, changes.columns)


def test_parquet_in_small_files(spark: SparkSession, spark_api: Any, tmp_path: Any) -> None:
    capture = CAPTURES[0]
    (table, *_) = tables_of(capture)
    to_df(spark, capture.messages, capture.lsns, 9).write.parquet(str(tmp_path / "log"))
    messages = spark.read.parquet(str(tmp_path / "log"))
    changes = spark_api.decode_changes(messages, table=table, ordinal="n", data="message")
    expected = serial_rows(capture, table, changes.columns)
    assert spark_rows(changes) == [{**row, "_lsn": None} for row in expected]


def test_decode_partition_of_an_rdd(spark: SparkSession, spark_api: Any) -> None:
    capture = CAPTURES[0]
    messages = spark.sparkContext.parallelize(capture.messages, 6)
    plan = spark_api.plan_partitions(messages)
    decode_partition = spark_api.decode_partition

    def decode(number: int, rows: Iterator[bytes]) -> Iterator[dict[str, Any]]:
        return decode_partition(rows, plan.parts[number])

    found = messages.mapPartitionsWithIndex(decode).collect()
    expected = []
    for batch in pgc.Decoder(arrow_types=ROW_TYPES).decode(capture.messages):
        name = batch.version.qualified_name
        expected += [{**row, "_table": name} for row in batch.to_pylist()]

    def place(row: dict[str, Any]) -> tuple[int, int]:
        return row["_commit_lsn"], row["_seq"]

    assert sorted(found, key=place) == sorted(expected, key=place)


def test_one_partition_is_a_stream_of_its_own(spark: SparkSession, spark_api: Any) -> None:
    capture = CAPTURES[2]
    messages = spark.sparkContext.parallelize(capture.messages, 1)
    found = messages.mapPartitions(spark_api.decode_partition).collect()
    batches = pgc.Decoder().decode(capture.messages)
    assert len(found) == sum(len(batch) for batch in batches)


def test_every_type_arrives_as_spark_has_it(spark: SparkSession, spark_api: Any) -> None:
    capture = corpus.capture("types.pg18.v1-binary")
    messages = to_df(spark, capture.messages, capture.lsns, 2)
    wanted = {
        "t_bool": "boolean",
        "t_int2": "smallint",
        "t_oid": "bigint",
        "t_float4": "float",
        "t_numeric_15_2": "decimal(15,2)",
        "t_numeric": "string",
        "t_bytea": "binary",
        "t_uuid": "string",
        "t_date": "date",
        "t_time": "string",
        "t_timestamp": "timestamp_ntz",
        "t_timestamptz": "timestamp",
        "t_interval": "string",
        "t_pg_lsn": "bigint",
        "t_int4_array": "array<int>",
        "t_numeric_array": "array<string>",
    }
    for table, kind in wanted.items():
        changes = spark_api.decode_changes(
            messages, table=f"public.{table}", ordinal="n", data="message", unrepresentable="null"
        )
        assert dict(changes.dtypes)["v"] == kind
        assert changes.count() == len(corpus.truth(capture)[table]["rows"])


def test_a_column_that_changed_its_type(spark: SparkSession, spark_api: Any) -> None:
    """Integers widen; what nothing holds becomes a string; dropped and added columns are null."""
    column, insert = build.column, build.insert
    first = build.relation(
        1, column("id", "int4", key=True), column("n", "int2"), column("x", "int4"), column("gone")
    )
    second = build.relation(
        1, column("id", "int4", key=True), column("n", "int8"), column("x", "date"), column("new")
    )
    messages = [
        pgc.encode_message(message)
        for message in (
            pgc.Begin(10, 0, 1),
            first,
            insert(1, "1", "7", "12", "a"),
            pgc.Commit(0, 10, 11, 0),
            pgc.Begin(20, 0, 2),
            second,
            insert(1, "2", "8000000000", "2024-02-29", "b"),
            pgc.Commit(0, 20, 21, 0),
        )
    ]
    df = to_df(spark, messages, range(len(messages)), 2)
    changes = spark_api.decode_changes(df, table="public.t", ordinal="n", data="message")
    assert changes.columns[:4] == ["id", "n", "x", "new"]
    assert [tuple(row.values())[:4] for row in spark_rows(changes)] == [
        (1, 7, "12", None),
        (2, 8_000_000_000, "2024-02-29", "b"),
    ]


def test_what_cannot_be_decoded_says_so(spark: SparkSession, spark_api: Any) -> None:
    capture = CAPTURES[2]
    good = to_df(spark, capture.messages, capture.lsns, 2)

    def decode(df: DataFrame, **options: Any) -> DataFrame:
        names = {"table": "public.def", "ordinal": "n", "data": "message"}
        return spark_api.decode_changes(df, **(names | options))

    with pytest.raises(
        ValueError, match=r"no table 'public\.nope' — hint: Their tables: .*public\.def"
    ):
        decode(good, table="public.nope")
    with pytest.raises(ValueError, match="no column 'payload'"):
        decode(good, data="payload")
    with pytest.raises(TypeError, match="must be binary, not bigint"):
        decode(good, data="at")
    with pytest.raises(TypeError, match="must be a whole number, not binary"):
        decode(good, ordinal="message")
    with pytest.raises(pgc.OptionError, match="on_error"):
        decode(good, on_error="ignore")
    with pytest.raises(ValueError, match="not unique"):
        decode(good.union(good))
    with pytest.raises(TypeError, match="must be a Spark DataFrame, not list"):
        decode([])
    with pytest.raises(TypeError, match="streaming"):
        decode(spark.readStream.format("rate").load())
    broken = [*capture.messages]
    broken[5] = broken[5][:-1]
    with pytest.raises(pgc.DecodeError) as failure:
        decode(to_df(spark, broken, capture.lsns, 2))
    assert failure.value.code == pgc.ErrorCode.TRUNCATED
    assert failure.value.message_index == 5
    skipped = decode(to_df(spark, broken, capture.lsns, 2), on_error="skip", unrepresentable="null")
    assert skipped.count() > 0


def test_relations_whose_names_change_hands(spark: SparkSession, spark_api: Any) -> None:
    """A table is the relation that has its name in the end, under all its names."""
    renames = [(1, "r"), (2, "s"), (1, "q"), (2, "r"), (3, "q")]
    key = build.column("id", "int4", key=True)
    messages = []
    for number, (oid, name) in enumerate(renames, start=1):
        relation = build.relation(oid, key, name=name)
        messages += build.transaction(relation, build.insert(oid, str(number)), lsn=number * 10)
    df = to_df(spark, build.wire(messages), range(len(messages)), 7)
    planned = spark_api.plan_changes(df, ordinal="n", data="message")
    assert planned.tables == ["public.q", "public.r"]

    def found(changes: DataFrame) -> list[int]:
        return [row["id"] for row in spark_rows(changes)]

    assert found(planned.decode("public.r")) == [2, 4]
    assert found(planned.decode("public.q")) == [5]
    assert found(planned.decode(relation_oid=1)) == [1, 3]
    with pytest.raises(ValueError, match=r"no relation has the name 'public\.s' .* is public\.r"):
        planned.decode("public.s")
    for wrong in ({}, {"table": "public.r", "relation_oid": 2}):
        with pytest.raises(pgc.OptionError, match="exactly one of table and relation_oid"):
            planned.decode(**wrong)
    changes = spark_api.decode_changes(
        df, relation_oid=2, with_relation_oid=True, ordinal="n", data="message"
    )
    assert changes.columns[-1] == "_relation_oid"
    assert {row["_relation_oid"] for row in spark_rows(changes)} == {2}


def test_a_dataframe_that_changes_between_two_reads(
    spark: SparkSession, spark_api: Any, tmp_path: Any
) -> None:
    capture = CAPTURES[2]
    path = str(tmp_path / "messages.arrow")

    def write(messages: list[bytes]) -> None:
        batch = pa.record_batch({"ordinal": pa.array(range(len(messages))), "data": messages})
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write(batch)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            with pa.OSFile(path, "rb") as file:
                yield from pa.ipc.open_file(file).read_all().to_batches()

    df = spark.range(1).coalesce(1).mapInArrow(read, "ordinal long, data binary")
    write(capture.messages)
    changes = spark_api.decode_changes(df, table="public.def")
    assert changes.count() > 0
    write(capture.messages[:-10])
    with pytest.raises(Exception, match="has changed since the messages were surveyed"):
        changes.count()


def test_arrow_types_are_checked_by_spark(spark: SparkSession) -> None:
    """The session refuses a batch that is not of the schema, so that the tests above could fail."""
    if spark.version.startswith(("3.", "4.0.")):
        pytest.skip("Spark can check a batch's schema since 4.1")
    df = spark.range(1).mapInArrow(
        lambda batches: (pa.record_batch({"id": pa.array([1], pa.int32())}) for _ in batches),
        "id long",
    )
    with pytest.raises(Exception, match=r"(?i)schema|type"):
        df.collect()


def test_a_log_in_the_driver(spark: SparkSession, spark_api: Any, tmp_path: Path) -> None:
    """For releases without data sources in Python: the rows that the driver decodes."""
    capture = CAPTURES[2]
    path = spark_logs.to_log(capture, tmp_path)
    table = tables_of(capture)[0]
    options = {"arrow_types": ROW_TYPES, "unrepresentable": "null", "types": "text"}
    names = ["_commit_lsn", "_seq", "_op"]
    rows = [
        tuple(row[name] for name in names)
        for batch in Log(path).read(table, **options)
        for row in batch.to_pylist()
    ]
    found = spark.createDataFrame(rows, "_commit_lsn long, _seq long, _op string")
    assert spark_rows(found) == serial_rows(capture, table, names, types="text")
