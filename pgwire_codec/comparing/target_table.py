"""TargetTable: a table of the lake at one of its versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from pgwire_codec.comparing.target_rows import TargetRows
from pgwire_codec.errors import TableError
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.masks import masked_column
from pgwire_codec.lake.row_columns import CHANGE, DELETED
from pgwire_codec.lake.row_types import row_schema
from pgwire_codec.lake.status import TableStatus
from pgwire_codec.lake.table_files import TableFiles, grouped
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name

#: Bytes of files that one task reads.
_TASK_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A version of a table of the lake.

    Attributes
    ----------
    version : int or None
        None if the table does not exist.
    schema : pyarrow.Schema
    files : TableFiles
    applied : int
        Commit LSN up to which it has all transactions.
    relation : int or None
        OID of the relation whose rows it has, if that is known.
    masked : frozenset of str
        Columns that have a mask.
    keeps_deleted : bool
        Whether it has rows that were deleted.
    """

    version: int | None
    schema: pa.Schema
    files: TableFiles
    applied: int
    relation: int | None
    masked: frozenset[str]
    keeps_deleted: bool

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
    is_recorded = status is not None and CHANGE in (status.row_columns or ())
    if is_recorded or lake.has_histories_only:
        raise TableError(
            f"the target of {qualified_name(relation.namespace, relation.name)} has its history, "
            "which is not compared",
            hint="Compare a target that has its rows.",
        )
    found = lake.open(relation)
    position = found.position
    lsn = position.commit_lsn or 0
    if status is not None and (status.relation_oid, status.commit_lsn) == (
        position.relation,
        position.commit_lsn,
    ):
        lsn = max(lsn, status.whole_lsn or 0)
    masks = () if status is None else status.masks or ()
    schema = row_schema(found.schema or pa.schema([]))
    return TargetTable(
        found.version,
        schema,
        found.files,
        lsn,
        position.relation,
        frozenset(map(masked_column, masks)),
        status is not None and DELETED in (status.row_columns or ()) and DELETED in schema.names,
    )
