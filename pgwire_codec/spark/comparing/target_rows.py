"""TargetTable: a table of the lake at one of its versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgwire_codec.errors import TableError
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name
from pgwire_codec.spark.mirroring.history import CHANGE
from pgwire_codec.spark.mirroring.lake import Lake
from pgwire_codec.spark.mirroring.masks import masked_column
from pgwire_codec.spark.mirroring.row_columns import DELETED
from pgwire_codec.spark.mirroring.status import TableStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A version of a table of the lake.

    Attributes
    ----------
    version : int or None
        None if the table does not exist.
    columns : mapping of str to DataType
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
    columns: Mapping[str, DataType]
    applied: int
    relation: int | None
    masked: frozenset[str]
    keeps_deleted: bool


def open_version(
    lake: Lake, spark: SparkSession, relation: Relation, status: TableStatus | None
) -> TargetTable:
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
    found = lake.open(spark, relation)
    while True:
        version = found.version
        again = lake.open(spark, relation)
        if (found.applied, found.schema) == (again.applied, again.schema):
            break
        found = again  # its version may have been another commit's
    applied = found.applied
    lsn = applied.commit_lsn or 0
    if status is not None and (status.relation_oid, status.commit_lsn) == (
        applied.relation,
        applied.commit_lsn,
    ):
        lsn = max(lsn, status.whole_lsn or 0)
    columns = {} if found.schema is None else {each.name: each.dataType for each in found.schema}
    masks = () if status is None else status.masks or ()
    masked = frozenset(map(masked_column, masks))
    keeps_deleted = status is not None and DELETED in (status.row_columns or ())
    return TargetTable(version, columns, lsn, applied.relation, masked, keeps_deleted)
