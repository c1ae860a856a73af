"""Start of a stream where its log ends, after a check that the slot continues the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pgwire_codec.capture.capture import Capture
from pgwire_codec.capture.catalog.slots import SlotMissing, not_promoted
from pgwire_codec.capture.connection.interrupt import Interrupt, Interrupted
from pgwire_codec.capture.log_continuity import (
    LoggedTransactions,
    RepeatedTransactions,
    check_positions,
    check_same_history,
    slot_lost,
)
from pgwire_codec.capture.log_forms import check_form
from pgwire_codec.capture.start_replication import StreamRequest

if TYPE_CHECKING:
    from pgwire_codec.capture.connection.notices import ServerNotices
    from pgwire_codec.log import LogWriter

_TICK: Final = 0.25  # seconds between checks for a stop


class CheckedStart:
    """Starts the stream of a log.

    Parameters
    ----------
    dsn : str
    log : str or path
    request : StreamRequest
        What to ask the server for. Slot and publication are created for a new log only.
    receive_timeout : float
        As for :class:`~pgwire_codec.capture.Capture`.
    interrupt : Interrupt
        Ends the start from another thread.
    noted : callable
        Receives the notes of the stream before its first message: the server may send nothing
        for a reason that they name.
    notices : ServerNotices
        Receives the server's notices.
    """

    def __init__(
        self,
        dsn: str,
        log: str | os.PathLike[str],
        request: StreamRequest,
        *,
        receive_timeout: float,
        interrupt: Interrupt,
        noted: Callable[[Sequence[str]], None],
        notices: ServerNotices,
    ) -> None:
        self._dsn = dsn
        self._log = log
        self._request = request
        self._receive_timeout = receive_timeout
        self._interrupt = interrupt
        self._noted = noted
        self._notices = notices

    def open(self, writer: LogWriter) -> Capture:
        """Return the stream.

        Raises
        ------
        CaptureError
            When the slot does not continue the log, the server was set back, or values would come
            in another form than the log has, and would differ.
        LogError
            When the log is of another source.
        Interrupted
            When the interrupt is set.
        """
        capture = self._start(writer)
        try:
            can_repeat = check_positions(writer, capture, self._request.slot, self._log)
        except BaseException:
            capture.close()
            raise
        if not can_repeat:
            return capture
        # The server repeats transactions of the log over the slot, which has but one reader.
        capture.close()
        self._check_history(writer)
        return self._start(writer)

    def _start(self, writer: LogWriter, repeated: Mapping[str, str] | None = None) -> Capture:
        """Start the stream where the log ends; with ``repeated`` options, where the slot is."""
        is_new = writer.confirm_lsn == 0
        request = self._request
        capture = Capture(
            self._dsn,
            slot=request.slot,
            options=request.options,
            create_slot=request.create_slot and is_new,
            create_publication=request.create_publication,
            failover=request.failover,
            start_lsn=0 if repeated else writer.confirm_lsn,
            slot_timeout=request.slot_timeout,
            receive_timeout=self._receive_timeout,
            auto_advance=False,
            interrupt=self._interrupt,
            notices=self._notices,
        )
        if repeated is not None:
            capture.repeat(repeated)
        try:
            capture.__enter__()
        except SlotMissing as error:
            if is_new:
                raise
            if error.on_standby:
                raise not_promoted(error.primary) from error
            raise slot_lost(writer, request.slot, self._log, "no longer exists") from error
        self._noted(capture.notes)
        try:
            writer.check_source(capture.source)
            if repeated is None:
                check_form(self._log, writer, capture.source)
        except BaseException:
            capture.close()
            raise
        return capture

    def _check_history(self, writer: LogWriter) -> None:
        """Raise ``CaptureError`` unless the server repeats the transactions of the log."""
        from pgwire_codec.log import Log

        log = Log(self._log)
        last = log.segment(len(log) - 1).header.source if len(log) else log.source
        # A transaction may be streamed or not, depending on what else is decoded.
        options = {k: v for k, v in last.plugin_options.items() if k != "streaming"}
        if self._request.options.binary:
            # No value is compared, and one that exceeds 1 GB as text may be why the form changes.
            options["binary"] = "true"
        end = writer.end_lsn
        capture = self._start(writer, repeated=options)
        try:
            logged = LoggedTransactions(log, max(capture.confirmed_lsn - 1, 0))
            repeated = RepeatedTransactions()
            while not capture.has_passed(end):
                if self._interrupt.event.is_set():
                    raise Interrupted
                repeated.add(capture.read(max_seconds=_TICK, until_lsn=end))
        finally:
            capture.close()
        check_same_history(
            logged,
            repeated,
            confirm_lsn=writer.confirm_lsn,
            is_whole=logged.were_selected_by(options),
            log=str(self._log),
        )
