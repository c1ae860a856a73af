"""Other ways from PostgreSQL's rows or changes to a Delta table: a program for each.

Run as ``python -m benchmarks.lake_programs NAME ARGUMENT...``, so that its start and its imports
are measured. Arguments are those of the function with the name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlparse

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH = 100_000  # rows of lineitem at a time


def adbc(dsn: str, target: str) -> None:
    """Fetch lineitem in binary form; its decimals arrive as text."""
    from adbc_driver_postgresql import dbapi
    from deltalake import write_deltalake

    with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM lineitem")
        reader = cursor.fetch_record_batch()
        fields = [pa.field(field.name, _decimal(field.type)) for field in reader.schema]
        schema = pa.schema(fields)
        batches = (_as(batch, schema) for batch in reader)
        write_deltalake(target, pa.RecordBatchReader.from_batches(schema, batches))


def _decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(15, 2) if isinstance(kind, pa.OpaqueType) else kind


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [getattr(column, "storage", column) for column in batch.columns]
    pairs = zip(columns, schema.types, strict=True)
    return pa.record_batch([column.cast(kind) for column, kind in pairs], schema)


def dlt(dsn: str, target: str) -> None:
    """Load lineitem by dlt's ``sql_database`` with the backend pyarrow."""
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    import dlt
    from dlt.sources.sql_database import sql_table

    folder = Path(target)
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=str(folder / "pipelines"),
        destination=dlt.destinations.filesystem(bucket_url=folder.as_uri()),
        dataset_name="lake",
    )
    url = dsn.replace("postgresql://", "postgresql+psycopg2://", 1)
    rows = sql_table(credentials=url, table="lineitem", backend="pyarrow", chunk_size=_BATCH)
    pipeline.run(rows, table_format="delta").raise_on_failed_jobs()


def jdbc(dsn: str, target: str) -> None:
    """Read lineitem by Spark in two ranges of its key, and write it by delta-spark."""
    from benchmarks.lake_spark import POSTGRESQL, delta_settings, session

    [folder] = parse_qs(urlparse(dsn).query)["host"]
    [socket] = (file for file in Path(folder).glob(".s.PGSQL.*") if file.suffix != ".lock")
    options = {
        "url": "jdbc:postgresql://localhost/postgres",
        "driver": "org.postgresql.Driver",
        "user": "postgres",
        "socketFactory": "org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg",
        "socketFactoryArg": str(socket),
        "fetchsize": "10000",
    }
    with session(delta_settings(*POSTGRESQL)) as (spark, _):
        reader = spark.read.format("jdbc").options(**options)
        query = "(SELECT min(l_orderkey) AS first, max(l_orderkey) AS last FROM lineitem) AS ends"
        ends = reader.option("dbtable", query).load().first()
        assert ends is not None
        bounds = {"lowerBound": ends["first"], "upperBound": ends["last"], "numPartitions": 2}
        reader = reader.options(partitionColumn="l_orderkey", **bounds)
        reader.option("dbtable", "lineitem").load().write.format("delta").save(target)


def merge_by_spark(log: str, after: str, target: str) -> None:
    """Merge the last state of each changed row by delta-spark's MERGE INTO."""
    from benchmarks.lake_spark import delta_settings, session
    from pgwire_codec.protocol.lsn import format_lsn
    from pgwire_codec.spark import latest

    with session(delta_settings()) as (spark, _):
        changes = (
            spark.read.format("pgoutput")
            .options(path=log, table="public.acct", startingLsn=format_lsn(int(after)))
            .load()
        )
        _with_deletes(changes, latest(changes, ["id"])).createOrReplaceTempView("s")
        spark.sql(
            f"MERGE INTO delta.`{target}` t USING s ON t.id = s.id "
            "WHEN MATCHED AND s._commit_lsn IS NULL THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET balance = s.balance, amount = s.amount, name = s.name, "
            "note = s.note "
            "WHEN NOT MATCHED AND s._commit_lsn IS NOT NULL THEN "
            "INSERT (id, balance, amount, name, note) "
            "VALUES (s.id, s.balance, s.amount, s.name, s.note)"
        )


def _with_deletes(changes: DataFrame, rows: DataFrame) -> DataFrame:
    """Return rows, and one with only a key for each row that was deleted."""
    return changes.select("id").distinct().join(rows, "id", "left")


def merge_by_delta_rs(log: str, after: str, target: str) -> None:
    """Merge the last change of each row by delta-rs."""
    from deltalake import DeltaTable

    changes = pa.Table.from_batches(_decoded(log, int(after)))
    ordered = changes.append_column("number", pa.array(range(len(changes))))
    last = ordered.group_by("id").aggregate([("number", "max")])["number_max"]
    merge = DeltaTable(target).merge(
        changes.take(last), "t.id = s.id", source_alias="s", target_alias="t"
    )
    values = {name: f"s.{name}" for name in ("id", "balance", "amount", "name", "note")}
    (
        merge.when_matched_delete("s._op = 'D'")
        .when_matched_update(values, "s._op <> 'D'")
        .when_not_matched_insert(values, "s._op <> 'D'")
        .execute()
    )


def _decoded(log: str, after: int) -> Iterator[pa.RecordBatch]:
    from pgwire_codec.lake.row_types import ROW_TYPES
    from pgwire_codec.log import Log
    from pgwire_codec.options import DecoderOptions

    for partition in Log(log).plan(after).partitions:
        for batch in partition.decode(DecoderOptions(arrow_types=ROW_TYPES)):
            columns = [column.name for column in batch.relation.columns]
            yield batch.to_arrow().select([*columns, "_op"])


PROGRAMS: dict[str, Callable[..., None]] = {
    program.__name__: program for program in (adbc, dlt, jdbc, merge_by_spark, merge_by_delta_rs)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
