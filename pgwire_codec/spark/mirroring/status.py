"""Status of a mirror: a row for each table, in a table of its own.

It is for readers, and written after the tables: it never has a commit that a table does not have.
The tables' own commits decide which changes are applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from pgwire_codec.errors import PgwireError, missing_extra
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.sinks.iceberg_catalog import CatalogTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: State of a table that the mirror keeps up to date.
OK: Final = "ok"

#: State of a table whose changes are not applied, because of an error.
SET_ASIDE: Final = "set aside"

_ERROR_LENGTH: Final = 2000

#: State of a table whose name no relation has now: it was renamed.
GONE: Final = "gone"

#: State of a table that is to be resumed with the next batch.
RESUMING: Final = "resuming"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a table.

    Attributes
    ----------
    table : str
        ``schema.table``.
    relation_oid : int
        OID of the relation.
    state : {"ok", "gone", "set aside", "resuming"}
    error, hint : str or None
        Reason for which the table is set aside.
    commit_lsn : int or None
        Commit LSN of the last transaction that the target has.
    commit_time : datetime.datetime or None
        Its time.
    whole_lsn : int or None
        The target has all transactions up to this commit LSN. It is the same for all tables in the
        state ``ok``.
    version : int or None
        Version of the target at ``whole_lsn``.
    batch : int or None
        Number of the last micro-batch with changes of the table.
    changes : int
        Number of its changes in that batch.
    evolutions : tuple of str
        Changes of the target's columns, oldest first.
    masks : tuple of str or None
        Masks with which its rows were written, ``COLUMN=MASK``, if that is known.
    row_columns : tuple of str or None
        Columns that the mirror added to its rows, if they are known.
    """

    table: str
    relation_oid: int
    state: str = OK
    error: str | None = None
    hint: str | None = None
    commit_lsn: int | None = None
    commit_time: datetime | None = None
    whole_lsn: int | None = None
    version: int | None = None
    batch: int | None = None
    changes: int = 0
    evolutions: tuple[str, ...] = ()
    masks: tuple[str, ...] | None = None
    row_columns: tuple[str, ...] | None = None

    def set_aside(self, error: Exception) -> TableStatus:
        """Return the status after an error."""
        primary, hint = f"{type(error).__name__}: {error}", None
        if isinstance(error, PgwireError):
            primary, hint = error.primary, error.hint
        first, *_ = primary.splitlines()  # Java's errors have a stack
        return replace(self, state=SET_ASIDE, error=first[:_ERROR_LENGTH], hint=hint)


_SCHEMA: Final = pa.schema(
    {
        "table": pa.string(),
        "relation_oid": pa.int64(),
        "state": pa.string(),
        "error": pa.string(),
        "hint": pa.string(),
        "commit_lsn": pa.int64(),
        "commit_lsn_text": pa.string(),
        "commit_time": pa.timestamp("us", "UTC"),
        "whole_lsn": pa.int64(),
        "whole_lsn_text": pa.string(),
        "version": pa.int64(),
        "batch": pa.int64(),
        "changes": pa.int64(),
        "evolutions": pa.list_(pa.string()),
        "masks": pa.list_(pa.string()),
        "row_columns": pa.list_(pa.string()),
    }
)


class StatusTable(Protocol):
    """Status table, written by one of the engines."""

    def read(self) -> dict[str, TableStatus]:
        """Return the rows, by table; none if it does not exist."""

    def write(self, rows: Iterable[TableStatus]) -> None:
        """Replace the rows."""


def status_table(
    spark: SparkSession, path: str, engine: str, storage_options: Mapping[str, str]
) -> StatusTable:
    """Return the status table at a location."""
    if engine == "delta-spark":
        return _OfSpark(spark, path)
    if engine == "iceberg":
        return _OfIceberg(spark, path)
    return _OfDeltaRs(path, dict(storage_options))


class _OfDeltaRs:
    def __init__(self, path: str, storage_options: dict[str, str]) -> None:
        try:
            import deltalake
        except ImportError:
            raise missing_extra("mirror needs deltalake", "delta") from None
        self._delta: Any = deltalake
        self._path = path
        self._options = storage_options or None

    def read(self) -> dict[str, TableStatus]:
        if not self._delta.DeltaTable.is_deltatable(self._path, self._options):
            return {}
        table = self._delta.DeltaTable(self._path, storage_options=self._options)
        return _from_arrow(pa.table(table.to_pyarrow_table()))

    def write(self, rows: Iterable[TableStatus]) -> None:
        self._delta.write_deltalake(
            self._path, _to_arrow(rows), mode="overwrite", storage_options=self._options
        )


class _OfSpark:
    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark: Any = spark
        self._path = path

    def read(self) -> dict[str, TableStatus]:
        tables = self._spark._jvm.io.delta.tables.DeltaTable
        if not tables.isDeltaTable(self._spark._jsparkSession, self._path):
            return {}
        return _from_arrow(self._spark.read.format("delta").load(self._path).toArrow())

    def write(self, rows: Iterable[TableStatus]) -> None:
        found = self._spark.createDataFrame(_to_arrow(rows)).coalesce(1)
        found.write.format("delta").mode("overwrite").save(self._path)


class _OfIceberg:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark: Any = spark
        self._table = CatalogTable.parse(spark, name)
        self._read: int | None = None

    def read(self) -> dict[str, TableStatus]:
        table = self._table.load(self._spark)
        snapshot = None if table is None else table.currentSnapshot()
        if snapshot is None:
            return {}
        self._read = snapshot.snapshotId()
        return _from_arrow(self._spark.table(self._table.sql).toArrow())

    def write(self, rows: Iterable[TableStatus]) -> None:
        from pyspark.sql.functions import lit

        found = self._spark.createDataFrame(_to_arrow(rows)).coalesce(1)
        writer = found.writeTo(self._table.sql)
        if self._read is None:
            self._table.create_namespaces(self._spark)
            writer.using("iceberg").createOrReplace()
            return
        # Rows that another process has written since the last read are not overwritten.
        writer = writer.option("isolation-level", "serializable")
        writer.option("validate-from-snapshot-id", str(self._read)).overwrite(lit(True))


def _to_arrow(rows: Iterable[TableStatus]) -> pa.Table:
    found = []
    for row in sorted(rows, key=lambda each: each.table):
        values = asdict(row) | {
            f"{name}_text": None if lsn is None else format_lsn(lsn)
            for name, lsn in (("commit_lsn", row.commit_lsn), ("whole_lsn", row.whole_lsn))
        }
        found.append(values)
    return pa.Table.from_pylist(found, schema=_SCHEMA)


def _from_arrow(table: pa.Table) -> dict[str, TableStatus]:
    names = [field.name for field in fields(TableStatus)]
    rows = table.select(names).to_pylist()
    for row in rows:
        for name in ("evolutions", "masks", "row_columns"):
            row[name] = None if row[name] is None else tuple(row[name])
    return {row["table"]: TableStatus(**row) for row in rows}
