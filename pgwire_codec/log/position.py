"""Places in a log."""

from __future__ import annotations

from operator import index
from typing import NamedTuple


class Position(NamedTuple):
    """A place between two messages.

    Attributes
    ----------
    ordinal : int
        Of the message behind it.
    lsn : int
        Commit LSN of the last transaction delivered before it. Ranges of a log are ranges of these.
    """

    ordinal: int = 0
    lsn: int = 0


def commit_lsn(name: str, place: Position | int) -> int:
    """Give the commit LSN that an argument tells; ``TypeError`` for one that is no place."""
    if isinstance(place, Position):
        return place.lsn
    try:
        return index(place)
    except TypeError:
        raise TypeError(
            f"{name} must be a commit LSN as a number or a Position, not {place!r}: "
            "pgwire_codec.parse_lsn reads the text of one"
        ) from None
