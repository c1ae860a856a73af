"""Places in a log."""

from __future__ import annotations

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
