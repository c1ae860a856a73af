"""Checks that a slot and its server continue a log: by its position, and by its transactions.

A server that was restored from an older copy of its files has the same identity, timeline and slot
as the original. Only the transactions committed since then distinguish them. The slot's position
went back with the copy, so the server can repeat the transactions that the log has from there on.
Those of the same history have the same commit LSN, xid and commit time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.codec.tables import tagged
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.epoch import unix_microseconds
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.reference import decode_message

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.capture.capture import Capture
    from pgwire_codec.log import Log, LogWriter

#: A committed transaction; its time is in microseconds since 1970.
_TRANSACTION: Final = np.dtype(
    [("commit_lsn", np.uint64), ("xid", np.uint32), ("commit_time", np.int64)]
)
#: Plugin options that decide which transactions a server sends.
_SELECTING: Final = ("publication_names", "origin", "two_phase")
_BOUNDS: Final = b"BbCPK"  # Begin, Begin Prepare, Commit, Prepare, Commit Prepared
_CHANGES: Final = b"IUDT"
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
    end = writer.end_lsn
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
        hint="The slot was dropped or read by another consumer, the log is an older copy, or a "
        "standby was promoted that did not have the slot. " + _NEW_LOG,
    )


def midway_note(slot: str, lsn: int) -> str:
    """Return the note for a log that begins at an existing slot."""
    return (
        f'the log begins at {format_lsn(lsn)}, the position of slot "{slot}": rows that were '
        "committed before are not in it. A log that begins with a snapshot has them."
    )


class LoggedTransactions:
    """Transactions with changes that a log contains after an LSN.

    Parameters
    ----------
    log : Log
    after : int
        Commit LSN. Pruned transactions cannot be compared, and are omitted.
    """

    def __init__(self, log: Log, after: int) -> None:
        self.after = max(after, log.begin.lsn)
        self.until = log.delivered_lsn
        plan = log.plan(self.after, on_error="skip")
        found = [np.empty(0, _TRANSACTION)]
        for partition in plan.partitions:
            # No value is decoded: a transaction counts, whether Arrow has a type for it or not.
            for batch in partition.decode(letters=[]):
                rows = np.empty(len(batch), _TRANSACTION)
                rows["commit_lsn"] = batch.commit_lsn
                rows["xid"] = batch.xid
                rows["commit_time"] = batch.commit_time.astype("datetime64[us]").view(np.int64)
                found.append(_one_of_each(rows[rows["xid"] != 0]))  # not of a snapshot
        self.transactions = _one_of_each(np.concatenate(found))
        numbers = {log.number_of(partition.first_ordinal) for partition in plan.partitions}
        self._options = [log.segment(each).header.source.plugin_options for each in numbers]

    def were_selected_by(self, plugin_options: Mapping[str, str]) -> bool:
        """Return whether these plugin options select the same transactions as the log's."""
        return all(
            options.get(name) == plugin_options.get(name)
            for options in self._options
            for name in _SELECTING
        )


class RepeatedTransactions:
    """Transactions that a server sends again, batch by batch, none of them streamed."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int, int, bool]] = []
        self._begin: Any = None
        self._changes = 0  # since it began
        self._prepared: dict[str, bool] = {}  # by gid: whether it has changes

    def add(self, batch: MessageBatch) -> None:
        """Add the next messages."""
        tags = batch.buffer[batch.offsets[:-1]]
        counted = np.concatenate([[0], np.cumsum(tagged(tags, _CHANGES))])
        start = 0
        for index in np.flatnonzero(tagged(tags, _BOUNDS)).tolist():
            self._changes += int(counted[index] - counted[start])
            start = index
            begin, end = batch.offsets[index : index + 2].tolist()
            self._bound(tags[index], decode_message(batch.buffer[begin:end].tobytes()))
        self._changes += int(counted[-1] - counted[start])

    def transactions(self) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the committed transactions, and whether each is known to have changes."""
        rows = np.array([each[:3] for each in self._found], _TRANSACTION)
        return rows, np.array([each[3] for each in self._found], np.bool_)

    def _bound(self, tag: int, message: Any) -> None:
        kind = chr(tag)
        has_changes, self._changes = self._changes > 0, 0
        if kind in "Bb":
            self._begin = message
        elif kind == "C":
            self._commit(message, self._begin.xid, has_changes)
        elif kind == "P":
            self._prepared[message.gid] = has_changes
        else:  # prepared before what is repeated, perhaps
            self._commit(message, message.xid, self._prepared.pop(message.gid, False))

    def _commit(self, message: Any, xid: int, has_changes: bool) -> None:
        time = unix_microseconds(message.commit_time)
        self._found.append((message.commit_lsn, xid, time, has_changes))


def check_same_history(
    logged: LoggedTransactions,
    repeated: RepeatedTransactions,
    *,
    confirm_lsn: int,
    is_whole: bool,
    log: str,
) -> None:
    """Raise ``CaptureError`` when the transactions of a log are not those of its server.

    Parameters
    ----------
    logged, repeated
        The log's transactions, and the server's from the same LSN on.
    confirm_lsn : int
        The log's: every transaction that ends up to there should be in it.
    is_whole : bool
        Whether both were selected by the same options. Otherwise only transactions at the same
        commit LSN are compared.
    log : str
        Name of the log, for errors.
    """
    server, has_changes = repeated.transactions()
    lsn = server["commit_lsn"]
    inside = (lsn > logged.after) & ((lsn <= logged.until) | (lsn < confirm_lsn))
    server, has_changes = server[inside], has_changes[inside]
    ours, theirs = _by_lsn(logged.transactions), _by_lsn(server)
    expected = set(_by_lsn(server[has_changes]))
    for commit_lsn in sorted({*ours, *theirs}):
        one, other = ours.get(commit_lsn), theirs.get(commit_lsn)
        both = one is not None and other is not None
        if one == other or not (both or is_whole):
            continue
        if one is None and commit_lsn not in expected:  # it has no published change
            continue
        raise CaptureError(
            f"the histories of the log {log} and of the server diverge at commit LSN "
            f"{format_lsn(commit_lsn)}: the log has {_described(one)}, the server "
            f"{_described(other)}",
            hint="The server was set back, as by restoring an older copy of its files. Begin a new "
            "log, with a snapshot.",
        )


def _one_of_each(rows: NDArray[Any]) -> NDArray[Any]:
    """Return each transaction once. Each has its own commit LSN; NumPy is slow with whole rows."""
    _, first = np.unique(rows["commit_lsn"], return_index=True)
    return rows[first]


def _by_lsn(transactions: NDArray[Any]) -> dict[int, tuple[int, int]]:
    return {lsn: (xid, time) for lsn, xid, time in transactions.tolist()}


def _described(transaction: tuple[int, int] | None) -> str:
    if transaction is None:
        return "no transaction"
    xid, time = transaction
    return f"transaction {xid} of {np.datetime64(time, 'us')}Z"
