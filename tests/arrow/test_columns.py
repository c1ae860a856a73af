"""Arrow's layout, and what numpy, Python, pyarrow and others make of it."""

from __future__ import annotations

import datetime
import struct
import uuid
from decimal import Decimal
from typing import Any

import nanoarrow
import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.arrow.export import c_schema, to_c_array, to_pyarrow
from pgwire_codec.arrow.layout import ArrowBuffers, valid_rows, validity_bitmap
from pgwire_codec.arrow.values import Interval, to_numpy, to_pylist
from pgwire_codec.codec import value_buffers
from pgwire_codec.lake.row_types import ROW_TYPES
from tests.support.implementations import Implementation, implementation
from tests.support.values import decode

UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"

#: Type, two values as text, Arrow type, numpy dtype, the values in Python.
COLUMNS: list[tuple[str, list[bytes], dict[str, Any], pa.DataType, Any, list[Any]]] = [
    ("bool", [b"t", b"f"], {}, pa.bool_(), "?", [True, False]),
    ("int2", [b"1", b"-2"], {}, pa.int16(), "i2", [1, -2]),
    ("int4", [b"1", b"-2"], {}, pa.int32(), "i4", [1, -2]),
    ("int8", [b"1", b"-2"], {}, pa.int64(), "i8", [1, -2]),
    ("oid", [b"1", b"4294967295"], {}, pa.uint32(), "u4", [1, 2**32 - 1]),
    ("xid8", [b"1", b"18446744073709551615"], {}, pa.uint64(), "u8", [1, 2**64 - 1]),
    ("oid", [b"1", b"4294967295"], {"arrow_types": ROW_TYPES}, pa.int64(), "i8", [1, 2**32 - 1]),
    ("float4", [b"1.5", b"-2"], {}, pa.float32(), "f4", [1.5, -2.0]),
    ("float8", [b"0.1", b"-2"], {}, pa.float64(), "f8", [0.1, -2.0]),
    ("text", [b"a", "é".encode()], {}, pa.string(), "O", ["a", "é"]),
    ("text", [b"a", b"longer than twelve"], {"strings": "view"}, pa.string_view(), "O",
     ["a", "longer than twelve"]),
    ("bytea", [b"\\x", b"\\x00ff"], {}, pa.binary(), "O", [b"", b"\0\xff"]),
    ("date", [b"1969-12-31", b"2024-02-29"], {}, pa.date32(), "M8[D]",
     [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    ("time", [b"00:00:00", b"23:59:59.5"], {}, pa.time64("us"), "i8",
     [datetime.time(0), datetime.time(23, 59, 59, 500000)]),
    ("timestamp", [b"1969-12-31 23:59:59", b"2024-02-29 00:00:00"], {}, pa.timestamp("us"),
     "M8[us]", [datetime.datetime(1969, 12, 31, 23, 59, 59), datetime.datetime(2024, 2, 29)]),
    ("timestamptz", [b"1969-12-31 23:59:59+00", b"2024-02-29 00:00:00+01"], {},
     pa.timestamp("us", "UTC"), "M8[us]",
     [datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.timezone.utc),
      datetime.datetime(2024, 2, 28, 23, tzinfo=datetime.timezone.utc)]),
    ("interval", [b"1 mon", b"-1 days +00:00:01"], {}, pa.month_day_nano_interval(),
     [("months", "<i4"), ("days", "<i4"), ("us", "<i8")],
     [Interval(1, 0, 0), Interval(0, -1, 1000000)]),
    ("numeric", [b"1.50", b"-0.01"], {"typmod": 983046}, pa.decimal128(15, 2), "O",
     [Decimal("1.50"), Decimal("-0.01")]),
    ("numeric", [b"1.5", b"-1"], {"numeric": "decimal256(50,3)"}, pa.decimal256(50, 3), "O",
     [Decimal("1.500"), Decimal("-1.000")]),
    ("numeric", [b"1.50", b"NaN"], {}, pa.string(), "O", [Decimal("1.50"), Decimal("NaN")]),
    ("_int4", [b"{1,NULL}", b"{}"], {}, pa.list_(pa.int32()), "O", [[1, None], []]),
    ("_text", [b"{a,NULL}", b"{}"], {}, pa.list_(pa.string()), "O", [["a", None], []]),
    ("_numeric", [b"{1.5,NULL}", b"{}"], {}, pa.list_(pa.string()), "O",
     [[Decimal("1.5"), None], []]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values", "options", "arrow", "dtype", "python"), COLUMNS)
@pytest.mark.parametrize("null", [False, True], ids=["full", "null"])
def test_columns(
    codec: Implementation,
    kind: str,
    values: list[bytes],
    options: dict[str, Any],
    arrow: pa.DataType,
    dtype: Any,
    python: list[Any],
    null: bool,
) -> None:
    rows: list[bytes | None] = [*values, None] if null else [*values]
    array = decode(codec, kind, rows, **options).array
    assert (array.length, array.null_count) == (len(rows), int(null))
    assert (array.validity is None) == (not null)
    assert valid_rows(array).tolist() == [row is not None for row in rows]
    assert repr(to_pylist(array)) == repr(python + [None] * null)

    shown = to_pyarrow(array)
    shown.validate(full=True)
    assert shown.type == arrow
    assert shown.null_count == int(null)
    if "Decimal" not in repr(python) or pa.types.is_decimal(arrow):
        expected = pa.array(
            [(v.months, v.days, v.us * 1000) if isinstance(v, Interval) else v for v in python]
            + [None] * null,
            arrow,
        )
        assert shown.equals(expected)

    columns = to_numpy(array)
    assert columns.dtype == np.dtype(dtype)
    assert len(columns) == len(rows)
    if columns.dtype.kind in "OM":
        assert type(columns) is np.ndarray
        assert not null or columns[-1] is None or np.isnat(columns[-1])
    else:
        assert isinstance(columns, np.ma.MaskedArray) == null
        mask: Any = np.ma.getmaskarray(columns)
        mask = mask["days"] if mask.dtype.names else mask
        assert not null or mask.tolist() == [False, False, True]
    if columns.dtype.kind in "Obiuf" and kind != "time":
        assert repr(columns.tolist()) == repr(python + [None] * null)


def test_uuid_is_arrow_s_own_extension(codec: Implementation) -> None:
    array = decode(codec, "uuid", [UUID.encode(), None]).array
    assert to_pylist(array) == [uuid.UUID(UUID), None]
    assert to_pyarrow(array).type == pa.uuid()
    assert to_pyarrow(array).to_pylist() == [uuid.UUID(UUID), None]
    plain = to_numpy(array)
    assert plain.dtype == np.dtype("V16")
    assert plain[0].tobytes() == uuid.UUID(UUID).bytes
    schema = nanoarrow.c_schema(c_schema(array, "id"))
    assert (schema.name, schema.format) == ("id", "w:16")
    assert dict(schema.metadata.items())[b"ARROW:extension:name"] == b"arrow.uuid"
    elements = decode(codec, "_uuid", [f"{{{UUID},NULL}}".encode()]).array
    assert to_pyarrow(elements).type == pa.list_(pa.uuid())


def test_fixed_bytes_that_are_no_uuid() -> None:
    array = ArrowBuffers("w:2", 2, 0, None, [np.frombuffer(b"abcd", np.uint8)])
    assert to_pylist(array) == [b"ab", b"cd"]
    assert to_pyarrow(array).to_pylist() == [b"ab", b"cd"]


def test_no_rows(codec: Implementation) -> None:
    for kind, _, options, arrow, _, _ in COLUMNS:
        array = decode(codec, kind, [], **options).array
        assert (array.length, to_pylist(array), len(to_numpy(array))) == (0, [], 0)
        shown = to_pyarrow(array)
        shown.validate(full=True)
        assert (shown.type, len(shown)) == (arrow, 0)


def test_null_slots_are_zero(codec: Implementation) -> None:
    array = decode(codec, "int8", [b"5", None, b"6"]).array
    assert array.buffers[0].tolist() == [5, 0, 6]
    strings = decode(codec, "text", [b"ab", None, b"c"]).array
    assert [buffer.tolist() for buffer in strings.buffers] == [[0, 2, 2, 3], list(b"abc")]
    lists = decode(codec, "_int4", [b"{1}", None, b"{2,NULL}"]).array
    assert lists.buffers[0].tolist() == [0, 1, 1, 3]
    assert lists.children[0].buffers[0].tolist() == [1, 2, 0]


def test_bitmaps() -> None:
    assert validity_bitmap([True] * 9) == (0, None)
    nulls, bitmap = validity_bitmap([True, False] * 5)
    assert bitmap is not None
    assert (nulls, bitmap.tolist()) == (5, [0b01010101, 0b01])
    assert validity_bitmap([])[0] == 0


def test_buffers_are_not_copied_on_the_way_to_pyarrow(codec: Implementation) -> None:
    array = decode(codec, "int8", [b"5", b"6"]).array
    shown = to_pyarrow(array)
    assert shown.buffers()[1].address == array.buffers[0].ctypes.data


def test_views_point_into_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = implementation("python")  # the core takes 2 GB of messages for this
    # Messages longer than a view's offset reaches are cut into overlapping pieces.
    monkeypatch.setattr(value_buffers, "_CHUNK", 32)
    values = [b"x" * length for length in range(0, 33, 4)] + [None, b"the end of the matter"]
    for kind in ("text", 99999):
        array = decode(codec, kind, values, strings="view").array
        assert array.format == "vu"
        assert to_pylist(array) == [None if value is None else value.decode() for value in values]
        messages = array.buffers[1]
        assert all(piece.base is not None for piece in array.buffers[1:])
        assert len(messages) == 64
        shown = to_pyarrow(array)
        shown.validate(full=True)
        assert shown.to_pylist() == to_pylist(array)
        copied = nanoarrow.Array(to_c_array(array))
        assert copied.schema.type == nanoarrow.Type.STRING
        assert copied.to_pylist() == to_pylist(array)


def test_views_of_what_is_not_in_the_messages(codec: Implementation) -> None:
    rows = [b"10.0.0.0/8", struct.pack(">4B16s", 3, 64, 0, 16, bytes(range(16)))]
    array = decode(
        codec, "inet", [*rows, rows[1]], binary=[False, True, True], strings="view"
    ).array
    address = "1:203:405:607:809:a0b:c0d:e0f/64"
    assert to_pylist(array) == ["10.0.0.0/8", address, address]
    to_pyarrow(array).validate(full=True)
    assert to_pyarrow(array).to_pylist() == to_pylist(array)


def test_structs(codec: Implementation) -> None:
    fields = [decode(codec, "int4", [b"1", None]).array, decode(codec, "text", [b"a", b"b"]).array]
    nulls, validity = validity_bitmap([True, False])
    array = ArrowBuffers("+s", 2, nulls, validity, [], children=fields, names=["n", "t"])
    assert to_pylist(array) == [{"n": 1, "t": "a"}, None]
    assert to_numpy(array).tolist() == to_pylist(array)
    shown = to_pyarrow(array)
    shown.validate(full=True)
    assert shown.to_pylist() == to_pylist(array)
    assert shown.type == pa.struct([("n", pa.int32()), ("t", pa.string())])


def test_structs_with_views(codec: Implementation) -> None:
    views = decode(codec, "text", [b"a", b"longer than twelve"], strings="view").array
    array = ArrowBuffers("+s", 2, 0, None, [], children=[views], names=["t"])
    shown = to_pyarrow(array)
    shown.validate(full=True)
    assert shown.to_pylist() == to_pylist(array)
    assert shown.type.field("t").type == pa.string_view()


def test_without_pyarrow(codec: Implementation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    array = decode(codec, "int4", [b"1", None]).array
    assert nanoarrow.Array(to_c_array(array)).to_pylist() == [1, None]
    with pytest.raises(ImportError, match=r"pip install 'pgwire-codec\[arrow\]'"):
        to_pyarrow(array)
