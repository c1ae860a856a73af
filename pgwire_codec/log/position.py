"""LogPosition: a place in a log."""

from __future__ import annotations

from operator import index
from typing import NamedTuple


class LogPosition(NamedTuple):
    """A place between two messages of a log.

    Attributes
    ----------
    ordinal : int
        Ordinal of the message after it.
    lsn : int
        Commit LSN of the last transaction delivered before it. Ranges of a log are ranges of these.
    """

    ordinal: int = 0
    lsn: int = 0


def commit_lsn_of(position: LogPosition | int, name: str) -> int:
    """Return the commit LSN of an argument; raise ``TypeError`` for an argument without one."""
    if isinstance(position, LogPosition):
        return position.lsn
    try:
        return index(position)
    except TypeError:
        raise TypeError(
            f"{name} must be a commit LSN as a number or a LogPosition, not {position!r}: "
            "pgwire_codec.parse_lsn reads the text of one"
        ) from None
