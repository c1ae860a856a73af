"""What was received, and what may therefore be confirmed. No I/O."""

from __future__ import annotations

from typing import Final

_OPENS: Final = frozenset(b"BbS")  # Begin, Begin Prepare, Stream Start
_CLOSES: Final = frozenset(b"CPE")  # Commit, Prepare, Stream Stop
#: Commit, Prepare, Stream Commit, Stream Prepare, Commit Prepared, Rollback Prepared: after a
#: restart the server repeats what such a message ends, unless its LSN was confirmed.
_ENDS: Final = frozenset(b"CPcpKr")
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

    def message(self, tag: int, lsn: int) -> None:
        """Take note of a message: its first byte and the position that came with it."""
        if lsn > self.received:
            self.received = lsn
        if tag in _OPENS:
            self.is_open = True
            return
        # Outside of transactions a Message stands for itself.
        if tag in _ENDS or (tag == _MESSAGE and not self.is_open):
            self.required = max(self.required, lsn)
            self.reached = max(self.reached, lsn)
        if tag in _CLOSES:
            self.is_open = False

    def keepalive(self, wal_end: int) -> None:
        """Take note of a keepalive: the server has sent all it had to send up to ``wal_end``."""
        self.received = max(self.received, wal_end)
        self.reached = max(self.reached, wal_end)

    def confirm(self, lsn: int) -> None:
        """Take note that the caller has made everything up to ``lsn`` durable."""
        self.confirmed = max(self.confirmed, lsn)

    def advance_idle(self) -> None:
        """Let the slot pass WAL with nothing in it for us, when nothing is left to confirm."""
        if self.confirmed >= self.required and not self.is_open:
            self.confirmed = max(self.confirmed, self.reached)

    def has_passed(self, lsn: int) -> bool:
        """Whether all up to ``lsn`` was received and no transaction is cut."""
        return self.reached >= lsn and not self.is_open
