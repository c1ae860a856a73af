"""Requests to a mirror about single tables: to resume one, and to replay its changes.

A replay applies changes again to rows that have later ones. The net changes of a range are the last
state of each key that it touches. So they can be applied again to rows that have some of them, or
all: inserts and updates become the last state, deletes are repeated, and a truncate empties the
target first. A value that no change in the range has (unchanged TOAST) is that of the target's row:
no change of the range has touched it there.

That row is not the right one if the key changed: the value is then that of the row with the former
key, as of the beginning of the range. Meanwhile, the target can have no such row, or another one.
Nor are the last states certain if rows are not found by a key, or if columns changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.changes.identity import column_names, key_columns
from pgwire_codec.errors import TableError
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.row_columns import HISTORY_COLUMNS
from pgwire_codec.lake.status import REPLAYING, RESUMING, SET_ASIDE, TableStatus
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import VersionInForce
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation


def resume_table(lake: Lake, table: str) -> None:
    """Have a mirror resume a table that is set aside, with its next turn.

    The changes that the target does not have are read from the log. The mirror need not run.

    Raises ``TableError`` when the table is not set aside. The hint lists those that are.
    """

    def check(rows: dict[str, TableStatus]) -> None:
        aside = [name for name, row in rows.items() if row.state == SET_ASIDE]
        if table not in aside:
            raise TableError(
                f"table {table} is not set aside",
                hint=f"Tables that are set aside: {', '.join(aside) or 'none'}.",
            )

    _request(lake, table, RESUMING, check)


def replay_table(lake: Lake, log: str | os.PathLike[str] | Log, table: str) -> None:
    """Have a mirror apply the changes of a table again, from its first dead letter on.

    Raises ``TableError`` when the table has no dead letters: the hint lists those that have some.
    Also when its rows are not found by a key, or the target has its history: changes that are
    applied again would be there twice.
    """
    opened = log if isinstance(log, Log) else Log(os.fspath(log))

    def check(rows: dict[str, TableStatus]) -> None:
        lacking = [name for name, row in rows.items() if row.dead_letters]
        if table not in lacking:
            raise TableError(
                f"table {table} has no dead letters",
                hint=f"Tables with dead letters: {', '.join(lacking) or 'none'}.",
            )
        is_history = set(HISTORY_COLUMNS) <= set(rows[table].row_columns or ())
        check_keys(table, opened.relation(table).relation, is_history=is_history)

    _request(lake, table, REPLAYING, check)


def _request(
    lake: Lake, table: str, state: str, check: Callable[[dict[str, TableStatus]], None]
) -> None:
    """Set the state of a table, after a check of the status of all tables."""
    status = lake.status()
    is_written = False
    while not is_written:
        rows = status.read()
        check(rows)
        is_written = status.write((rows | {table: replace(rows[table], state=state)}).values())


def check_keys(table: str, relation: Relation, *, is_history: bool) -> None:
    """Raise ``TableError`` if the rows of a target are not found by a key."""
    if is_history:
        raise TableError(
            f"changes of {table} cannot be replayed: its history would have them twice",
            hint="Write the history again from the log, into another target.",
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
