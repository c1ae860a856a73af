"""TargetTable: a table of the lake at one of its versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.history import CHANGE
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.masks import masked_column
from pgwire_codec.lake.row_columns import DELETED
from pgwire_codec.lake.status import TableStatus
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name
from pgwire_codec.spark.arrow_types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


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
    def columns(self) -> Mapping[str, DataType]:
        """Spark's types of the columns."""
        return {each.name: each.dataType for each in spark_schema(self.schema)}


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
    return TargetTable(
        found.version,
        found.schema or pa.schema([]),
        found.files,
        lsn,
        position.relation,
        frozenset(map(masked_column, masks)),
        status is not None and DELETED in (status.row_columns or ()),
    )
