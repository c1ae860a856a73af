"""A segment's file: an Arrow IPC stream of messages, written and read batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.segment import FORMAT, Head, check_format, head_from_json, head_to_json
from pgwire_codec.log.state import state_to_json

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

_PREFIX: Final = "pgwire_codec."


def header(head: Head) -> bytes:
    """Give the bytes that a segment begins with: the schema, with what is known of the segment."""
    value = head_to_json(head)
    fields = {
        "format": FORMAT,
        **value.pop("source"),
        **value,
        "before": state_to_json(head.before),
    }
    metadata = {
        _PREFIX + name: each if isinstance(each, str) else json.dumps(each, separators=(",", ":"))
        for name, each in fields.items()
    }
    data: bytes = SCHEMA.with_metadata(metadata).serialize().to_pybytes()
    return data


def read_header(data: pa.Buffer, file: str) -> tuple[Head, int]:
    """Read what a segment begins with, and say how many bytes that is.

    Raises ``LogError`` for a file that is no segment.
    """
    reader = pa.BufferReader(data)
    try:
        schema = pa.ipc.read_schema(reader)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise LogError(f"{file} does not begin as a segment does: {error}") from error
    metadata = {
        name.decode().removeprefix(_PREFIX): text.decode()
        for name, text in (schema.metadata or {}).items()
    }
    if "format" not in metadata or not schema.equals(SCHEMA):
        raise LogError(f"{file} is no segment of a log: it has the columns {schema.names}")
    check_format(json.loads(metadata["format"]), file)
    words = ("system_identifier", "database", "slot")
    value = {name: text if name in words else json.loads(text) for name, text in metadata.items()}
    return head_from_json({"source": value, **value}), reader.tell()


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
        Whole record batches, one behind the other.
    offset : int
        Where ``data`` begins in the file.
    file : str
        Its name, for people.

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
