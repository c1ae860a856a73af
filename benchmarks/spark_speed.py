"""Measures decoding on Spark beside the minimum that Spark needs for as many rows.

Called as ``python -m benchmarks.spark_speed SIZE FOLDER``, by ``make bench-spark``. It prints a
page and writes it to ``FOLDER/benchmarks-spark.md``, before the sections of other benchmarks. Spark
has two cores; times are the clock's.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks import sections, spark_data
from benchmarks.machine import BOTH_COMPILERS, machine
from pgwire_codec.demo.steps import local_spark
from pgwire_codec.spark import PgoutputDataSource, decode_changes, plan_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = {"tiny": 1, "quick": 5, "full": 7}
WARM_UP = {"tiny": 0, "quick": 1, "full": 2}

DOCUMENT = """\
# Benchmarks on Spark

`make bench-spark` writes this page and measures all of its figures in one run ({size} data,
{date}), with `local[2]` on {machine}.

The data are {rows:,} inserts of TPC-H's lineitem, with 16 text columns, in transactions of eight:
{megabytes:,.0f} MB in {messages:,} messages. Every row is written to Spark's noop format.

{table}

{ratios}

- Figures are medians and minima of {rounds} rounds by the clock. A round measures each row of the
  first table once.
- *Ready-made Arrow batches*: a Python data source that returns the record batches of
  `format("pgoutput")` from mapped Arrow files, in the same partitions. This is Spark's own cost.
- *Messages to Python*: one pass over the messages that counts them, the minimum of any pass.
- *mapInArrow identity*: the messages to Python and back.
- *Messages in, ready-made rows out*: a `mapInArrow` that takes the messages, reads none, and
  returns the ready-made batches. This is the minimum for decoding messages, if decoding were free
  and needed no summary. `decode_changes` reads the messages twice, first for a summary: *summary
  pass* is that pass alone. A log has its summaries in its sidecars, and `format("pgoutput")` reads
  it once.
- *from_json*: the same rows as Debezium's JSON, parsed by the JVM into the same types.
"""


PAGE = "benchmarks-spark.md"

#: Functions that return a DataFrame to be written, or do all their work.
Jobs: TypeAlias = "dict[str, Callable[[], DataFrame | None]]"


class Ready(DataSource):
    """Data source of record batches from files."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        with pa.memory_map(self._paths()[0]) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema)

    def reader(self, schema: StructType) -> ReadyReader:
        return ReadyReader(self._paths())

    def _paths(self) -> list[str]:
        folder = Path(self.options["path"])
        return [str(path) for path in sorted(folder.iterdir(), key=lambda path: int(path.stem))]


class ReadyReader(DataSourceReader):
    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(path) for path in self._paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def main(size: str = "full", folder: str = "docs") -> None:
    data = spark_data.make(size)
    ready = Path(tempfile.mkdtemp(prefix="pgwire-bench-")) / "ready"
    try:
        spark_data.keep_batches(_decoded(data), ready)
        with local_spark(BOTH_COMPILERS) as spark:
            # Each file of messages is a partition: Spark combines small ones, in another order.
            spark.conf.set("spark.sql.files.openCostInBytes", "128m")
            found = _measure(_jobs(spark, data, ready), WARM_UP[size], ROUNDS[size])
            counts = _counts(spark, data)
    finally:
        shutil.rmtree(ready.parent)
    document = DOCUMENT.format(
        size=size,
        date=date.today().isoformat(),
        machine=machine(),
        table=_table(found, counts["rows"]),
        ratios=_ratios(found),
        rounds=ROUNDS[size],
        **counts,
    )
    print(document)
    sections.write(Path(folder) / PAGE, None, document)


def _source(data: Path, log: str = spark_data.LOG) -> dict[str, str]:
    return {"path": str(data / log), "table": spark_data.TABLE}


def _decoded(data: Path) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the record batches of the log, with the number of their partition."""
    source = PgoutputDataSource(_source(data))
    reader = source.reader(source.schema())
    for number, partition in enumerate(reader.partitions()):
        for batch in reader.read(partition):
            yield number, batch


def _jobs(spark: SparkSession, data: Path, ready: Path) -> Jobs:
    spark.dataSource.register(Ready)
    messages = spark.read.parquet(str(data / spark_data.MESSAGES))
    parts = messages.rdd.getNumPartitions()
    envelopes = spark.read.parquet(str(data / spark_data.ENVELOPES))
    decoded = spark.read.format("pgoutput").options(**_source(data)).load().schema
    after = StructType([field for field in decoded if not field.name.startswith("_")])
    fields = ", ".join(f"{each.name}: {each.dataType.simpleString()}" for each in after)
    envelope = StructType.fromDDL(
        f"after struct<{fields}>, source struct<table: string, txId: long, lsn: long>, "
        "op string, ts_ms long"
    )

    def summary_pass() -> None:
        plan_changes(messages)

    return {
        READY: lambda: spark.read.format("ready").load(str(ready)),
        SOURCE: lambda: spark.read.format("pgoutput").options(**_source(data)).load(),
        PLAIN: lambda: (
            spark.read.format("pgoutput").options(**_source(data, spark_data.PLAIN)).load()
        ),
        TO_PYTHON: lambda: messages.mapInArrow(_count, "count long"),
        IDENTITY: lambda: messages.mapInArrow(lambda batches: batches, messages.schema),
        LEAST: lambda: messages.mapInArrow(_instead(ready, parts), decoded),
        SUMMARY: summary_pass,
        CHANGES: lambda: decode_changes(messages, table=spark_data.TABLE),
        JSON: lambda: envelopes.select(
            functions.from_json("value", envelope).alias("envelope")
        ).select("envelope.after.*", "envelope.source", "envelope.op", "envelope.ts_ms"),
    }


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"count": [sum(batch.num_rows for batch in batches)]})


def _instead(folder: Path, parts: int) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """Return a task that yields its share of the ready-made batches, in step with the messages."""
    paths = sorted(map(str, folder.iterdir()))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for path in paths[context.partitionId() :: parts]:
            with pa.memory_map(path) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    ready = reader.get_batch(number)
                    for start in range(0, len(ready), _SLICE):
                        next(batches, None)
                        yield ready.slice(start, _SLICE)
        for _ in batches:
            pass

    return run


#: Rows in as many messages as Spark passes at a time.
_SLICE = 8_000

READY = "ready-made Arrow batches"
SOURCE = 'format("pgoutput")'
PLAIN = "without compression of the log"
TO_PYTHON = "messages to Python"
IDENTITY = "mapInArrow identity"
LEAST = "messages in, ready-made rows out"
SUMMARY = "summary pass"
CHANGES = "decode_changes"
JSON = "from_json"

#: Pairs of a row and its baseline, with the largest ratio that is aimed at.
TARGETS = (
    (SOURCE, READY, 1.3),
    (CHANGES, IDENTITY, 1.75),
    (SOURCE, JSON, 1 / 2.5),
)
#: Pairs without a target, which show what is possible.
LIMITS = ((SOURCE, PLAIN), (LEAST, IDENTITY), (CHANGES, LEAST))


def _measure(jobs: Jobs, warm_up: int, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(warm_up + rounds):
        for name, job in jobs.items():
            start = perf_counter()
            if (rows := job()) is not None:
                _write(rows)
            if number >= warm_up:
                found[name].append(perf_counter() - start)
    return found


def _write(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _counts(spark: SparkSession, data: Path) -> dict[str, Any]:
    size = functions.sum(functions.octet_length("data"))
    messages = spark.read.parquet(str(data / spark_data.MESSAGES))
    count, total = messages.select(functions.count("data"), size).first() or (0, 0)
    rows = spark.read.format("pgoutput").options(**_source(data)).load().count()
    return {"messages": count, "megabytes": total / 1e6, "rows": rows}


def _table(found: dict[str, list[float]], rows: int) -> str:
    lines = ["| | median, s | minimum, s | million rows/s |", "|---|--:|--:|--:|"]
    lines += [
        f"| {name} | {median(times):.2f} | {min(times):.2f} | {rows / median(times) / 1e6:.2f} |"
        for name, times in found.items()
    ]
    return "\n".join(lines)


def _ratios(found: dict[str, list[float]]) -> str:
    lines = [
        "| | baseline | ratio of medians | ratio of minima | target |",
        "|---|---|--:|--:|--:|",
    ]
    for name, other, most in (*TARGETS, *((*pair, None) for pair in LIMITS)):
        middle = median(found[name]) / median(found[other])
        best = min(found[name]) / min(found[other])
        target = "" if most is None else f"at most {most:.2f}"
        lines.append(f"| {name} | {other} | {middle:.2f} | {best:.2f} | {target} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
