"""Timelines of a server's WAL: a promotion begins a new one, at an LSN of the one before.

PostgreSQL documentation, "Timelines" and, of the streaming replication protocol,
``TIMELINE_HISTORY``.
"""

from __future__ import annotations

from typing import Any, Final

from pgwire_codec.protocol.lsn import parse_lsn

_FIRST: Final = 1  # the timeline of initdb, which has no history


def read_ancestors(cursor: Any, timeline: int) -> dict[int, int]:
    """Return the timelines that a server's timeline descends from.

    Parameters
    ----------
    cursor
        Of a replication connection.
    timeline : int
        Number of the timeline, as ``IDENTIFY_SYSTEM`` reports it.

    Returns
    -------
    dict of int to int
        For each ancestor, the LSN up to which its WAL is the server's. Empty if the server has
        removed the timeline's history file.
    """
    from psycopg2.errors import UndefinedFile

    if timeline == _FIRST:
        return {}
    try:
        cursor.execute(f"TIMELINE_HISTORY {timeline}")
    except UndefinedFile:
        return {}
    _, content = cursor.fetchone()
    # Before PostgreSQL 15 the column is declared as bytea.
    return parse_history(content if isinstance(content, str) else bytes(content).decode())


def parse_history(text: str) -> dict[int, int]:
    """Return the ancestors that a timeline's history file lists.

    A line has a timeline, the LSN at which it was left, and the reason. ``#`` begins a comment.
    """
    lines = [line.split("#")[0].split(maxsplit=2) for line in text.splitlines()]
    return {int(line[0]): parse_lsn(line[1]) for line in lines if len(line) > 1}
