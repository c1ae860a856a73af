"""TargetTable: a table of the lake at one of its versions, and its rows, which tasks read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.errors import TableError
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.masks import masked_column
from pgwire_codec.lake.row_columns import CHANGE, DELETED
from pgwire_codec.lake.row_types import row_schema
from pgwire_codec.lake.status import TableStatus
from pgwire_codec.lake.table_files import TableFiles, grouped
from pgwire_codec.lake.table_state import TableState
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name

_TASK_BYTES: Final = 32 << 20  # bytes of files that one task reads

#: Rows of a batch: what is computed from them fits a processor's cache.
_BATCH_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows of some files of a table. Picklable."""

    sign: ClassVar[int] = -1  # sign of the number of these rows in differences

    files: TableFiles
    schema: pa.Schema  # columns to read, at least one
    keeps_deleted: bool  # True if one of them is true in rows that were deleted

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files.files)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were not deleted."""
        for file in self.files.files:
            for rows in self.files.batches(file, self.schema):
                if self.keeps_deleted:
                    rows = rows.filter(pc.invert(rows.column(DELETED).fill_null(False)))
                for begin in range(0, len(rows), _BATCH_ROWS):
                    yield rows.slice(begin, _BATCH_ROWS)


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A version of a table of the lake."""

    version: int | None  # None if the table does not exist
    schema: pa.Schema
    files: TableFiles
    applied: int  # commit LSN up to which it has all transactions
    relation: int | None  # OID of the relation whose rows it has, if that is known
    masked: frozenset[str]  # columns that have a mask
    keeps_deleted: bool  # True if it has rows that were deleted
    others: tuple[str, ...] = ()  # commits of other programs that changed rows, oldest first

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """Types of the columns."""
        return {field.name: field.type for field in self.schema}

    def rows(self, columns: Collection[str]) -> list[TargetRows]:
        """Return its rows in parts, with those of some columns that it has."""
        read = [field for field in self.schema if field.name in columns]
        if self.keeps_deleted:
            read.append(self.schema.field(DELETED))
        read = read or [self.schema.field(0)]  # which has the number of rows
        return [
            TargetRows(replace(self.files, files=tuple(files)), pa.schema(read), self.keeps_deleted)
            for files in grouped(self.files.files, _TASK_BYTES)
        ]


def open_version(lake: Lake, relation: Relation, status: TableStatus | None) -> TargetTable:
    """Return the newest version of a table.

    ``status`` was read before: the target has more than it if the mirror wrote it since.

    Raises ``TableError`` for a history.
    """
    target = lake.open(relation)
    record = TableState.from_target(target).record
    row_columns = record.row_columns or ()
    if CHANGE in row_columns or lake.has_histories_only:
        raise TableError(
            f"the target of {qualified_name(relation.namespace, relation.name)} has its history, "
            "which is not compared",
            hint="Compare a target that has its rows.",
        )
    position, schema = target.position, row_schema(target.schema or pa.schema([]))
    lsn = position.commit_lsn or 0
    log_id = None if record.log is None else record.log.log_id
    if status is not None and (status.log_id, status.relation_oid, status.commit_lsn) == (
        log_id,
        position.relation,
        position.commit_lsn,
    ):
        lsn = max(lsn, status.complete_lsn or 0)
    return TargetTable(
        target.version,
        schema,
        target.files,
        lsn,
        position.relation,
        frozenset(map(masked_column, record.masks or ())),
        DELETED in row_columns and DELETED in schema.names,
        record.others,
    )
