"""Many tables of a log as DataFrames, from one pass over it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.log import Log
from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.failures import error_of
from pgwire_codec.spark.formats.packed import (
    LETTERS,
    PACKED,
    ChangeFacts,
    TableRange,
    place_of,
    unpack,
)
from pgwire_codec.spark.formats.staged import filesystem_of, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Packed bytes of a table that one task unpacks: some 10 MB of rows, which take about 0.1 s.
_TASK_BYTES: Final = 4 << 20


#: Columns of packed rows of which a table has the maximum.
_MAXIMA: Final = ("truncated", "has_unsent", "other_identity", "error", "folder", "schema")


@dataclass(frozen=True, slots=True)
class _Table:
    relation_oid: int
    changes: int
    range: TableRange
    facts: ChangeFacts
    partitions: int | None
    rows: DataFrame | TableError


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
    ranges : dict of str to TableRange
        By table: range of the log whose changes the rows are, and the relation at its end.
    facts : dict of str to ChangeFacts
        By table: number of inserts, last transaction and truncate, values that were not sent, and
        replica identity.
    partitions : dict of str to (int or None)
        By table: number of the DataFrame's partitions; None if files are read.
    dead_letters : dict of int to DataFrame
        With ``onError=collect``: the messages that do not decode, with the columns of
        :func:`read_dead_letters`, by the OID of their relation; 0 for those that name none.
    """

    def __init__(
        self,
        packed: DataFrame,
        tables: Mapping[str, _Table],
        folders: Collection[str],
        dead_letters: Mapping[int, DataFrame] | None = None,
    ) -> None:
        self._packed = packed
        self._folders = folders
        self._rows = {name: table.rows for name, table in tables.items()}
        self.counts = {name: table.changes for name, table in tables.items()}
        self.relation_oids = {name: table.relation_oid for name, table in tables.items()}
        self.ranges = {name: table.range for name, table in tables.items()}
        self.facts = {name: table.facts for name, table in tables.items()}
        self.partitions = {name: table.partitions for name, table in tables.items()}
        self.dead_letters = dict(dead_letters or {})

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
        """Remove the rows from Spark's memory and disks, and the folder of staged files."""
        self._packed.unpersist()
        for folder in self._folders:
            filesystem, path = filesystem_of(folder)
            filesystem.delete_dir(path)

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
    disks if memory is short. The DataFrames take their rows from there. With the option
    ``stagingPath``, most rows are in Parquet files instead, which Spark reads without Python:
    use it for much data.

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
        found = (
            kept.drop("data")
            .repartition(1)
            .groupBy("relation_oid", "relation")
            .agg(
                *(functions.sum(name) for name in ("rows", "bytes", "inserts")),
                functions.max(functions.struct("last_lsn", "last_time")),
                *(functions.max(name) for name in _MAXIMA),
            )
            .orderBy("relation")
            .collect()
        )
    except Exception:
        kept.unpersist()
        raise
    tables = {}
    letters: dict[int, DataFrame] = {}
    folders = set()
    for oid, name, changes, size, inserts, last, *maxima in found:
        truncated, has_unsent, others, error, folder, serialized = maxima
        declared = pa.ipc.read_schema(pa.py_buffer(bytes(serialized)))
        schema = declared.remove_metadata()
        rows: DataFrame | None = None
        tasks = -(-max(size, 1) // _TASK_BYTES)
        if name == LETTERS:
            letters[oid] = _packed_rows(kept, oid, name, tasks, schema)
            continue
        if size or folder is None:
            rows = _packed_rows(kept, oid, name, tasks, schema)
        partitions = tasks if folder is None else None
        if folder is not None:
            folders.add(folder)
            staged = _staged_rows(packed.sparkSession, folder, oid, schema)
            rows = staged if rows is None else staged.unionAll(rows)
        assert rows is not None
        lsn, time = last
        facts = ChangeFacts(inserts, lsn, time, place_of(truncated), has_unsent, others)
        usable = rows if error is None else error_of(error)
        tables[name] = _Table(oid, changes, TableRange.of(declared), facts, partitions, usable)
    return LogTables(kept, tables, folders, letters)


def _packed_rows(kept: DataFrame, oid: int, name: str, tasks: int, schema: pa.Schema) -> DataFrame:
    """Return the rows of a table in the column ``data``, by as many tasks as its bytes need."""
    return (
        kept.where((kept.relation_oid == oid) & (kept.relation == name))
        .select("data")
        .coalesce(tasks)
        .mapInArrow(_unpacking(schema), spark_schema(schema))  # type: ignore[arg-type]
    )


def _staged_rows(spark: SparkSession, folder: str, oid: int, schema: pa.Schema) -> DataFrame:
    """Return the rows of a table in staged files."""
    reader = spark.read.schema(spark_schema(schema)).option("datetimeRebaseMode", "CORRECTED")
    return reader.parquet(f"{spark_uri(folder)}/{oid}")


def _unpacking(schema: pa.Schema) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return unpack(batches, schema)

    return run
