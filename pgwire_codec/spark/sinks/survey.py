"""Survey: facts about a batch of changes, from one aggregate, by which it is merged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.changes.metadata import RELATION_OID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts about changes of one table.

    Those of a packed batch are known without a job; see :class:`ChangeFacts`.

    Attributes
    ----------
    commit_lsn : int
        Commit LSN of the last transaction.
    commit_time : datetime.datetime or None
        Its time, if the changes have it.
    relation : int or None
        OID of the relation that changed last, if that is known.
    truncated : tuple of int or None
        Commit LSN and number of the last truncate of this relation.
    has_inserts_only : bool
        Whether no change of any relation is another one than an insert.
    rows : int
        Number of changes after the LSN that the target has.
    sends_all : bool
        Whether all changes are known to have sent all values.
    partitions : int or None
        Number of partitions that the changes need, if that is known.
    """

    commit_lsn: int
    commit_time: datetime | None
    relation: int | None
    truncated: tuple[int, int] | None
    has_inserts_only: bool
    rows: int
    sends_all: bool = False
    partitions: int | None = None

    @classmethod
    def of(cls, changes: DataFrame, after: int) -> Survey | None:
        """Survey numbered changes, of which a target has those up to an LSN; None for none."""
        from pyspark.sql import functions

        col, lit = functions.col, functions.lit
        relation = col(RELATION_OID) if RELATION_OID in changes.columns else lit(None).cast("long")
        time = lit(None).cast("timestamp")
        if "_commit_time" in changes.columns:
            time = col("_commit_time")
        place = functions.struct("_commit_lsn", "_seq", relation.alias("relation"))
        found: Any = changes.agg(
            functions.max(
                functions.struct("_commit_lsn", "_seq", relation, functions.unix_micros(time))
            ),
            functions.max(functions.when(col("_op") == "T", place)),
            functions.count_if(col("_op") != "I"),
            functions.count_if(is_after(after)),
        ).collect()
        newest, truncated, others, rows = found[0]
        if newest is None:
            return None
        lsn, _, oid, micros = newest
        if truncated is not None and truncated[2] != oid:
            return cls.of(changes.where(relation == oid), after)
        until = None if truncated is None else (truncated[0], truncated[1])
        return cls(lsn, time_of(micros), oid, until, not others, rows)


def is_after(lsn: int) -> Column:
    """Return the condition that a change has a later commit LSN."""
    held, given = _structs("_commit_lsn", lsn)
    return held > given


def is_of(relation: int) -> Column:
    """Return the condition that a change is one of a relation."""
    held, given = _structs(RELATION_OID, relation)
    return held == given


def _structs(name: str, value: int) -> tuple[Column, Column]:
    """Return a column and a number as structs that can be compared.

    Spark writes numbers into the code that it generates, and would compile it again for each of
    them. It does not write structs.
    """
    from pyspark.sql import functions

    given = functions.lit(value).cast("long").alias(name)
    return functions.struct(name), functions.struct(given)


def time_of(micros: int | None) -> datetime | None:
    """Return the time of microseconds since 1970."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
