"""Status of a capture into a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pgwire_codec.log import LogWriter

State = Literal["connecting", "snapshot", "streaming", "waiting", "stopped"]


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a capture into a log.

    Attributes
    ----------
    state : {"connecting", "snapshot", "streaming", "waiting", "stopped"}
        ``waiting`` is for the next attempt to connect.
    messages, bytes : int
        Messages written to the log, and their bytes, since :meth:`LogCapture.run` was called.
    log_bytes, segments : int
        Bytes of the files they were written to, and segments begun.
    snapshot_rows, snapshot_tables : int
        Rows copied by the snapshot, and tables begun.
    connections : int
        Number of times that the stream was started.
    confirmed_lsn : int or None
        LSN up to which the server may discard WAL: all before it is durable. It starts at the
        slot's own position, and is None until that is known.
    received_lsn : int
        Highest LSN that the server has reported.
    commit_time : int or None
        Commit time of the last transaction received, in microseconds since 2000.
    problem : str or None
        Error of the last attempt, while the connection is down.
    notes : tuple of str
        Remarks on the slot and the server's settings.
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


class StatusBoard:
    """Current status of a running capture: one thread updates it, any thread reads it."""

    def __init__(self) -> None:
        # Of the status, which is read less often than it changes.
        self._fields: dict[str, Any] = {"messages": 0, "bytes": 0}

    @property
    def status(self) -> Status:
        return Status(**self._fields)

    def update(self, **changes: Any) -> None:
        """Change fields of the status."""
        self._fields = {**self._fields, **changes}

    def appended(self, writer: LogWriter, messages: int, size: int, **changes: Any) -> None:
        """Count messages that were passed to a writer, and their bytes."""
        changes["messages"] = self._fields["messages"] + messages
        changes["bytes"] = self._fields["bytes"] + size
        self.written(writer, **changes)

    def written(self, writer: LogWriter, **changes: Any) -> None:
        """Copy the writer's statistics, and change other fields."""
        statistics = writer.statistics
        self.update(log_bytes=statistics.bytes, segments=statistics.segments, **changes)
