"""Conditions for a replay: changes that are applied again to rows that have later ones.

The net changes of a range are the last state of each key that it touches. So they can be applied
again to rows that have some of them, or all: inserts and updates become the last state, deletes
are repeated, and a truncate empties the target first. A value that no change in the range has
(unchanged TOAST) is that of the target's row: no change of the range has touched it there.

That row is not the right one if the key changed: the value is then that of the row with the former
key, as of the beginning of the range. Meanwhile, the target can have no such row, or another one.
Nor are the last states certain if rows are not found by a key, or if columns changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.changes.identity import column_names, key_columns
from pgwire_codec.errors import TableError
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.log.relation_history import VersionInForce
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation

#: Hint for a history, which a copy of the table does not repair.
_NEW_TARGET: Final = "Write the history again from the log, into another target."


def check_keys(table: str, relation: Relation, form: RowColumns) -> None:
    """Raise ``TableError`` if the rows of a target are not found by a key."""
    if form.is_history:
        raise TableError(
            f"changes of {table} cannot be replayed: its history would have them twice",
            hint=_NEW_TARGET,
        )
    if key_columns(relation) is None:
        identity = "all their values" if relation.replica_identity == "f" else "nothing"
        raise TableError(
            f"changes of {table} cannot be replayed: its rows are identified by {identity}",
            hint=COPY_AGAIN,
        )


def check_history(table: str, versions: Sequence[VersionInForce]) -> None:
    """Raise ``TableError`` if columns or the replica identity changed in a range."""
    first, *others = (version.relation for version in versions)
    for other in others:
        if column_names(other) != column_names(first) or key_columns(other) != key_columns(first):
            raise TableError(
                f"changes of {table} cannot be replayed: its columns or its replica identity "
                "changed since the first of them",
                hint=COPY_AGAIN,
            )


def moved_without_values(table: str, commit_lsn: int) -> TableError:
    """Return the error for an update that changed a key and did not send all values."""
    return TableError(
        f"changes of {table} cannot be replayed: the update with commit LSN "
        f"{format_lsn(commit_lsn)} changed a key and did not send all values (unchanged TOAST)",
        hint=COPY_AGAIN,
    )
