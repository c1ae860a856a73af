"""LogWriter: messages into segments, and the promise that they are safe."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.log.checked_json import checksum
from pgwire_codec.log.digest import PART_BYTES, Digest
from pgwire_codec.log.manifest import MANIFEST, Manifest, manifest_to_bytes
from pgwire_codec.log.pending import Pending, to_batches
from pgwire_codec.log.recovery import recover
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Head, Segment
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.source import Source
from pgwire_codec.log.state import State
from pgwire_codec.log.store import FILE_MODE, Appender, open_store
from pgwire_codec.log.stream import END, SCHEMA, encode_batch, header
from pgwire_codec.log.watermark import WATERMARK, Watermark, watermark_to_bytes
from pgwire_codec.transactions.carry import Carry

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_LARGEST_PART = 1 << 30  # the offsets of a record batch are 32-bit


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """What one writer has written so far: messages, their bytes, the files' bytes, segments."""

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
        A directory, or a URI that ``pyarrow.fs`` understands. It is created where it is missing.
    source : Source
        Where the messages come from.
    compression : {None, "lz4", "zstd"}
        Of the record batches. Reading is free of copies only without.
    segment_bytes : int
        A segment is sealed when its file is so large.
    segment_seconds : float
        A segment is sealed at the first flush when it is so old.
    part_bytes : int
        Message bytes of a part, the unit of parallel decode; of a segment's at most.
    file_mode : int
        Permissions of the files that are created on a local disk, 0o600 by default; a directory
        that is created can be searched by whoever can read these.
    filesystem : pyarrow.fs.FileSystem, optional
        Then ``uri`` is a path in it.

    Raises
    ------
    LogError
        When another process writes the log, the log has another source, it is a copy, or a file of
        it is damaged or missing; nothing is changed then.

    Notes
    -----
    In an object store, which cannot append, every flush seals a segment; and there is no lock.

    After an error the writer refuses to go on, and says which error that was: open the log again,
    which keeps all that was flushed. Leaving the context with an exception flushes nothing.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        source: Source,
        *,
        compression: str | None = None,
        segment_bytes: int = 128 << 20,
        segment_seconds: float = 600,
        part_bytes: int = PART_BYTES,
        file_mode: int = FILE_MODE,
        filesystem: FileSystem | None = None,
    ) -> None:
        if compression not in (None, "lz4", "zstd"):
            raise OptionError(f'compression must be None, "lz4" or "zstd", not {compression!r}')
        if not 0 < part_bytes <= _LARGEST_PART:
            raise OptionError(f"part_bytes must be from 1 to {_LARGEST_PART}, not {part_bytes}")
        if segment_bytes < 1:
            raise OptionError(f"segment_bytes must be 1 or more, not {segment_bytes}")
        if not isinstance(file_mode, int):
            raise OptionError(f"file_mode must be an int, as 0o640, not {file_mode!r}")
        if not 0o600 == file_mode & 0o700 <= file_mode <= 0o666:
            raise OptionError(f"file_mode must be from 0o600 to 0o666, not {file_mode:#o}")
        if not isinstance(source, Source):
            raise TypeError(f"source must be a Source, not {type(source).__name__}")
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._part_bytes = min(part_bytes, segment_bytes)
        self._source = source
        self._store = open_store(uri, filesystem, file_mode=file_mode)
        self._failure: BaseException | None = None
        self._file: Appender | None = None
        self._closing = ExitStack()
        self._closing.enter_context(self._store.lock())
        try:
            self._recover()
            self._advance_watermark()
            if not self._has_manifest:  # a log exists from here on
                manifest = manifest_to_bytes(Manifest(self._log_id, first_ordinal=0))
                self._store.write(MANIFEST, manifest)
        except BaseException:
            self._closing.close()
            raise
        self.statistics = WriterStatistics()
        self._is_usable = True

    def _recover(self) -> None:
        manifest, watermark, last = recover(self._store, self._part_bytes)
        self._has_manifest = manifest is not None
        self._log_id = watermark.log_id if watermark is not None else uuid.uuid4().hex
        held = watermark.source if watermark is not None else last and last.head.source
        self._watermark = watermark
        self._confirm_lsn = 0 if watermark is None else watermark.confirm_lsn
        self._received_lsn = 0 if watermark is None else watermark.received_lsn
        first = 0 if manifest is None else manifest.first_ordinal
        self._ordinal = first if last is None else last.end_ordinal
        if held and (self._ordinal > 0 or self._confirm_lsn > 0):
            held.check_same(self._source, self._store.name)
        self._session = 0 if last is None else last.head.session
        self._state = State() if last is None else last.state()
        self._begin_session(snapshot=False)

    @property
    def confirm_lsn(self) -> int:
        """What the watermark says: all that ends up to there is durable."""
        return 0 if self._watermark is None else self._watermark.confirm_lsn

    @property
    def received_lsn(self) -> int:
        """The last position that the server reported, as the watermark says."""
        return 0 if self._watermark is None else self._watermark.received_lsn

    @property
    def delivered_lsn(self) -> int:
        """Commit LSN of the last transaction that is durable."""
        return 0 if self._watermark is None else self._watermark.delivered_lsn

    @property
    def carry(self) -> Carry:
        """The carry behind all that is flushed: a copy."""
        return self._state.carry.copy()

    @property
    def end_ordinal(self) -> int:
        """The ordinal that the next message will have."""
        return self._ordinal + self._pending.messages

    def new_session(self, *, snapshot: bool = False) -> None:
        """Say that the messages that come are of a new connection to the server.

        What was appended is made durable, and the growing segment is sealed. A writer that was just
        opened stands at the beginning of a session already.

        Parameters
        ----------
        snapshot : bool
            Whether the messages of the session stand for tables as they were.
        """
        self.seal()
        self._begin_session(snapshot=snapshot)

    def _begin_session(self, *, snapshot: bool) -> None:
        self._new_session = True
        self._snapshot = snapshot
        self._pending = Pending(self._part_bytes)
        self._digest: Digest | None = None

    def forget_positions(self) -> None:
        """Set the positions of a log without messages back to 0, so that it can begin elsewhere.

        Raises
        ------
        LogError
            When the log holds or held messages, or cannot be written.
        """
        self._check_usable()
        if self.end_ordinal > 0:
            raise LogError(f"the log {self._store.name} has begun")
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
            The WAL position that came with each.
        time : array of datetime64[us], one a message
            The server's clock (UTC) when it sent each; NaT where that is not known.

        Raises
        ------
        ValueError
            When the lengths differ, or a message is null; nothing is appended then.
        LogError
            When the messages cannot be taken or written; the writer refuses to go on then, so that
            no later message is written without these.
        """
        self._check_usable()
        with self._guarded(ValueError):
            pieces = to_batches(data, lsn, time)
        with self._guarded():
            for batch in self._pending.add(pieces):
                self._write(batch)

    def flush(self, confirm_lsn: int | None = None, received_lsn: int | None = None) -> None:
        """Make durable what was appended; on return it can be read, and will never be lost.

        Parameters
        ----------
        confirm_lsn : int, optional
            LSN that may be confirmed to the server when this flush is over. It never goes back.
        received_lsn : int, optional
            The last position that the server reported.

        Raises
        ------
        LogError
            When the log cannot be written.
        """
        self._check_usable()
        with self._guarded():
            self._flush(confirm_lsn, received_lsn, False)

    def seal(self) -> None:
        """Make durable what was appended, and complete the growing segment, if there is one."""
        self._check_usable()
        with self._guarded():
            self._flush(None, None, True)

    def close(self) -> None:
        """Seal, and let go of the lock."""
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
        if self._file is not None:
            self._file.abandon()
            self._file = None
        self._closing.close()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise LogError(
                f"this writer of {self._store.name} has failed before: {self._failure}",
                hint="Open the log again, which keeps all that was flushed.",
            ) from self._failure
        if not self._is_usable:
            raise LogError(f"this writer of {self._store.name} is closed")

    @contextmanager
    def _guarded(self, *harmless: type[Exception]) -> Iterator[None]:
        """Refuse to go on after an error: it is not known what the buffers and the file hold."""
        try:
            yield
        except harmless:
            raise
        except MemoryError as error:
            self._failure = LogError(
                f"out of memory while writing the log {self._store.name}",
                hint="Give the process more memory. What was flushed is safe.",
                is_transient=True,
            )
            raise self._failure from error
        except BaseException as error:
            self._failure = error
            raise

    def _flush(self, confirm_lsn: int | None, received_lsn: int | None, seal: bool) -> None:
        rest = self._pending.take()
        if rest is not None:
            self._write(rest)
        self._confirm_lsn = max(self._confirm_lsn, confirm_lsn or 0)
        self._received_lsn = max(self._received_lsn, received_lsn or 0)
        if self._file is not None and self._digest is not None:
            is_old = monotonic() - self._begun >= self._segment_seconds
            if seal or is_old or not self._store.grows:
                self._seal(self._file, self._digest)
            else:
                self._file.sync()
        self._advance_watermark()

    def _write(self, records: pa.RecordBatch) -> None:
        if self._digest is None or self._file is None:
            self._begin_segment()
        assert self._digest is not None
        assert self._file is not None
        ordinals = np.arange(self._ordinal, self._ordinal + records.num_rows)
        columns = [pa.array(ordinals), *records.columns[1:]]
        records = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        data = encode_batch(records, self._options)
        self._file.write(data)
        before = self._digest.message_bytes
        self._digest.add(records, data)
        self._ordinal += records.num_rows
        self.statistics = replace(
            self.statistics,
            messages=self.statistics.messages + records.num_rows,
            message_bytes=self.statistics.message_bytes + self._digest.message_bytes - before,
            bytes=self.statistics.bytes + len(data),
        )
        if self._digest.bytes >= self._segment_bytes:
            self._seal(self._file, self._digest)
            self._advance_watermark()

    def _begin_segment(self) -> None:
        if self._new_session:
            self._session += 1
        head = Head(
            log_id=self._log_id,
            source=self._source,
            session=self._session,
            new_session=self._new_session,
            snapshot=self._snapshot,
            first_ordinal=self._ordinal,
            before=self._state,
        )
        begins = header(head)
        self._file = self._store.create(head.name + SEGMENT)
        self._file.write(begins)
        self._digest = Digest(head, begins, self._part_bytes)
        self._new_session = False
        self._begun = monotonic()
        self.statistics = replace(
            self.statistics,
            bytes=self.statistics.bytes + len(begins),
            segments=self.statistics.segments + 1,
        )

    def _seal(self, file: Appender, digest: Digest) -> None:
        file.write(END)
        file.close()
        segment: Segment = digest.segment(sealed=True)
        segment = replace(segment, bytes=segment.bytes + len(END))
        self._store.write(segment.name + SIDECAR, segment_to_bytes(segment))
        self._state = digest.state()
        self._file = self._digest = None
        self._pending.begin_part()

    def _advance_watermark(self) -> None:
        if self._digest is not None:
            self._state = self._digest.state()
        watermark = Watermark(
            log_id=self._log_id,
            source=self._source,
            segment=None if self._digest is None else self._digest.head.name,
            bytes=0 if self._digest is None else self._digest.bytes,
            messages=0 if self._digest is None else self._digest.messages,
            checksum=checksum(b"") if self._digest is None else self._digest.checksum,
            end_ordinal=self._ordinal,
            delivered_lsn=self._state.carry.delivered_lsn,
            confirm_lsn=self._confirm_lsn,
            received_lsn=self._received_lsn,
            time="",
        )
        if self._watermark is None or replace(self._watermark, time="") != watermark:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            watermark = replace(watermark, time=now)
            self._store.write(WATERMARK, watermark_to_bytes(watermark))
            self._watermark = watermark
