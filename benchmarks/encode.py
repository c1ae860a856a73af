"""Columns as messages, by the reference: each distinct value of a column is written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec import reference
from pgwire_codec.protocol.messages import Relation, RelationColumn

#: Bytes of an Insert before the first value of its tuple.
_HEAD: Final = 8


def encode_rows(
    relation: Relation,
    rows: pa.Table,
    *,
    op: str = "I",
    old: pa.Table | None = None,
    unchanged: Mapping[str, npt.NDArray[np.bool_]] | None = None,
    xid: int | None = None,
    binary: bool = False,
) -> pa.LargeBinaryArray:
    """Return a message for each row, the same as ``pgwire_codec.reference.encode_batch``."""
    head = op.encode() + (b"" if xid is None else xid.to_bytes(4, "big"))
    parts: list[Any] = [head + relation.oid.to_bytes(4, "big")]
    identity = rows if op == "D" else old
    if identity is not None:
        is_full = relation.replica_identity == "f"
        keys = {column.name for column in relation.columns if is_full or column.flags}
        parts += _tuple(relation, identity, b"O" if is_full else b"K", binary, keys)
    if op != "D":
        names = {column.name for column in relation.columns}
        parts += _tuple(relation, rows, b"N", binary, names, unchanged or {})
    columns = [_scalar(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, _scalar(b""))


def _scalar(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.large_binary())


def _tuple(
    relation: Relation,
    rows: pa.Table,
    marker: bytes,
    binary: bool,
    names: set[str],
    unchanged: Mapping[str, npt.NDArray[np.bool_]] | None = None,
) -> list[Any]:
    parts: list[Any] = [marker + len(relation.columns).to_bytes(2, "big")]
    for column in relation.columns:
        if column.name not in names:
            parts.append(b"n")
            continue
        cells = _cells(column, rows[column.name].combine_chunks(), binary)
        if unchanged and column.name in unchanged:
            cells = pc.if_else(pa.array(unchanged[column.name]), _scalar(b"u"), cells)
        parts.append(cells)
    return parts


def _cells(column: RelationColumn, values: pa.Array, binary: bool) -> pa.Array:
    """Return the kind, the length and the form of each value."""
    if isinstance(values, pa.ChunkedArray):  # pyarrow combines no rows to this
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    places = pa.array(np.arange(len(values)))
    if not pa.types.is_nested(values.type):
        distinct = values.dictionary_encode()
        values, places = distinct.dictionary, distinct.indices
    relation = Relation(None, 1, "public", "t", "d", (column,))
    messages = pa.array(reference.encode_batch(relation, [values], binary=binary))
    cells = _without_heads(messages).take(places)
    return pc.fill_null(cells, _scalar(b"n"))


def _without_heads(messages: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    count = len(messages)
    _, offsets, data = messages.buffers()
    ends = np.frombuffer(offsets, np.int64)[: count + 1]
    is_kept = np.ones(ends[-1], np.bool_)
    is_kept[ends[:-1, None] + np.arange(_HEAD)] = False
    kept = pa.py_buffer(np.frombuffer(data, np.uint8)[: ends[-1]][is_kept])
    starts = pa.py_buffer(ends - _HEAD * np.arange(count + 1))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, starts, kept])
