"""What was received, and what may therefore be confirmed. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _table(tags: bytes) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(tags)] = True
    return table


_OPENS: Final = _table(b"BbS")  # Begin, Begin Prepare, Stream Start
_CLOSES: Final = _table(b"CPE")  # Commit, Prepare, Stream Stop
#: Commit, Prepare, Stream Commit, Stream Prepare, Commit Prepared, Rollback Prepared: after a
#: restart the server repeats what such a message ends, unless its LSN was confirmed.
_ENDS: Final = _table(b"CPcpKr")
_MESSAGE: Final = ord("M")


class Progress:
    """The positions of one stream, as messages and keepalives come in.

    Attributes
    ----------
    received : int
        The highest WAL position seen.
    required : int
        The end of the last transaction received: what has to be confirmed before the slot may
        advance by itself.
    reached : int
        Every transaction that ends up to here has been received.
    confirmed : int
        What the server may forget.
    is_open : bool
        Whether the last message was inside a transaction or a stream block.
    """

    __slots__ = ("confirmed", "is_open", "reached", "received", "required")

    def __init__(self, confirmed: int) -> None:
        self.received = self.required = self.reached = self.confirmed = confirmed
        self.is_open = False

    def messages(self, tags: NDArray[np.uint8], lsns: NDArray[np.uint64]) -> None:
        """Take note of messages: the first byte of each, and the position that came with it."""
        if not len(tags):
            return
        self.received = max(self.received, int(lsns.max()))
        opens = _OPENS[tags]
        turns = np.flatnonzero(opens | _CLOSES[tags])
        ends = _ENDS[tags]
        alone = np.flatnonzero(tags == _MESSAGE)
        if len(alone):
            # Outside of transactions a Message stands for itself.
            states = np.concatenate([[self.is_open], opens[turns]])
            ends[alone[~states[np.searchsorted(turns, alone)]]] = True
        if ends.any():
            last = int(lsns[ends].max())
            self.required = max(self.required, last)
            self.reached = max(self.reached, last)
        if len(turns):
            self.is_open = bool(opens[turns[-1]])

    def keepalive(self, wal_end: int) -> None:
        """Take note of a keepalive: the server has sent all it had to send up to ``wal_end``."""
        self.received = max(self.received, wal_end)
        self.reached = max(self.reached, wal_end)

    def confirm(self, lsn: int) -> None:
        """Take note that the caller has made everything up to ``lsn`` durable."""
        self.confirmed = max(self.confirmed, lsn)

    @property
    def confirmable(self) -> int:
        """What may be confirmed once all that was received is durable.

        Beyond the last transaction, that is WAL with nothing in it for us.
        """
        return self.required if self.is_open else max(self.required, self.reached)

    def advance_idle(self) -> None:
        """Let the slot pass WAL with nothing in it for us, when nothing is left to confirm."""
        if self.confirmed >= self.required:
            self.confirm(self.confirmable)

    def has_passed(self, lsn: int) -> bool:
        """Whether all up to ``lsn`` was received and no transaction is cut."""
        return self.reached >= lsn and not self.is_open
