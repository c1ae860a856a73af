"""SnapshotTransaction: the synthetic transaction of a snapshot in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec.capture.batch import EPOCH
from pgwire_codec.protocol.messages import Begin, Commit, Truncate
from pgwire_codec.reference import encode_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pgwire_codec.capture.catalog.published_tables import PublishedTable
    from pgwire_codec.log import LogSource, LogWriter

_XID: Final = 0  # which no transaction of a server has


class SnapshotTransaction:
    """A synthetic plain transaction, in a session of its own of the log.

    Parameters
    ----------
    writer : LogWriter
    time : numpy.datetime64
        Commit time, in microseconds.
    source : LogSource, optional
        Source of the session, if it may be another one than that of the log.
    """

    def __init__(
        self, writer: LogWriter, time: np.datetime64, source: LogSource | None = None
    ) -> None:
        self._writer = writer
        self._source = source
        self.time = time
        self._commit_time = int((time - EPOCH).astype(np.int64))
        self._lsn = 0

    def begin(self, commit_lsn: int) -> None:
        """Write the Begin of a new session; an earlier one is abandoned."""
        self._lsn = commit_lsn
        self._writer.new_session(snapshot=True, source=self._source)
        self._append_one(Begin(final_lsn=commit_lsn, commit_time=self._commit_time, xid=_XID))

    def resume(self, commit_lsn: int) -> None:
        """Continue the transaction with which the log ends, in the same session."""
        self._lsn = commit_lsn
        self._writer.resume_session(snapshot=True)

    def describe(self, tables: Sequence[PublishedTable]) -> None:
        """Write the Relations of tables, with their Types, and record these."""
        self._writer.type_record.add(each for table in tables for each in table.user_types)
        for table in tables:
            description = table.description()
            offsets = np.cumsum([0, *map(len, description)], dtype=np.int32)
            self.append(np.frombuffer(b"".join(description), np.uint8), offsets)

    def truncate(self, tables: Sequence[PublishedTable]) -> None:
        """Write a Truncate of tables that were described."""
        oids = tuple(table.relation.oid for table in tables)
        self._append_one(Truncate(xid=None, options=0, relation_oids=oids))

    def append(self, data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> None:
        """Write concatenated messages."""
        import pyarrow as pa

        count = len(offsets) - 1
        if not count:
            return
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        self._writer.append(
            pa.Array.from_buffers(pa.binary(), count, buffers),
            np.full(count, self._lsn, np.uint64),
            np.full(count, self.time),
        )

    def commit(self, end_lsn: int) -> None:
        """Write the Commit."""
        self._append_one(
            Commit(flags=0, commit_lsn=self._lsn, end_lsn=end_lsn, commit_time=self._commit_time)
        )

    def _append_one(self, message: Begin | Truncate | Commit) -> None:
        data = np.frombuffer(encode_message(message), np.uint8)
        self.append(data, np.array([0, len(data)], np.int32))
