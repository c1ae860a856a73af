"""ParquetHistory: the history of a table as Parquet files, which any program reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import TableError
from pgwire_codec.spark.sinks.columns import AddColumn, ColumnStep
from pgwire_codec.spark.sinks.hadoop_folder import HadoopFolder
from pgwire_codec.spark.sinks.parquet_files import append_parquet
from pgwire_codec.spark.sinks.target import Applied, Batch, Merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: Column of the partitions: date of the commit in UTC. PyArrow does not read one with ``_`` first.
DATE: Final = "commit_date"

#: Folder of the commits. Programs that read Parquet pass over it.
_COMMITS: Final = "_pgwire_codec"

#: Ending of the names of commits, each of which is a JSON file.
_COMMIT: Final = ".json"

#: Ending of the names of marks that an append has begun: its files may be there in part.
_BEGUN: Final = ".begun"

_MICROSECONDS_A_DAY: Final = 86_400_000_000


class ParquetHistory:
    """Folder of Parquet files, for one stream of changes that are appended; see :class:`Target`.

    An append writes files whose names begin with its commit LSN, and then a commit, which has the
    LSN, the relation and the columns. Files without a commit are from an append that failed. The
    next one removes them.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._files = HadoopFolder(spark, path)
        self._commits = HadoopFolder(spark, f"{path}/{_COMMITS}")
        names = [name for name in self._commits.names() if name.endswith(_COMMIT)]
        self._commit: Mapping[str, Any] | None = None
        if names:
            self._commit = json.loads(self._commits.read(names[-1]))

    @property
    def schema(self) -> StructType | None:
        from pyspark.sql.types import StructType

        return None if self._commit is None else StructType.fromJson(self._commit["schema"])

    @property
    def applied(self) -> Applied:
        if self._commit is None:
            return Applied()
        return Applied(self._commit["commit_lsn"], self._commit["relation_oid"])

    @property
    def version(self) -> int | None:
        return None if self._commit is None else int(self._commit["version"])

    @property
    def is_empty(self) -> bool:
        return self._commit is None

    def append(self, batch: Batch, rows: int) -> Merged:
        from pyspark.sql import functions

        added = batch.changes.select(*batch.columns.numbers).toDF(*batch.columns.table)
        if DATE in (name.lower() for name in added.columns):
            raise TableError(
                f"the table has a column {DATE}, as the partitions of {self._path} do",
                hint="Rename the column, or leave it out with the mask drop. Or use another "
                "format than Parquet.",
            )
        schema = self.schema or added.schema
        days = functions.floor(functions.unix_micros("_commit_time") / _MICROSECONDS_A_DAY)
        dated = added.to(schema).withColumn(DATE, functions.date_from_unix_date(days.cast("int")))
        self._remove_failed()
        name = f"{batch.commit_lsn:016X}"
        self._commits.write(f"{name}{_BEGUN}", b"")
        append_parquet(self._spark, dated, self._path, name, DATE)
        self._record(batch.commit_lsn, batch.relation, schema)
        self._commits.remove(f"{name}{_BEGUN}")
        return Merged(batch.commit_lsn, inserted=rows)

    def alter(self, steps: Sequence[ColumnStep]) -> None:
        schema, applied = self.schema, self.applied
        assert schema is not None
        for step in steps:
            if not isinstance(step, AddColumn):
                raise TableError(
                    f"Parquet files cannot {step}",
                    hint="Move them to another place, and resume the table: it is then written "
                    "again from the log's beginning.",
                )
            schema = schema.add(step.name, step.kind)
        assert applied.commit_lsn is not None
        self._record(applied.commit_lsn, applied.relation, schema)

    def replace(self, batch: Batch) -> Merged:
        raise self._not_appended()

    def merge(self, batch: Batch) -> Merged:
        raise self._not_appended()

    def _not_appended(self) -> TableError:
        return TableError(
            f"{self._path} has Parquet files, which can only be appended to",
            hint="Use `history=True`, or a Delta or Iceberg table.",
        )

    def _record(self, commit_lsn: int, relation: int | None, schema: StructType) -> None:
        """Write a commit, and remove older ones."""
        version = 0 if self.version is None else self.version + 1
        self._commit = {
            "version": version,
            "commit_lsn": commit_lsn,
            "relation_oid": relation,
            "schema": schema.jsonValue(),
        }
        written = f"{version:012d}{_COMMIT}"
        self._commits.write(written, json.dumps(self._commit).encode())
        for name in self._commits.names():
            if name.endswith(_COMMIT) and name != written:
                self._commits.remove(name)

    def _remove_failed(self) -> None:
        """Remove the files of appends that have no commit."""
        held = self.applied.commit_lsn
        for name in self._commits.names():
            if not name.endswith(_BEGUN):
                continue
            lsn = name.removesuffix(_BEGUN)
            if held is None or int(lsn, 16) > held:
                self._files.remove(f"{DATE}=*/{lsn}-*")
            self._commits.remove(name)
