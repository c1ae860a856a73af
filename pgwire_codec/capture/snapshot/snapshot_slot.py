"""SnapshotSlot: the replication slot whose creation exports a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgwire_codec.capture.catalog.slots import drop_slot, is_replaceable, slot_exists
from pgwire_codec.capture.connection.connect import load_psycopg2
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.quoting import quote_identifier, quote_literal

if TYPE_CHECKING:
    from pgwire_codec.capture.start_replication import StreamRequest
    from pgwire_codec.log import LogWriter


class SnapshotSlot:
    """The slot of a snapshot.

    Parameters
    ----------
    request : StreamRequest
        The slot to create, and the options of its stream.
    """

    def __init__(self, request: StreamRequest) -> None:
        self._request = request

    def create(self, commands: Any) -> None:
        """Create the slot; the cursor of a walsender then has its LSN and its snapshot."""
        two_phase = ", TWO_PHASE" if self._request.options.two_phase else ""
        failover = ", FAILOVER" if self._request.failover else ""
        create_exporting(commands, self._request.slot, more=two_phase + failover)

    def remove_old(self, cursor: Any, writer: LogWriter) -> None:
        """Drop an existing slot of the name if it belongs to the log alone.

        Raises ``CaptureError`` when it does not.
        """
        slot = self._request.slot
        if not slot_exists(cursor, slot):
            return
        is_of_interrupted_snapshot = writer.end_ordinal > 0
        if not is_of_interrupted_snapshot and not is_replaceable(
            cursor, slot, writer.confirm_lsn, failover=self._request.failover
        ):
            raise CaptureError(
                f'replication slot "{slot}" already exists, and a snapshot begins with a new one',
                hint="Use another name, run SELECT "
                f"pg_drop_replication_slot({quote_literal(slot)}); if the slot is not needed, or "
                "capture its stream without a snapshot.",
            )
        drop_slot(cursor, slot, timeout=self._request.slot_timeout)

    def drop_new(self, commands: Any) -> None:
        """Drop the slot that was just created; if that fails, the next snapshot drops it."""
        psycopg2 = load_psycopg2()
        command = f"DROP_REPLICATION_SLOT {quote_identifier(self._request.slot)} WAIT"
        for _ in range(2):
            try:
                commands.execute(command)
            except psycopg2.errors.QueryCanceled:
                continue  # it was meant for the previous statement, which had ended before
            except psycopg2.Error:
                return
            return


def create_exporting(commands: Any, slot: str, *, temporary: bool = False, more: str = "") -> None:
    """Create a slot; the cursor of a walsender then has its LSN and its snapshot.

    ``more`` are options for PostgreSQL 15 and later.
    """
    kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
    head = f"CREATE_REPLICATION_SLOT {quote_identifier(slot)} {kind} pgoutput"
    if commands.connection.server_version < 150000:
        commands.execute(f"{head} EXPORT_SNAPSHOT")
    else:
        commands.execute(f"{head} (SNAPSHOT {quote_literal('export')}{more})")
