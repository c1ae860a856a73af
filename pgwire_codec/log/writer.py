"""LogWriter: durable writing of messages to the segments of a log."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log.bounds import (
    MANIFEST,
    NOTHING_GROWS,
    WATERMARK,
    Manifest,
    Watermark,
    manifest_to_bytes,
    positions_to_bytes,
    watermark_to_bytes,
)
from pgwire_codec.log.growing_segment import GrowingSegment
from pgwire_codec.log.index_writer import IndexWriter
from pgwire_codec.log.message_buffer import MessageBuffer, to_batches
from pgwire_codec.log.message_columns import SCHEMA, column, encoding_of
from pgwire_codec.log.recovery import recover
from pgwire_codec.log.segment import SegmentHeader
from pgwire_codec.log.segment_builder import PART_BYTES
from pgwire_codec.log.snapshot_record import SnapshotRecord
from pgwire_codec.log.source import LogSource
from pgwire_codec.log.store import open_store
from pgwire_codec.log.store_errors import out_of_memory
from pgwire_codec.log.timed_store import TimedStore, WriteTimes
from pgwire_codec.log.type_record import TypeRecord
from pgwire_codec.options import Compression, SegmentOptions

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_LARGEST_PART = 1 << 30  # the offsets of a record batch are 32-bit


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """Totals of one writer so far: messages, their bytes, the files' bytes, segments."""

    messages: int = 0
    message_bytes: int = 0
    bytes: int = 0
    segments: int = 0


class LogWriter:
    """Writes the messages of one replication slot to a log. A context manager.

    Opening it takes the log's lock, seals what an earlier writer left, removes what that writer
    never acknowledged, and begins a session; nothing that was flushed is ever lost. A log with
    neither messages nor a confirmed position takes any source.

    Parameters
    ----------
    uri : str or path
        A directory, or a URI that ``pyarrow.fs`` understands. It is created if it does not exist.
    source : LogSource
        Replication slot that the messages come from.
    compression, segment_bytes, segment_seconds, file_mode
        As for :class:`~pgwire_codec.capture.SegmentOptions`.
    part_bytes : int
        Message bytes of a part, the unit of parallel decode; at most ``segment_bytes``.
    filesystem : pyarrow.fs.FileSystem, optional
        File system in which ``uri`` is a path.
    times : WriteTimes, optional
        Receives the times of flushes, and of the calls that make files durable.

    Raises
    ------
    LogError
        When another process writes the log, the log has another source, or one of its files is
        damaged or missing. Nothing is changed then.

    Notes
    -----
    In an object store, which cannot append, every flush seals a segment, and the log has no lock.

    After an error the writer refuses every call, and reports that error. Open the log again: it
    keeps everything that was flushed. Leaving the context with an exception flushes nothing.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        source: LogSource,
        *,
        compression: Compression | None = SegmentOptions.compression,
        segment_bytes: int = SegmentOptions.segment_bytes,
        segment_seconds: float = SegmentOptions.segment_seconds,
        part_bytes: int = PART_BYTES,
        file_mode: int = SegmentOptions.file_mode,
        filesystem: FileSystem | None = None,
        times: WriteTimes | None = None,
    ) -> None:
        segments = SegmentOptions(compression, segment_bytes, segment_seconds, file_mode)
        if not 0 < part_bytes <= _LARGEST_PART:
            raise OptionError(f"part_bytes must be from 1 to {_LARGEST_PART}, not {part_bytes}")
        if not isinstance(source, LogSource):
            raise TypeError(f"source must be a LogSource, not {type(source).__name__}")
        # One column has nearly all bytes, so threads would save nothing, and they need memory.
        self._options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        self._segments = segments
        self._part_bytes = min(part_bytes, segment_bytes)
        self._source = source
        self._store = open_store(uri, filesystem, file_mode=file_mode)
        self._times = times
        if times is not None:
            self._store = TimedStore(self._store, times)
        self.snapshot_record = SnapshotRecord(self._store)
        self.type_record = TypeRecord(self._store)
        self._overwrites = False  # the watermark, once this writer has written the whole file
        self._failure: BaseException | None = None
        self._growing: GrowingSegment | None
        self._closing = ExitStack()
        self._closing.enter_context(self._store.lock())
        try:
            self._recover()
            self._advance_watermark()
            if not self._has_manifest:  # the log exists after this
                manifest = manifest_to_bytes(Manifest(self._log_id, first_ordinal=0))
                self._store.write(MANIFEST, manifest)
        except BaseException:
            self._closing.close()
            raise
        self.statistics = WriterStatistics()
        self._is_usable = True

    def _recover(self) -> None:
        manifest, watermark, last, state, scope, rows = recover(self._store, self._part_bytes)
        self._has_manifest = manifest is not None
        self._log_id = watermark.log_id if watermark is not None else uuid.uuid4().hex
        known = None if last is None else last.header.source
        if watermark is not None:
            known = watermark.source
        self._watermark = watermark
        self._confirm_lsn = 0 if watermark is None else watermark.confirm_lsn
        self._received_lsn = 0 if watermark is None else watermark.received_lsn
        first = 0 if manifest is None else manifest.first_ordinal
        self._ordinal = first if last is None else last.end_ordinal
        is_empty = self._ordinal == 0 and self._confirm_lsn == 0
        self._recorded_source = self._source if known is None or is_empty else known
        self.check_source(self._source)
        self._session = 0 if last is None else last.last_session
        self._state = state  # before the growing segment
        self._scope = scope
        self._index = IndexWriter(self._store, self._log_id, rows)
        self._begin_session(snapshot=False)

    @property
    def confirm_lsn(self) -> int:
        """LSN that may be confirmed: everything that ends at or before it is durable."""
        return 0 if self._watermark is None else self._watermark.confirm_lsn

    @property
    def received_lsn(self) -> int:
        """Last position that the server reported, as of the watermark."""
        return 0 if self._watermark is None else self._watermark.received_lsn

    @property
    def delivered_lsn(self) -> int:
        """Commit LSN of the last transaction that is durable."""
        return 0 if self._watermark is None else self._watermark.delivered_lsn

    @property
    def end_lsn(self) -> int:
        """LSN up to which the server must have the transactions of the log."""
        # The log may contain a transaction whose end was not yet confirmed.
        return max(self.confirm_lsn, self.delivered_lsn + 1 if self.delivered_lsn else 0)

    @property
    def grows(self) -> bool:
        """True if a flush adds to a segment; in an object store it writes one."""
        return self._store.grows

    @property
    def recorded_source(self) -> LogSource:
        """Source of the last session that the log has content of."""
        return self._recorded_source

    @property
    def end_ordinal(self) -> int:
        """Ordinal of the next message."""
        return self._ordinal + self._buffer.messages

    def check_source(self, source: LogSource) -> None:
        """Raise ``LogError`` unless messages of this source may follow those of the log."""
        self._recorded_source.check_continued_by(source, self.end_lsn, self._store.name)

    def new_session(self, *, snapshot: bool = False, source: LogSource | None = None) -> None:
        """Begin a session: the next messages come from a new connection to the server.

        The messages so far are made durable, and the growing segment is sealed. Opening a writer
        begins a session, too.

        Parameters
        ----------
        snapshot : bool
            Whether the messages of the session represent the rows of tables, not changes.
        source : LogSource, optional
            Source of the session, if it is another one: after a failover, the server's timeline
            descends from that of the log.
        """
        self.seal()
        if source is not None:
            self.check_source(source)
            self._source = source
        self._begin_session(snapshot=snapshot)

    def resume_session(self, *, snapshot: bool) -> None:
        """Continue the log's last session, in place of that which opening the writer began.

        A transaction that is open at the end of the log is not abandoned. ``snapshot`` is as for
        :meth:`new_session`.
        """
        self._new_session = False
        self._snapshot = snapshot

    def _begin_session(self, *, snapshot: bool) -> None:
        self._new_session = True
        self._snapshot = snapshot
        self._buffer = MessageBuffer(self._part_bytes)
        self._growing = None

    def forget_positions(self) -> None:
        """Reset the positions of a log without messages to 0, so that it can begin elsewhere.

        Raises
        ------
        LogError
            When the log holds or held messages, or cannot be written.
        """
        self._check_usable()
        if self.end_ordinal > 0:
            raise LogError(f"the log {self._store.name} has messages already")
        with self._guarded():
            self._confirm_lsn = self._received_lsn = 0
            self._advance_watermark()

    def append(
        self,
        data: list[bytes] | pa.Array | pa.ChunkedArray,
        lsn: npt.ArrayLike,
        time: npt.ArrayLike,
    ) -> None:
        """Append messages. They are not durable before the next flush.

        Parameters
        ----------
        data : list of bytes, or Arrow binary array
            The messages, in the order of arrival.
        lsn : array of uint64, one a message
            WAL position of each.
        time : array of datetime64[us], one a message
            Server's clock (UTC) when it sent each, or NaT if that is unknown.

        Raises
        ------
        ValueError
            When the lengths differ, or a message is null; nothing is appended then.
        LogError
            When the messages cannot be written. The writer refuses every later call then, so that
            no later message is written without these.
        """
        self._check_usable()
        with self._guarded(ValueError):
            pieces = to_batches(data, lsn, time)
        with self._guarded():
            for batch in self._buffer.add(pieces):
                self._write(batch)

    def flush(self, confirm_lsn: int | None = None, received_lsn: int | None = None) -> None:
        """Make the appended messages durable and readable.

        Parameters
        ----------
        confirm_lsn : int, optional
            LSN that may be confirmed to the server after this flush. It never decreases.
        received_lsn : int, optional
            Last position that the server reported.

        Raises
        ------
        LogError
            When the log cannot be written.
        """
        self._check_usable()
        with self._guarded(), nullcontext() if self._times is None else self._times.flush():
            self._record_source()
            self._flush(confirm_lsn, received_lsn, False)

    def seal(self) -> None:
        """Make the appended messages durable, and complete the growing segment, if there is one."""
        self._check_usable()
        with self._guarded():
            self._flush(None, None, True)

    def close(self) -> None:
        """Seal the growing segment and release the lock."""
        try:
            if self._is_usable and self._failure is None:
                self.seal()
        finally:
            self._release()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._release()

    def _release(self) -> None:
        self._is_usable = False
        if self._growing is not None:
            self._growing.abandon()
            self._growing = None
        self._closing.close()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise LogError(
                f"this writer of {self._store.name} failed before: {self._failure}",
                hint="Open the log again. It keeps everything that was flushed.",
            ) from self._failure
        if not self._is_usable:
            raise LogError(f"this writer of {self._store.name} is closed")

    @contextmanager
    def _guarded(self, *harmless: type[Exception]) -> Iterator[None]:
        """Refuse later calls after an error: the content of buffers and file is unknown."""
        try:
            yield
        except harmless:
            raise
        except MemoryError as error:
            self._failure = out_of_memory(self._store.name)
            raise self._failure from error
        except BaseException as error:
            self._failure = error
            raise

    def _flush(self, confirm_lsn: int | None, received_lsn: int | None, seal: bool) -> None:
        rest = self._buffer.take()
        if rest is not None:
            self._write(rest)
        self._confirm_lsn = max(self._confirm_lsn, confirm_lsn or 0)
        self._received_lsn = max(self._received_lsn, received_lsn or 0)
        if self._growing is not None:
            if seal or self._growing.age >= self._segments.segment_seconds or not self._store.grows:
                self._seal(self._growing)
            else:
                self._growing.sync()
        self._advance_watermark()

    def _write(self, records: pa.RecordBatch) -> None:
        segment = self._begin_segment() if self._growing is None else self._growing
        bytes_before, message_bytes_before = segment.bytes, segment.message_bytes
        ordinals = np.arange(self._ordinal, self._ordinal + records.num_rows, dtype=np.int64)
        columns = [column(ordinals, "ordinal"), *records.columns]
        segment.write(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        self._ordinal += records.num_rows
        written = self.statistics
        self.statistics = WriterStatistics(
            messages=written.messages + records.num_rows,
            message_bytes=written.message_bytes + segment.message_bytes - message_bytes_before,
            bytes=written.bytes + segment.bytes - bytes_before,
            segments=written.segments,
        )
        if segment.bytes >= self._segments.segment_bytes:
            self._seal(segment)
            self._advance_watermark()

    def _record_source(self) -> None:
        """Have the next watermark contain the session's source, which the log has content of."""
        if self._recorded_source != self._source:
            self._recorded_source = self._source
            self._overwrites = False

    def _begin_segment(self) -> GrowingSegment:
        self._record_source()
        if self._new_session:
            self._session += 1
        header = SegmentHeader(
            log_id=self._log_id,
            source=self._source,
            session=self._session,
            new_session=self._new_session,
            snapshot=self._snapshot,
            first_ordinal=self._ordinal,
            before=self._state,
            encoding=encoding_of(self._segments.compression),
        )
        segment = GrowingSegment(self._store, header, self._scope, self._options, self._part_bytes)
        self._growing = segment
        self._new_session = False
        self.statistics = replace(
            self.statistics,
            bytes=self.statistics.bytes + segment.bytes,
            segments=self.statistics.segments + 1,
        )
        return segment

    def _seal(self, segment: GrowingSegment) -> None:
        sealed = segment.seal()
        self._state = segment.state
        self._index.add(sealed, self._scope, segment.declared)
        self._scope.update(segment.declared)
        self._growing = None
        self._buffer.begin_part()
        # Arrow keeps freed memory: after an outage, that of the largest batch.
        pa.default_memory_pool().release_unused()

    def _advance_watermark(self) -> None:
        growing, delivered_lsn = NOTHING_GROWS, self._state.carry.delivered_lsn
        if self._growing is not None:
            growing, delivered_lsn = self._growing.durable, self._growing.delivered_lsn
        watermark = Watermark(
            log_id=self._log_id,
            source=self._recorded_source,
            **growing._asdict(),
            end_ordinal=self._ordinal,
            delivered_lsn=delivered_lsn,
            confirm_lsn=self._confirm_lsn,
            received_lsn=self._received_lsn,
            time="" if self._watermark is None else self._watermark.time,
        )
        if watermark != self._watermark:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            watermark = replace(watermark, time=now)
            if self._overwrites:
                self._store.overwrite(WATERMARK, positions_to_bytes(watermark))
            else:
                self._store.write(WATERMARK, watermark_to_bytes(watermark))
                self._overwrites = self._store.grows
            self._watermark = watermark
