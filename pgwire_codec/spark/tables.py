"""Many tables of a log as DataFrames, from one pass over it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.log import Log
from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.failures import error_of
from pgwire_codec.spark.formats.packed import LETTERS, PACKED, unpack
from pgwire_codec.spark.tasks import Batches, begin_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Packed bytes of a table that one task unpacks: some 10 MB of rows, which take about 0.1 s.
_TASK_BYTES: Final = 4 << 20


class LogTables(Mapping[str, "DataFrame"]):
    """DataFrames of the changes of tables, by name, from packed rows that Spark keeps.

    Each has the rows of ``format("pgoutput")`` with the option ``table``. They can be used until
    :meth:`unpersist`, or the end of a ``with`` block. With ``onError=table``, a table of which a
    value does not decode raises ``TableError`` when it is used.

    Attributes
    ----------
    counts : dict of str to int
        Number of rows, by table.
    relation_oids : dict of str to int
        OID of the relation, by table.
    dead_letters : dict of int to DataFrame
        With ``onError=collect``: the messages that do not decode, with the columns of
        :func:`read_dead_letters`, by the OID of their relation; 0 for those that name none.
    """

    def __init__(
        self,
        packed: DataFrame,
        rows: Mapping[str, DataFrame | TableError],
        counts: dict[str, int],
        relation_oids: dict[str, int],
        dead_letters: dict[int, DataFrame],
    ) -> None:
        self._packed = packed
        self._rows = rows
        self.counts = counts
        self.relation_oids = relation_oids
        self.dead_letters = dead_letters

    def __getitem__(self, name: str) -> DataFrame:
        rows = self._rows[name]
        if isinstance(rows, TableError):
            raise rows
        return rows

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def unpersist(self) -> None:
        """Remove the rows from Spark's memory and disks."""
        self._packed.unpersist()

    def __enter__(self) -> LogTables:
        return self

    def __exit__(self, *_: object) -> None:
        self.unpersist()


def read_tables(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    tables: str | Sequence[str] = "*",
    **options: str,
) -> LogTables:
    """Read many tables of a log, each with its own types, in one pass over the log.

    A job reads and decodes the log, and keeps the decoded rows in memory, and on the executors'
    disks if memory is short. The DataFrames take their rows from there.

    Parameters
    ----------
    spark : SparkSession
        The session; also one of Spark Connect.
    log : str, path or Log
        Location of the log, or the log.
    tables : str or sequence of str
        Names of tables, and patterns such as ``public.*``; by default all tables.
    **options
        Options of ``format("pgoutput")``, except ``table``, ``relationOid`` and ``columns``.

    Returns
    -------
    LogTables
        The tables that have a name, or match a pattern, at the end of the range; also those without
        changes in it.

    Raises
    ------
    TableError
        For a name that no relation has, and for patterns that no table matches.
    """
    path = log.uri if isinstance(log, Log) else os.fspath(log)
    chosen = tables if isinstance(tables, str) else ",".join(tables)
    reader = spark.read.format("pgoutput").options(path=path, tables=chosen, **options)
    return unpack_tables(reader.load())


def unpack_tables(packed: DataFrame) -> LogTables:
    """Unpack the rows of ``format("pgoutput")`` with the option ``tables``, and keep them.

    A job reads the packed rows and keeps them in memory or on disk. In ``foreachBatch``, the result
    has the tables with changes in the micro-batch.

    Parameters
    ----------
    packed : DataFrame
        Packed rows: all of them, or the micro-batch of a stream.
    """
    from pyspark.sql import functions

    missing = [name for name in PACKED.names if name not in packed.columns]
    if missing:
        raise TableError(
            f"the DataFrame has no column {', '.join(missing)}",
            hint='Read it with format("pgoutput") and the option tables.',
        )
    kept = packed.persist()
    try:
        # One partition: without partial aggregates, and without Spark's 200 partitions in streams.
        tables = kept.drop("data").repartition(1).groupBy("relation_oid", "relation")
        sums = (functions.sum("rows"), functions.sum("bytes"))
        texts = (functions.max("error"), functions.max("schema"))
        totals = tables.agg(*sums, *texts).orderBy("relation").collect()
    except Exception:
        kept.unpersist()
        raise
    rows: dict[str, DataFrame | TableError] = {}
    counts: dict[str, int] = {}
    oids: dict[str, int] = {}
    letters: dict[int, DataFrame] = {}
    for oid, name, count, size, error, serialized in totals:
        schema = pa.ipc.read_schema(pa.py_buffer(bytes(serialized)))
        of_table = kept.where((kept.relation_oid == oid) & (kept.relation == name)).select("data")
        unpacked = _unpacked(of_table.coalesce(-(-max(size, 1) // _TASK_BYTES)), schema)
        if name == LETTERS:
            letters[oid] = unpacked
            continue
        rows[name] = unpacked if error is None else error_of(error)
        counts[name], oids[name] = count, oid
    return LogTables(kept, rows, counts, oids, letters)


def _unpacked(packed: DataFrame, schema: pa.Schema) -> DataFrame:
    def run(batches: Batches) -> Batches:
        begin_task()
        return unpack(batches, schema)

    # Not map_in_arrow, which looks for lists: there are many tables.
    return packed.mapInArrow(run, spark_schema(schema))  # type: ignore[arg-type]
