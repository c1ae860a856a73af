"""Requests to a mirror about single tables: to resume one, and to replay its changes."""

from __future__ import annotations

import os
from dataclasses import replace

from pgwire_codec.errors import TableError
from pgwire_codec.lake.history import HISTORY_COLUMNS
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.replay import check_keys
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.lake.status import REPLAYING, RESUMING, SET_ASIDE
from pgwire_codec.log import Log


def resume_table(lake: Lake, table: str) -> None:
    """Have a mirror resume a table that is set aside, with its next turn.

    The changes that the target does not have are read from the log. The mirror need not run.

    Raises ``TableError`` when the table is not set aside. The hint lists those that are.
    """
    status = lake.status()
    while True:
        rows = status.read()
        aside = [name for name, row in rows.items() if row.state == SET_ASIDE]
        if table not in aside:
            raise TableError(
                f"table {table} is not set aside",
                hint=f"Tables that are set aside: {', '.join(aside) or 'none'}.",
            )
        if status.write((rows | {table: replace(rows[table], state=RESUMING)}).values()):
            return


def replay_table(lake: Lake, log: str | os.PathLike[str] | Log, table: str) -> None:
    """Have a mirror apply the changes of a table again, from its first dead letter on.

    Raises ``TableError`` when the table has no dead letters: the hint lists those that have some.
    Also when its rows are not found by a key, or the target has its history: changes that are
    applied again would be there twice.
    """
    opened = log if isinstance(log, Log) else Log(os.fspath(log))
    status = lake.status()
    while True:
        rows = status.read()
        lacking = [name for name, row in rows.items() if row.dead_letters]
        if table not in lacking:
            raise TableError(
                f"table {table} has no dead letters",
                hint=f"Tables with dead letters: {', '.join(lacking) or 'none'}.",
            )
        row = rows[table]
        is_history = set(HISTORY_COLUMNS) <= set(row.row_columns or ())
        check_keys(table, opened.relation(table).relation, RowColumns(is_history=is_history))
        if status.write((rows | {table: replace(row, state=REPLAYING)}).values()):
            return
