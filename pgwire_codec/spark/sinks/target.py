"""Target of a merge, for every engine that writes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.spark.sinks.columns import ColumnStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of :func:`merge_into`.

    Attributes
    ----------
    commit_lsn : int or None
        Commit LSN of the last transaction that the target has; None if it has none.
    inserted, updated, deleted : int
        Numbers of rows of the target.
    """

    commit_lsn: int | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """The part of a stream that a target has, as its own commits say.

    Attributes
    ----------
    commit_lsn : int or None
        Commit LSN of the last transaction.
    relation : int or None
        OID of the relation whose rows it has, if that is known.
    """

    commit_lsn: int | None = None
    relation: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that a target does not have yet.

    Attributes
    ----------
    changes : DataFrame
        Numbered, of one relation, after its last truncate.
    columns : ChangeColumns
        Their columns.
    commit_lsn : int
        Commit LSN of the last transaction.
    commit_time : datetime.datetime or None
        Its time, if the changes have it.
    relation : int or None
        OID of the relation, if that is known.
    empties : bool
        Whether no row of the target remains as it is: it was truncated, or is of another relation.
    sends_all : bool
        Whether all changes are known to have sent all values.
    partitions : int or None
        Number of partitions that the changes need, if that is known.
    """

    changes: DataFrame
    columns: ChangeColumns
    commit_lsn: int
    commit_time: datetime | None
    relation: int | None
    empties: bool
    sends_all: bool
    partitions: int | None

    @property
    def has_keys(self) -> bool:
        """True if rows have a key."""
        return bool(self.columns.keys)


class Target(Protocol):
    """Table of a lakehouse, for one stream of changes."""

    @property
    def schema(self) -> StructType | None:
        """Its columns; None if it does not exist."""

    @property
    def applied(self) -> Applied:
        """The part of the stream that it has."""

    @property
    def version(self) -> int | None:
        """Number of its last commit; None if it does not exist."""

    @property
    def is_empty(self) -> bool:
        """True if it has no rows, or does not exist."""

    def append(self, batch: Batch, rows: int) -> Merged:
        """Append the rows of a batch of so many inserts, as :meth:`merge` would."""

    def replace(self, batch: Batch) -> Merged:
        """Replace the rows and the columns by those of a batch, as a first :meth:`merge` would."""

    def alter(self, steps: Sequence[ColumnStep]) -> None:
        """Change the columns, each step by itself.

        Raises ``TableError`` for a step that the engine does not support.
        """

    def merge(self, batch: Batch) -> Merged:
        """Apply a batch in one commit, which records it; create the table if it does not exist.

        Raises ``TableError`` if the target lacks a row that the batch needs.
        """


def missing_row(target: str, row: str) -> str:
    """Return the primary text of the error for a row that an update needs."""
    return (
        f"{target} has no row {row}, which an update changed without sending all values "
        "(unchanged TOAST): earlier changes are missing there"
    )


MISSING_ROW_HINT = (
    "Apply them first, in the order of their commits. Or set REPLICA IDENTITY FULL, with which the "
    "server sends whole rows."
)


def missing_rows(target: str, copies: object, row: str, removals: object) -> str:
    """Return the primary text of the error for equal rows that the changes remove."""
    return (
        f"{target} has {copies} rows with {row}, of which the changes remove {removals}: "
        "earlier changes are missing there"
    )


MISSING_ROWS_HINT = "Apply them first, in the order of their commits."
