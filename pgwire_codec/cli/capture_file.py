"""Messages read from capture files: JSON lines, Parquet and Arrow IPC.

The format is detected by the first bytes, not by the name. An invalid line or row is reported with
its number, and reading continues.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pgwire_codec.errors import PgwireError, missing_extra

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_IPC_FILE = b"ARROW1"
_IPC_STREAM = b"\xff\xff\xff\xff"


class FileError(PgwireError):
    """A file that cannot be read, or is not a capture."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a file.

    ``place`` is its line or row: ``"line 7"``, ``"row 3"``. ``lsn`` is None if the file has none.
    """

    place: str
    lsn: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class BadEntry:
    """A line or row without a valid message."""

    place: str
    reason: str


def read_messages(path: Path) -> Iterator[StoredMessage | BadEntry]:
    """Yield a capture's messages in the file's order.

    Parameters
    ----------
    path : Path
        JSON lines, plain or gzipped: objects with ``data`` (hex) and optionally ``lsn`` (int). The
        first line may describe the capture. Or a Parquet or Arrow IPC file (or stream) with a
        binary column ``data`` and optionally integer columns ``lsn`` and ``ordinal``.

    Raises
    ------
    FileError
        When the file cannot be read, or has another format.
    MissingExtraError
        When it is Parquet or IPC, and pyarrow is not installed.
    """
    try:
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(0)
            if head.startswith(_GZIP):
                with gzip.open(file) as lines:
                    yield from _read_json_lines(path, lines)
            elif head.startswith((_PARQUET, _IPC_FILE, _IPC_STREAM)):
                yield from _read_arrow(path, file, head)
            else:
                yield from _read_json_lines(path, file)
    except (OSError, EOFError, zlib.error) as error:  # gzip's other errors are OSErrors
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FileError(f"could not read {path}: {reason}") from error


def _read_json_lines(
    path: Path, lines: BinaryIO | gzip.GzipFile
) -> Iterator[StoredMessage | BadEntry]:
    number = 0
    for number, line in enumerate(lines, 1):
        place = f"line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            if number == 1:
                raise _not_a_capture(path) from error
            yield BadEntry(place, "invalid JSON")
            continue
        if number == 1 and not (isinstance(entry, dict) and "data" in entry):
            if not (isinstance(entry, dict) and "options" in entry):
                raise _not_a_capture(path)
            continue  # the line that describes the capture
        yield _entry(place, entry)
    if number == 0:
        raise FileError(f"{path} is empty")


def _entry(place: str, entry: Any) -> StoredMessage | BadEntry:
    if not isinstance(entry, dict) or not isinstance(entry.get("data"), str):
        return BadEntry(place, 'missing "data", the message in hex')
    lsn = entry.get("lsn")
    if not _is_lsn(lsn):
        return BadEntry(place, f"invalid LSN {lsn!r}")
    try:
        return StoredMessage(place, lsn, bytes.fromhex(entry["data"]))
    except ValueError:
        return BadEntry(place, 'invalid hex in "data"')


def _is_lsn(lsn: object) -> bool:
    return lsn is None or (type(lsn) is int and 0 <= lsn < 1 << 64)


def _read_arrow(path: Path, file: BinaryIO, head: bytes) -> Iterator[StoredMessage | BadEntry]:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise missing_extra("Parquet and Arrow files need pyarrow", "arrow") from error
    try:
        schema, batches = _open_arrow(file, head)
        lsn_at, ordinal_at = (schema.get_field_index(name) for name in ("lsn", "ordinal"))
        data_at = _check_schema(path, schema)
        row, last_ordinal = 0, None
        for batch in batches:
            data = batch.column(data_at).to_pylist()
            lsns = batch.column(lsn_at).to_pylist() if lsn_at >= 0 else [None] * len(data)
            ordinals = batch.column(ordinal_at).to_pylist() if ordinal_at >= 0 else lsns
            for message, lsn, ordinal in zip(data, lsns, ordinals, strict=True):
                place = f"row {row}"
                row += 1
                if ordinal_at >= 0 and ordinal is not None:
                    if last_ordinal is not None and ordinal <= last_ordinal:
                        yield BadEntry(place, f"ordinal {ordinal} after ordinal {last_ordinal}")
                    last_ordinal = ordinal
                if message is None:
                    yield BadEntry(place, "data is null")
                elif not _is_lsn(lsn):
                    yield BadEntry(place, f"invalid LSN {lsn!r}")
                else:
                    yield StoredMessage(place, lsn, message)
    except pa.ArrowException as error:
        raise FileError(f"could not read {path}: {error}") from error


def _open_arrow(file: BinaryIO, head: bytes) -> tuple[Any, Iterator[Any]]:
    """Return the schema and an iterator of record batches."""
    import pyarrow.ipc
    import pyarrow.parquet

    if head.startswith(_PARQUET):
        parquet = pyarrow.parquet.ParquetFile(file)
        return parquet.schema_arrow, parquet.iter_batches()
    if head.startswith(_IPC_STREAM):
        stream = pyarrow.ipc.open_stream(file)
        if "lsn_step" in stream.schema.names:
            return _open_segment(stream)
        return stream.schema, iter(stream)
    reader = pyarrow.ipc.open_file(file)
    return reader.schema, map(reader.get_batch, range(reader.num_record_batches))


def _open_segment(stream: Any) -> tuple[Any, Iterator[Any]]:
    """Return the schema of messages, and an iterator of those in a segment of a log."""
    from pgwire_codec.log.message_columns import SCHEMA, STORED, from_stored

    if not stream.schema.equals(STORED["differences"]):
        return stream.schema, iter(stream)
    return SCHEMA, (from_stored(batch, "differences") for batch in stream)


def _check_schema(path: Path, schema: Any) -> int:
    """Return the index of the column ``data``."""
    from pyarrow import types

    columns = ", ".join(f"{field.name} {field.type}" for field in schema) or "none"
    index: int = schema.get_field_index("data")
    is_binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
    fits = index >= 0 and any(check(schema.field(index).type) for check in is_binary)
    for name in ("lsn", "ordinal"):
        at = schema.get_field_index(name)
        fits = fits and (at < 0 or types.is_integer(schema.field(at).type))
    if not fits:
        raise FileError(
            f"{path} is not a capture: its columns are {columns}",
            hint="A capture has a binary column data, and optionally integer columns lsn and "
            "ordinal.",
        )
    return index


def _not_a_capture(path: Path) -> FileError:
    return FileError(
        f"{path} is not a capture",
        hint="Use JSON lines (plain or gzipped), a Parquet file or an Arrow IPC file.",
    )
