"""Arrow columns to the messages of their rows, value by value: the oracle of the compiled one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import nanoarrow
import numpy as np
import numpy.typing as npt

from pgwire_codec.errors import EncodeError
from pgwire_codec.protocol.messages import Delete, Insert, Relation, TupleData, Update
from pgwire_codec.reference.codec import encode_message
from pgwire_codec.reference.encode_plan import (
    EncodePart,
    EncodePlan,
    EncodeTuple,
    ValueSource,
    prepare,
)
from pgwire_codec.reference.families.forms import Unwritable
from pgwire_codec.reference.stored_values import stored_values
from pgwire_codec.types import TypeRegistry, default_registry

MAX_VALUE: Final = 2**31 - 1  # the most that a value's length field can hold


def encode_batch(
    relation: Relation,
    columns: object,
    *,
    op: str = "I",
    old: object = None,
    unchanged: Mapping[str, npt.ArrayLike] | None = None,
    xid: int | None = None,
    binary: bool = False,
    registry: TypeRegistry | None = None,
) -> nanoarrow.Array:
    r"""Write Arrow columns as pgoutput messages, one a row.

    The bytes are those that the server sends for such rows, under the settings that a capture
    pins: DateStyle ISO, IntervalStyle postgres, TimeZone UTC, extra_float_digits 3, bytea_output
    hex.

    Parameters
    ----------
    relation : Relation
        The table. The type OIDs and modifiers of its columns decide how values are written.
    columns : table-like, mapping or sequence
        The rows: an Arrow table or record batch (anything with ``__arrow_c_stream__`` or
        ``__arrow_c_array__`` whose type is a struct: pyarrow, polars, nanoarrow, DuckDB), a
        mapping of column names to arrays, or a list of arrays in the relation's order. Columns
        may be chunked. Each column is given as the Arrow type that it decodes to, or one near
        (see Notes), or as strings: the server's text. A null is NULL.
    op : {"I", "U", "D"}
        Insert, Update or Delete. A Delete's tuple is the old one: all columns where the relation's
        replica identity is full, else its key columns; other columns of `columns` are not read.
    old : table-like, mapping or sequence, optional
        With ``op="U"``: the old tuples, of as many rows, as a Delete has them. Without it the
        updates have none, as those that leave the key alone.
    unchanged : mapping of str to array of bool, optional
        With ``op="U"``: for a column, the rows whose value is an unchanged TOAST value, which the
        server does not send.
    xid : int, optional
        Write the messages as they are inside a stream block, with this transaction ID.
    binary : bool
        Write values in binary form, but for those given as strings whose type is not text itself.
    registry : TypeRegistry, optional
        Where OIDs are looked up; the process-wide registry by default. Values of a type that is
        not known are given as strings, or as binary: their binary form.

    Returns
    -------
    nanoarrow.Array of large_binary
        One message a row. pyarrow and :meth:`Decoder.decode` take it as it is.

    Raises
    ------
    EncodeError
        If a column is missing, is not one of the relation's, or has an Arrow type that its own type
        is not written from; if a value is not one of its type's: a number out of range, digits
        that numeric(p,s) cannot hold, nanoseconds. The text names column and row.
    OptionError
        If `op` is not one of the three, or does not go with `old` or `unchanged`.
    TypeError
        If `relation` is not a Relation, or `columns` not one of the above.

    Notes
    -----
    ===============================  ==============================================
    PostgreSQL                       Arrow, beside string
    ===============================  ==============================================
    bool                             bool
    int2, int4, int8, oid, xid, ...  any integer whose values fit
    pg_lsn, xid8, oid8               any integer whose values fit
    float4                           float32
    float8                           float32, float64
    numeric                          decimal128, decimal256, any integer
    bytea                            binary, large_binary, binary_view, fixed_size_binary
    uuid                             fixed_size_binary(16)
    date                             date32
    time                             time32, time64
    timestamp, timestamptz           timestamp without zone, with any zone
    interval                         month_day_nano_interval
    arrays                           a list of one of these
    ===============================  ==============================================

    PostgreSQL documentation, "Logical Replication Message Formats".

    Examples
    --------
    >>> import pyarrow as pa
    >>> from pgwire_codec import Relation, RelationColumn
    >>> table = Relation(None, 1, "public", "t", "d", (RelationColumn(1, "id", 23, -1),))
    >>> encode_batch(table, {"id": pa.array([7])}).to_pylist()
    [b'I\x00\x00\x00\x01N\x00\x01t\x00\x00\x00\x017']
    """
    plan = prepare(relation, columns, op, old, unchanged, xid, binary, registry or default_registry)
    messages = [data for part in plan.parts for data in encode_rows(plan, part, 0, part.rows)]
    offsets = np.zeros(len(messages) + 1, np.int64)
    np.cumsum([len(data) for data in messages], out=offsets[1:])
    return to_array(offsets, np.frombuffer(b"".join(messages), np.uint8))


def encode_rows(plan: EncodePlan, part: EncodePart, start: int, stop: int) -> list[bytes]:
    """Return the messages of some rows of a part."""
    given = [_values(each, start, stop) for each in part.tuples]
    messages = []
    for row in range(start, stop):
        tuples = {
            each.marker: _tuple(part, each, row, [column[row - start] for column in values])
            for each, values in zip(part.tuples, given, strict=True)
        }
        key, old, new = (tuples.get(marker) for marker in (b"K", b"O", b"N"))
        message: Insert | Update | Delete
        if plan.op == "D":
            message = Delete(plan.xid, plan.relation_oid, key, old)
        else:
            assert new is not None
            if plan.op == "U":
                message = Update(plan.xid, plan.relation_oid, key, old, new)
            else:
                message = Insert(plan.xid, plan.relation_oid, new)
        messages.append(encode_message(message))
    return messages


def _values(each: EncodeTuple, start: int, stop: int) -> list[list[Any]]:
    return [
        [None] * (stop - start)
        if source is None
        else stored_values(source.array, source.start + start, stop - start)
        for source in each.sources
    ]


def _tuple(part: EncodePart, each: EncodeTuple, row: int, values: list[Any]) -> TupleData:
    cells = [
        (b"n", None) if source is None else encode_cell(part, source, row, value)
        for source, value in zip(each.sources, values, strict=True)
    ]
    return TupleData(b"".join(kind for kind, _ in cells), tuple(form for _, form in cells))


def encode_cell(
    part: EncodePart, source: ValueSource, row: int, value: Any
) -> tuple[bytes, bytes | None]:
    """Return the kind and the form of one stored value.

    Raises
    ------
    EncodeError
        If it is not a value of the column's type.
    """
    if source.unchanged is not None and source.unchanged[row]:
        return b"u", None
    if value is None:
        return b"n", None
    try:
        if source.binary:
            form = source.family.binary_form(source.column, source.formats, value)
        else:
            form = source.family.text_form(source.column, source.formats, value)
        if len(form) > MAX_VALUE:
            raise Unwritable(f"a value of at most {MAX_VALUE} bytes, not {len(form)}")
    except Unwritable as problem:
        raise EncodeError(
            f"column {source.name!r}, row {part.first_row + row}: wanted {problem}"
        ) from None
    return b"b" if source.binary else b"t", form


def to_array(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> nanoarrow.Array:
    """Wrap messages as the Arrow array that encode_batch returns."""
    return nanoarrow.Array(
        nanoarrow.c_array_from_buffers(
            nanoarrow.large_binary(), len(offsets) - 1, [None, offsets, data], null_count=0
        )
    )
