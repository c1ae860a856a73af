"""Positions of a stream: received, required, reached, confirmed. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec.codec.tables import tagged
from pgwire_codec.protocol.tags import CLOSES, ENDS, OPENS

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Messages that are counted one by one: numpy takes as long for a hundred.
_FEW: Final = 16
_MESSAGE: Final = ord("M")


class Positions:
    """Positions of one stream, updated with each message and keepalive.

    Attributes
    ----------
    received : int
        Highest LSN seen.
    required : int
        End of the last transaction received: the LSN that has to be confirmed before the slot may
        advance by itself.
    reached : int
        Every transaction that ends up to this LSN has been received.
    confirmed : int
        LSN up to which the server may discard WAL.
    is_open : bool
        Whether the last message was inside a transaction or a stream block.
    """

    __slots__ = ("confirmed", "is_open", "reached", "received", "required")

    def __init__(self, confirmed: int) -> None:
        self.received = self.required = self.reached = self.confirmed = confirmed
        self.is_open = False

    def add_messages(self, tags: NDArray[np.uint8], lsns: NDArray[np.uint64]) -> None:
        """Count in messages: the first byte of each, and the LSN of its frame."""
        if len(tags) <= _FEW:
            for tag, lsn in zip(tags.tolist(), lsns.tolist(), strict=True):
                self._add(tag, lsn)
            return
        self.received = max(self.received, int(lsns.max()))
        opens = tagged(tags, OPENS)
        turns = np.flatnonzero(opens | tagged(tags, CLOSES))
        ends = tagged(tags, ENDS)
        alone = np.flatnonzero(tagged(tags, b"M"))
        if len(alone):
            # Outside of transactions a Message is a unit of its own.
            states = np.concatenate([[self.is_open], opens[turns]])
            ends[alone[~states[np.searchsorted(turns, alone)]]] = True
        if ends.any():
            last = int(lsns[ends].max())
            self.required = max(self.required, last)
            self.reached = max(self.reached, last)
        if len(turns):
            self.is_open = bool(opens[turns[-1]])

    def _add(self, tag: int, lsn: int) -> None:
        """Count in one message."""
        self.received = max(self.received, lsn)
        if tag in ENDS or (tag == _MESSAGE and not self.is_open):
            self.required = max(self.required, lsn)
            self.reached = max(self.reached, lsn)
        if tag in OPENS:
            self.is_open = True
        elif tag in CLOSES:
            self.is_open = False

    def add_keepalive(self, wal_end: int) -> None:
        """Count in a keepalive: the server has sent everything up to ``wal_end``."""
        self.received = max(self.received, wal_end)
        self.reached = max(self.reached, wal_end)

    def confirm(self, lsn: int) -> None:
        """Record that everything up to ``lsn`` is durable."""
        self.confirmed = max(self.confirmed, lsn)

    @property
    def confirmable(self) -> int:
        """LSN that may be confirmed once everything received is durable.

        Beyond the last transaction, it covers WAL without changes for the slot.
        """
        return self.required if self.is_open else max(self.required, self.reached)

    def advance_idle(self) -> None:
        """Confirm WAL without changes for the slot, if nothing else is left to confirm."""
        if self.confirmed >= self.required:
            self.confirm(self.confirmable)

    def has_passed(self, lsn: int) -> bool:
        """Return whether everything up to ``lsn`` was received, and no transaction is cut."""
        return self.reached >= lsn and not self.is_open
