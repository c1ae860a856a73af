"""How a capture into a log stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pgwire_codec.log import LogWriter

State = Literal["connecting", "snapshot", "streaming", "waiting", "stopped"]


@dataclass(frozen=True, slots=True)
class Status:
    """How a capture into a log stands.

    Attributes
    ----------
    state : {"connecting", "snapshot", "streaming", "waiting", "stopped"}
        What it is doing; ``waiting`` for the next attempt to connect.
    messages, bytes : int
        How many messages were written to the log, and their bytes, since :meth:`LogCapture.run`.
    log_bytes, segments : int
        What became of them: bytes of files, and segments begun.
    snapshot_rows, snapshot_tables : int
        How much of the snapshot was copied.
    connections : int
        How many times the stream was begun.
    confirmed_lsn : int or None
        What the server was told it may forget: all before it is durable. At the beginning it is
        the slot's own position; None until that is known.
    received_lsn : int
        The highest position that the server has told.
    commit_time : int or None
        When the last transaction received was committed: microseconds since 2000.
    problem : str or None
        Why the last attempt failed, while there is no connection.
    notes : tuple of str
        What the server's settings make worth knowing.
    """

    state: State = "connecting"
    messages: int = 0
    bytes: int = 0
    log_bytes: int = 0
    segments: int = 0
    snapshot_rows: int = 0
    snapshot_tables: int = 0
    connections: int = 0
    confirmed_lsn: int | None = None
    received_lsn: int = 0
    commit_time: int | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()


class Bulletin:
    """The status of a running capture: one thread changes it, any thread reads it."""

    def __init__(self) -> None:
        self.status = Status()

    def tell(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.status = replace(self.status, **changes)

    def appended(self, writer: LogWriter, messages: int, size: int, **changes: Any) -> None:
        """Count messages, and their bytes, that a writer has taken."""
        status = self.status
        self.tell(messages=status.messages + messages, bytes=status.bytes + size, **changes)
        self.written(writer)

    def written(self, writer: LogWriter) -> None:
        """Take over what a writer has made of its messages."""
        statistics = writer.statistics
        self.tell(log_bytes=statistics.bytes, segments=statistics.segments)
