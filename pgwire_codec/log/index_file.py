"""Files of a log's index: a row for each of some hundred complete segments.

A file is an Arrow IPC stream, with its checksum after it. It repeats facts of the sidecars, from
which it can be written again, so that a reader of a range does not need those of other segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pgwire_codec._impl import encode_message
from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import FORMAT, check_format, checksum, optional
from pgwire_codec.log.segment import Segment
from pgwire_codec.transactions.carry import RelationVersion, Scope

INDEX: Final = ".index"
REPAIR: Final = "Write the index again: pgwire-codec log verify --repair DIR."

_OPENED: Final = pa.struct(
    [("kind", pa.string()), ("name", pa.string()), ("first_ordinal", pa.int64())]
)
_DEFINITION: Final = pa.struct([("relation", pa.binary()), ("types", pa.list_(pa.binary()))])
_RELATION: Final = pa.struct(
    [("oid", pa.uint32()), ("clock", pa.int64()), ("definition", pa.int32())]
)
_NAME: Final = pa.struct([("name", pa.string()), ("clock", pa.int64()), ("oid", pa.uint32())])
_TABLE: Final = pa.struct(
    [
        ("relation_oid", pa.uint32()),
        *((each, pa.int64()) for each in ("inserts", "updates", "deletes", "truncates", "bytes")),
    ]
)

#: Columns as in :class:`Segment`, and: ``undecodable``, the number of messages that do not decode;
#: ``definitions``, the versions of relations that became known; ``relations``, the relations that
#: it declared, with the number of the definition if that is new; ``names`` and ``types``, what it
#: declared besides; ``tables``, null for segments of format 2. Commit times are null if nothing
#: commits in a segment, and in those that an earlier release sealed.
SCHEMA: Final = pa.schema(
    [
        ("first_ordinal", pa.int64()),
        ("end_ordinal", pa.int64()),
        ("bytes", pa.int64()),
        ("message_bytes", pa.int64()),
        ("commits", pa.int64()),
        ("undecodable", pa.int64()),
        ("first_commit_lsn", pa.uint64()),
        ("last_commit_lsn", pa.uint64()),
        ("delivered_lsn", pa.uint64()),
        ("first_time", pa.timestamp("us", "UTC")),
        ("last_time", pa.timestamp("us", "UTC")),
        ("earliest_commit_time", pa.timestamp("us", "UTC")),
        ("latest_commit_time", pa.timestamp("us", "UTC")),
        ("opened", pa.list_(_OPENED)),
        ("definitions", pa.list_(_DEFINITION)),
        ("relations", pa.list_(_RELATION)),
        ("names", pa.list_(_NAME)),
        ("types", pa.list_(pa.binary())),
        ("tables", pa.list_(_TABLE)),
    ]
)
_COPIED: Final = ("first_ordinal", "end_ordinal", "bytes", "message_bytes", "commits",
                  "first_commit_lsn", "last_commit_lsn", "delivered_lsn")  # fmt: skip
#: Columns that files of format 3 do not have.
_ADDED: Final = ("earliest_commit_time", "latest_commit_time")
_FORMAT: Final = b"pgwire_codec.format"
_LOG_ID: Final = b"pgwire_codec.log_id"
_CHECKSUM_BYTES: Final = 16


def index_row(segment: Segment, before: Scope, declared: Scope) -> dict[str, Any]:
    """Return the row of a segment.

    Parameters
    ----------
    segment : Segment
        A complete segment.
    before : Scope
        The relations known before it.
    declared : Scope
        The relations, types and names that it declared.
    """
    definitions = {each: number for number, each in enumerate(dict.fromkeys(segment.versions))}
    relations = []
    derived: dict[str, tuple[int, int]] = {}
    for oid, (clock, version) in sorted(declared.relations.items(), key=lambda each: each[1][0]):
        derived[version.qualified_name] = clock, oid
        held = before.relations.get(oid)
        number = None
        if held is None or held[1] != version:
            number = definitions.setdefault(version, len(definitions))
        relations.append({"oid": oid, "clock": clock, "definition": number})
    return {
        **{name: getattr(segment, name) for name in _COPIED},
        "first_time": optional(_microseconds, segment.first_time),
        "last_time": optional(_microseconds, segment.last_time),
        **dict(zip(_ADDED, segment.commit_times or (None, None), strict=True)),
        "undecodable": sum(part.undecodable for part in segment.parts),
        "opened": [
            {"kind": kind, "name": str(name), "first_ordinal": ordinal}
            for (kind, name), ordinal in segment.opened.items()
        ],
        "definitions": list(map(_definition, definitions)),
        "relations": relations,
        "names": [
            {"name": name, "clock": clock, "oid": oid}
            for name, (clock, oid) in declared.names.items()
            if derived.get(name) != (clock, oid)
        ],
        "types": list(map(encode_message, declared.types.values())),
        "tables": _tables(segment),
    }


def index_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as a record batch, in one allocation.

    They are kept for long. In a hundred small allocations, made among those of messages, they would
    keep as many pages of freed memory from being returned.
    """
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    return pa.ipc.read_record_batch(batch.serialize(), SCHEMA)


def index_to_bytes(batch: pa.RecordBatch, log_id: str) -> bytes:
    """Return the file of a record batch of rows."""
    metadata = {_FORMAT: b"%d" % FORMAT, _LOG_ID: log_id.encode()}
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    schema = SCHEMA.with_metadata(metadata)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(batch.replace_schema_metadata(metadata))
    data: bytes = sink.getvalue().to_pybytes()
    return data + checksum(data).encode("ascii")


class IndexFile:
    """Content of one file of an index.

    Parameters
    ----------
    data : bytes
        Content of the file.
    file : str
        Name of the file in errors.
    log_id : str
        Identifier of the log.

    Raises
    ------
    LogError
        When the file is damaged, or belongs to another log.
    """

    def __init__(self, data: bytes, file: str, log_id: str) -> None:
        self._data = pa.py_buffer(data)[:-_CHECKSUM_BYTES]
        self._tables: pa.Array | None = None
        if checksum(self._data).encode("ascii") != data[-_CHECKSUM_BYTES:]:
            raise LogError(f"{file} is damaged: its checksum does not match", hint=REPAIR)
        try:
            schema = pa.ipc.open_stream(self._data).schema
            metadata = schema.metadata or {}
            if [*schema] not in (_FIELDS, _OLD_FIELDS) or _FORMAT not in metadata:
                raise ValueError(f"its columns are {schema.names}")
            check_format(int(metadata[_FORMAT]), file)
            #: Its rows, without the column ``tables``.
            self.rows = _with_added(self._read(range(len(schema) - 1)))
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise LogError(f"{file} has invalid content: {error}", hint=REPAIR) from error
        if metadata.get(_LOG_ID) != log_id.encode():
            raise LogError(f"{file} belongs to another log", hint=REPAIR)

    @property
    def tables(self) -> pa.Array:
        """The column ``tables``, which is large, and read when it is needed."""
        if self._tables is None:
            last = len(pa.ipc.open_stream(self._data).schema) - 1
            self._tables = self._read([last]).column(0)
        return self._tables

    def _read(self, columns: Any) -> pa.RecordBatch:
        options = pa.ipc.IpcReadOptions(included_fields=list(columns))
        with pa.ipc.open_stream(self._data, options=options) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
        return batch


def ordinal_ranges(rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield the first ordinal of each row's segment, and the ordinal after its last message."""
    columns = (rows.column(name).to_pylist() for name in ("first_ordinal", "end_ordinal"))
    yield from zip(*columns, strict=True)


_FIELDS: Final = list(SCHEMA)
_OLD_FIELDS: Final = [field for field in SCHEMA if field.name not in _ADDED]


def _with_added(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with nulls in the columns that they do not have."""
    for name in _ADDED:
        if name not in rows.schema.names:
            place = SCHEMA.get_field_index(name)
            nulls = pa.nulls(len(rows), SCHEMA.field(name).type)
            rows = rows.add_column(place, SCHEMA.field(name), nulls)
    return rows


def _microseconds(time: np.datetime64) -> int:
    return int(time.astype("datetime64[us]").astype(np.int64))


def _definition(version: RelationVersion) -> dict[str, Any]:
    types = list(map(encode_message, version.types))
    return {"relation": encode_message(version.relation), "types": types}


def _tables(segment: Segment) -> list[dict[str, Any]] | None:
    if any(part.summary.relations is None for part in segment.parts):
        return None
    names = [field.name for field in _TABLE]
    return [{name: getattr(each, name) for name in names} for each in segment.tables]
