"""Checks that a slot continues a log at its last durable position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    import os

    from pgwire_codec.capture.capture import Capture
    from pgwire_codec.log import LogWriter

_NEW_LOG = "Begin a new log, with a snapshot."


def check_begins_with_snapshot(log: str | os.PathLike[str]) -> None:
    """Raise ``CaptureError`` when a log with messages began without a snapshot."""
    from pgwire_codec.log import Log

    first = Log(log).segment(0).header
    if first.first_ordinal == 0 and not first.snapshot:
        raise CaptureError(
            f"the log {log} began without a snapshot and contains changes",
            hint="A snapshot can only be the beginning of a log: capture into a new log with a "
            "new slot. To continue this one, omit `snapshot=True`.",
        )


def check_positions(
    writer: LogWriter, capture: Capture, slot: str, log: str | os.PathLike[str]
) -> bool:
    """Return whether the server can repeat transactions that the log contains.

    Raises
    ------
    CaptureError
        When transactions between the log and the slot are lost, or the server's WAL ends before
        the log.
    """
    if writer.confirm_lsn == 0:
        return False
    if capture.confirmed_lsn > writer.confirm_lsn:
        confirmed = format_lsn(capture.confirmed_lsn)
        raise slot_lost(writer, slot, log, f"is already confirmed up to {confirmed}")
    end = end_of(writer)
    if capture.wal_end_lsn < end:
        raise CaptureError(
            f"the log {log} contains transactions up to {format_lsn(end)}, and the server's WAL "
            f"ends at {format_lsn(capture.wal_end_lsn)}: the server was set back",
            hint="The server was probably restored from an older copy. Begin a new log.",
        )
    return capture.confirmed_lsn < end


def slot_lost(
    writer: LogWriter, slot: str, log: str | os.PathLike[str], state: str
) -> CaptureError:
    """Return the error for a slot whose state does not allow it to continue the log."""
    return CaptureError(
        f'replication slot "{slot}" {state}, and the log {log} contains transactions up to '
        f"{format_lsn(writer.confirm_lsn)}: those committed between are lost",
        hint="The slot was dropped or read by another consumer, or the log is an older copy. "
        + _NEW_LOG,
    )


def end_of(writer: LogWriter) -> int:
    """Return the LSN up to which the server must have the transactions of the log."""
    # The log may contain a transaction whose end was not yet confirmed.
    delivered = writer.delivered_lsn
    return max(writer.confirm_lsn, delivered + 1 if delivered else 0)


def midway_note(slot: str, lsn: int) -> str:
    """Return the note for a log that begins at an existing slot."""
    return (
        f'the log begins at {format_lsn(lsn)}, the position of slot "{slot}": rows that were '
        "committed before are not in it. A log that begins with a snapshot has them."
    )
