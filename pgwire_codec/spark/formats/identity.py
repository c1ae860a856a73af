"""Replica identity of a table: the columns by which updates and deletes name their row."""

from __future__ import annotations

import numpy as np

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import TableError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.failures import COPY_AGAIN


def column_names(relation: Relation) -> list[str]:
    """Return the names of all columns."""
    return [column.name for column in relation.columns]


def key_columns(relation: Relation) -> list[str] | None:
    """Return the columns that identify a row; None if it is the whole row, or nothing."""
    if relation.replica_identity == "f":
        return None
    return [column.name for column in relation.columns if column.flags & 1] or None


def has_other_identity(batch: ChangeBatch, relation: Relation) -> bool:
    """Return whether updates or deletes were sent with another identity than a version has."""
    return key_columns(batch.relation) != key_columns(relation) and bool(_row_changes(batch).any())


def check_identity(batch: ChangeBatch, relation: Relation) -> None:
    """Raise ``TableError`` if :func:`has_other_identity`."""
    if not has_other_identity(batch, relation):
        return
    lsn = int(batch.commit_lsn[_row_changes(batch)][0])
    raise TableError(
        f"{batch.version.qualified_name}, commit LSN {format_lsn(lsn)}: an update or delete was "
        f"sent with the replica identity {_shown(batch.relation)}, and the table has "
        f"{_shown(relation)} at the end of the range",
        hint="The old values of the other columns were not sent, so the row cannot be found by "
        f"them. {COPY_AGAIN} Alter a replica identity in a transaction of its own.",
    )


def _row_changes(batch: ChangeBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(batch.op, (ord("U"), ord("D")))


def _shown(relation: Relation) -> str:
    keys = key_columns(relation)
    return "of whole rows" if keys is None else ", ".join(keys)
