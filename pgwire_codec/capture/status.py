"""Status of a capture into a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from errno import errorcode
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    pruned_segments : int
        Segments that were removed, because of the retention.
    snapshot_rows, snapshot_rows_expected : int
        Rows that the snapshot has copied, and an estimate of all. The estimate is based on the
        server's statistics, and becomes exact as the copy proceeds.
    snapshot_tables, snapshot_tables_expected : int
        Tables that are copied in full, and all.
    snapshot_bytes, snapshot_bytes_expected : int
        Bytes that the copied parts of the tables take on the server's disk, and all of them.
    connections : int
        Number of times that the stream was started.
    confirmed_lsn : int or None
        LSN up to which the server may discard WAL: all before it is durable. It starts at the
        slot's own position, and is None until that is known.
    received_lsn : int
        Highest LSN that the server has reported.
    transactions : int
        Commits received since then.
    commit_time : int or None
        Commit time of the last transaction received, in microseconds since 2000.
    problem : str or None
        Error of the last attempt, while the connection is down.
    errors : mapping of str to int
        Number of errors since :meth:`LogCapture.run` was called, by their code: the SQLSTATE, the
        name of the system's error, as ``ENOSPC``, or the name of the error's class.
    notices : mapping of str to int
        Number of the server's notices and warnings on the stream's connection since then, by
        SQLSTATE.
    notes : tuple of str
        Remarks on the slot and the server's settings, and the server's last notices.
    """

    state: State = "connecting"
    messages: int = 0
    bytes: int = 0
    log_bytes: int = 0
    segments: int = 0
    pruned_segments: int = 0
    snapshot_rows: int = 0
    snapshot_rows_expected: int = 0
    snapshot_tables: int = 0
    snapshot_tables_expected: int = 0
    snapshot_bytes: int = 0
    snapshot_bytes_expected: int = 0
    connections: int = 0
    confirmed_lsn: int | None = None
    received_lsn: int = 0
    transactions: int = 0
    commit_time: int | None = None
    problem: str | None = None
    errors: Mapping[str, int] = field(default_factory=dict, hash=False)
    notices: Mapping[str, int] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()


def code_of(error: BaseException) -> str:
    """Return the code by which an error is counted; see :attr:`Status.errors`."""
    sqlstate: str | None = getattr(error, "sqlstate", None)
    if sqlstate is not None:
        return sqlstate
    cause = error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    return type(error).__name__ if number is None else errorcode.get(number, str(number))


class StatusBoard:
    """Current status of a running capture: one thread updates it, any thread reads it."""

    def __init__(self) -> None:
        # Of the status, which is read less often than it changes.
        self._fields: dict[str, Any] = {"messages": 0, "bytes": 0, "transactions": 0, "errors": {}}
        self._progressed = monotonic()

    @property
    def status(self) -> Status:
        return Status(**self._fields)

    @property
    def stalled_seconds(self) -> float:
        """Seconds since :meth:`progressed` was called; 0 unless streaming."""
        is_streaming = self._fields.get("state") == "streaming"
        return monotonic() - self._progressed if is_streaming else 0.0

    def update(self, **changes: Any) -> None:
        """Change fields of the status."""
        if "state" in changes:
            self.progressed()
        self._fields = {**self._fields, **changes}

    def progressed(self) -> None:
        """Record that the stream is being read, and that no flush is unfinished."""
        self._progressed = monotonic()

    def failed(self, error: BaseException) -> None:
        """Count an error."""
        errors, code = self._fields["errors"], code_of(error)
        self.update(errors={**errors, code: errors.get(code, 0) + 1})

    def appended(
        self, writer: LogWriter, messages: int, size: int, transactions: int = 0, **changes: Any
    ) -> None:
        """Count messages that were passed to a writer, their bytes, and commits among them."""
        changes["messages"] = self._fields["messages"] + messages
        changes["transactions"] = self._fields["transactions"] + transactions
        changes["bytes"] = self._fields["bytes"] + size
        self.written(writer, **changes)

    def written(self, writer: LogWriter, **changes: Any) -> None:
        """Copy the writer's statistics, and change other fields."""
        statistics = writer.statistics
        self.update(log_bytes=statistics.bytes, segments=statistics.segments, **changes)
