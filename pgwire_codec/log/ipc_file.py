"""Files of segments in Arrow's IPC format: their header, record batches and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import FORMAT, RESTORE, check_format, checksum, decoder
from pgwire_codec.log.message_columns import STORED, Encoding, from_stored, to_stored
from pgwire_codec.log.segment import SEGMENT, Extent, SegmentHeader
from pgwire_codec.log.sidecar import HeaderJson, header_from_json, header_to_json
from pgwire_codec.log.store import Store

#: Last bytes of a complete file.
END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

#: Record batches with fewer bytes of messages are combined: a decoder has a fixed cost for each.
_COMBINED_BYTES: Final = 1 << 20

#: Record batches up to this size are not compressed: it would take longer, and gain nothing.
_UNCOMPRESSED_BYTES: Final = 384

_SCHEMA_BYTES: Final = {encoding: schema.serialize().size for encoding, schema in STORED.items()}

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")

_FORMAT: Final = b"pgwire_codec.format"
_HEADER: Final = b"pgwire_codec.head"

#: Errors for bytes that are not a header.
_INVALID: Final = (
    pa.ArrowException, OSError, EOFError, KeyError, ValueError, RecursionError, msgspec.DecodeError
)  # fmt: skip


def encode_header(header: SegmentHeader) -> bytes:
    """Return the bytes at the beginning of a segment: the schema, with the header as metadata."""
    metadata = {_FORMAT: b"%d" % FORMAT, _HEADER: msgspec.json.encode(header_to_json(header))}
    data: bytes = STORED[header.encoding].with_metadata(metadata).serialize().to_pybytes()
    return data


#: Arrow's error when it has no memory for a thread to decompress in.
_NO_THREAD: Final = "Failed to launch worker thread"


def read_header(data: pa.Buffer, file: str) -> tuple[SegmentHeader, int]:
    """Read the header of a segment, and return it with the number of its bytes.

    Raises ``LogError`` for a file that is not a segment.
    """
    reader = pa.BufferReader(data)
    try:
        schema = pa.ipc.read_schema(reader)
        metadata = schema.metadata or {}
        if _FORMAT not in metadata:
            raise LogError(f"{file} is not a segment of a log: its columns are {schema.names}")
        check_format(int(metadata[_FORMAT]), file)
        header = decoder(HeaderJson).decode(metadata[_HEADER])
        if not schema.equals(STORED[header.encoding]):
            raise LogError(f"{file} is not a segment of a log: its columns are {schema.names}")
        return header_from_json(header), reader.tell()
    except _INVALID as error:
        raise LogError(f"{file} has an invalid segment header: {error}", hint=RESTORE) from error


def encode_batch(
    batch: pa.RecordBatch, encoding: Encoding, options: pa.ipc.IpcWriteOptions
) -> pa.Buffer:
    """Return the bytes that append a record batch of messages to a file."""
    stored = to_stored(batch, encoding)
    if stored.nbytes <= _UNCOMPRESSED_BYTES:
        return stored.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, stored.schema, options=options) as writer:
        writer.write_batch(stored)
    file = sink.getvalue()
    begin = _SCHEMA_BYTES[encoding]
    return file.slice(begin, file.size - begin - len(END))


class SegmentBatch(NamedTuple):
    """A record batch of a segment, and the position of its bytes in the file."""

    records: pa.RecordBatch
    start: int
    stop: int


def read_batches(
    data: pa.Buffer, offset: int, file: str, encoding: Encoding, *, with_time: bool = True
) -> Iterator[SegmentBatch]:
    """Read the record batches in a run of a segment's bytes: views of these, unless compressed.

    Parameters
    ----------
    data : pyarrow.Buffer
        Whole record batches on end.
    offset : int
        Position of ``data`` in the file.
    file : str
        Name of the file in errors.
    encoding : {"plain", "differences"}
        Representation of ordinals, LSNs and times in it.
    with_time : bool
        Whether the column ``time`` is needed.

    Raises
    ------
    LogError
        For the first batch that cannot be read, with its position.
    """
    for batch in _stored_batches(data, offset, file, encoding):
        _check_known([batch], batch.records, file)
        messages = from_stored(batch.records, encoding, with_time=with_time)
        yield SegmentBatch(messages, batch.start, batch.stop)


def read_combined(
    data: pa.Buffer,
    offset: int,
    file: str,
    encoding: Encoding,
    *,
    with_time: bool = True,
    capacity: Callable[[], int] | None = None,
) -> Iterator[SegmentBatch]:
    """Read as :func:`read_batches`, and combine runs of small record batches.

    Frequent flushes write such. ``capacity`` returns the message bytes that end the present run, if
    they are less than 1 MB.
    """
    run: list[SegmentBatch] = []
    size = 0
    for batch in _stored_batches(data, offset, file, encoding):
        added = message_bytes(batch.records)
        if run and added >= _COMBINED_BYTES:
            yield _combined(run, file, encoding, with_time)
            run, size = [], 0
        run.append(batch)
        size += added
        if size >= (_COMBINED_BYTES if capacity is None else min(_COMBINED_BYTES, capacity())):
            yield _combined(run, file, encoding, with_time)
            run, size = [], 0
    if run:
        yield _combined(run, file, encoding, with_time)


def _combined(
    run: list[SegmentBatch], file: str, encoding: Encoding, with_time: bool
) -> SegmentBatch:
    """Return the messages of stored record batches as one batch."""
    records = run[0].records
    if len(run) > 1:
        records = pa.concat_batches([batch.records for batch in run])
    _check_known(run, records, file)
    starts = np.cumsum([0, *(len(batch.records) for batch in run[:-1])])
    messages = from_stored(records, encoding, with_time=with_time, starts=starts)
    return SegmentBatch(messages, run[0].start, run[-1].stop)


def _check_known(run: list[SegmentBatch], records: pa.RecordBatch, file: str) -> None:
    """Raise ``LogError`` for the first of some stored batches with a null; they are ``records``."""
    if not _has_nulls(records):
        return
    start = next(batch.start for batch in run if _has_nulls(batch.records))
    raise _without_messages(file, start)


def _has_nulls(stored: pa.RecordBatch) -> bool:
    return any(stored.column(number).null_count for number in (0, 1, 3))


def _without_messages(file: str, start: int) -> LogError:
    return LogError(
        f"{file} is damaged: the record batch at byte {start} has no messages", hint=RESTORE
    )


def _stored_batches(
    data: pa.Buffer, offset: int, file: str, encoding: Encoding
) -> Iterator[SegmentBatch]:
    """Read record batches as they are stored; see :func:`read_batches`."""
    reader, schema = pa.BufferReader(data), STORED[encoding]
    stop = 0
    while stop < data.size:
        start = stop
        try:
            message: Any = pa.ipc.read_message(reader)
            records = pa.ipc.read_record_batch(message, schema)
            records.validate(full=True)  # above all, offsets outside the buffers
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, EOFError) as error:
            if _NO_THREAD in str(error):
                raise MemoryError(str(error)) from error
            raise LogError(
                f"{file} is damaged: invalid record batch at byte {offset + start}: {error}",
                hint=RESTORE,
            ) from error
        if records.num_rows == 0:
            raise _without_messages(file, offset + start)
        stop = reader.tell()
        yield SegmentBatch(records, offset + start, offset + stop)


def message_bytes(records: pa.RecordBatch) -> int:
    """Return the bytes of a record batch's messages."""
    column = records.column("data")
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return int(offsets[column.offset + len(column)] - offsets[column.offset])


def check_extent(data: pa.Buffer, extent: Extent, file: str) -> None:
    """Raise ``LogError`` when bytes of a file do not have their checksum."""
    if checksum(data) != extent.checksum:
        raise LogError(
            f"{file} is damaged: the checksum of its bytes {extent.offset} to {extent.stop - 1} "
            "does not match them",
            hint=RESTORE,
        )


def read_extents(
    store: Store,
    segment: str,
    extents: Sequence[Extent],
    encoding: Encoding,
    *,
    with_time: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Read the record batches of consecutive parts of a segment; small ones are combined.

    While the batches of a part are used, a thread reads the next part, if they are large. Each
    part's bytes are compared with their checksum before a row of it is returned.

    Parameters
    ----------
    store : Store
        Store of the log.
    segment : str
        Name of the segment, without suffix.
    extents : sequence of Extent
        Positions of the parts; nothing else of the file is read.
    encoding : {"plain", "differences"}
        As in the segment's header.
    with_time : bool
        Whether the column ``time`` is needed.

    Raises
    ------
    LogError
        When the file is missing or too short, or a part is damaged.
    """
    if not extents:
        return
    file, start = segment + SEGMENT, extents[0].offset
    label = f"{store.name}/{file}"
    data = store.read_buffer(file, start, extents[-1].stop - start)

    def read(extent: Extent) -> list[pa.RecordBatch]:
        part = data[extent.offset - start : extent.stop - start]
        check_extent(part, extent, label)
        batches = read_combined(part, extent.offset, label, encoding, with_time=with_time)
        return [batch.records for batch in batches]

    if data.size <= _COMBINED_BYTES:  # to start a thread would take longer
        yield from chain.from_iterable(map(read, extents))
    else:
        yield from chain.from_iterable(_one_ahead(read, extents))


def _one_ahead(read: Callable[[_Value], _Result], values: Sequence[_Value]) -> Iterator[_Result]:
    """Yield the result of each value, which a thread computes while the one before is used.

    Checksums and decompression do not hold the GIL.
    """
    if len(values) == 1:
        yield read(values[0])
        return
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(read, values[0])
        for value in values[1:]:
            result, following = following.result(), thread.submit(read, value)
            yield result
        yield following.result()
