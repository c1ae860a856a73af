"""A segment's file: an Arrow IPC stream of messages, written and read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import FORMAT, RESTORE, check_format, checksum
from pgwire_codec.log.segment import SEGMENT, Extent, Head
from pgwire_codec.log.sidecar import HeadJson, head_from_json, head_to_json
from pgwire_codec.log.store import Store

#: The columns. LSNs are signed, because Spark has no unsigned types: the bits are the same.
SCHEMA: Final = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("data", pa.binary(), nullable=False),
    ]
)

#: What ends an Arrow IPC stream.
END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_FORMAT: Final = b"pgwire_codec.format"
_HEAD: Final = b"pgwire_codec.head"

#: What bytes that are no header raise.
_INVALID: Final = (
    pa.ArrowException, OSError, EOFError, KeyError, ValueError, RecursionError, msgspec.DecodeError
)  # fmt: skip


def header(head: Head) -> bytes:
    """Return the bytes that a segment begins with: the schema, and what is known of the segment."""
    metadata = {_FORMAT: b"%d" % FORMAT, _HEAD: msgspec.json.encode(head_to_json(head))}
    data: bytes = SCHEMA.with_metadata(metadata).serialize().to_pybytes()
    return data


def read_header(data: pa.Buffer, file: str) -> tuple[Head, int]:
    """Read what a segment begins with, and return how many bytes that is.

    Raises ``LogError`` for a file that is not a segment.
    """
    reader = pa.BufferReader(data)
    try:
        schema = pa.ipc.read_schema(reader)
        metadata = schema.metadata or {}
        if _FORMAT not in metadata or not schema.equals(SCHEMA):
            raise LogError(f"{file} is not a segment of a log: its columns are {schema.names}")
        check_format(int(metadata[_FORMAT]), file)
        head = msgspec.json.decode(metadata[_HEAD], type=HeadJson)
        return head_from_json(head), reader.tell()
    except _INVALID as error:
        raise LogError(f"{file} does not begin as a segment does: {error}", hint=RESTORE) from error


def encode_batch(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> pa.Buffer:
    """Give the bytes that append a record batch to a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    return stream.slice(_SCHEMA_BYTES, stream.size - _SCHEMA_BYTES - len(END))


_SCHEMA_BYTES: Final = SCHEMA.serialize().size


def lsns(records: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Give the messages' LSNs."""
    signed: npt.NDArray[np.int64] = records.column("lsn").to_numpy()
    return signed.view(np.uint64)


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch of a segment, and where its bytes stand in the file."""

    records: pa.RecordBatch
    start: int
    stop: int


def read_batches(data: pa.Buffer, offset: int, file: str) -> Iterator[Batch]:
    """Read the record batches in a run of a segment's bytes: views of these, unless compressed.

    Parameters
    ----------
    data : pyarrow.Buffer
        Whole record batches on end.
    offset : int
        Where ``data`` begins in the file.
    file : str
        The file's name for messages.

    Raises
    ------
    LogError
        For the first batch that cannot be read, with its place.
    """
    reader = pa.BufferReader(data)
    while reader.tell() < data.size:
        start = offset + reader.tell()
        try:
            message: Any = pa.ipc.read_message(reader)
            records = pa.ipc.read_record_batch(message, SCHEMA)
            records.validate(full=True)  # offsets that lead out of the buffers, above all
        except (pa.ArrowException, OSError, EOFError) as error:
            raise LogError(
                f"{file} is damaged: at byte {start} there is no record batch: {error}"
            ) from error
        if records.num_rows == 0 or any(records.column(i).null_count for i in (0, 1, 3)):
            raise LogError(f"{file} is damaged: the record batch at byte {start} has no messages")
        yield Batch(records, start, offset + reader.tell())


def check_extent(data: pa.Buffer, extent: Extent, file: str) -> None:
    """Raise ``LogError`` when bytes of a file do not have their checksum."""
    if checksum(data) != extent.checksum:
        raise LogError(
            f"{file} is damaged: the checksum of its bytes {extent.offset} to {extent.stop - 1} "
            "does not match them",
            hint=RESTORE,
        )


def read_extents(store: Store, segment: str, extents: Sequence[Extent]) -> Iterator[pa.RecordBatch]:
    """Read the record batches of consecutive parts of a segment.

    Each part's bytes are compared with their checksum before a row of it is returned.

    Parameters
    ----------
    store : Store
        Of the log.
    segment : str
        Name of the segment, without suffix.
    extents : sequence of Extent
        Where the parts are; nothing else of the file is read.

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
    for extent in extents:
        part = data[extent.offset - start : extent.stop - start]
        check_extent(part, extent, label)
        for batch in read_batches(part, extent.offset, label):
            yield batch.records
