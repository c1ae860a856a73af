"""Every value of the captured types, against what the server itself said of it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from pgwire_codec.arrow.export import to_pyarrow
from pgwire_codec.arrow.values import to_numpy, to_pylist
from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.types import ColumnType, TypeOptions, column_type
from tests.support.corpus import Capture, captures, truth
from tests.support.implementations import Implementation
from tests.support.values import TableColumn, decode, take, user_registry

TYPES = captures("types")
SETTINGS = captures("settings")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def columns(capture: Capture, **options: str) -> list[tuple[str, TableColumn, ColumnType]]:
    taken = take(capture)
    return [
        (
            table,
            parts["v"],
            column_type(
                parts["v"].oid,
                parts["v"].typmod,
                TypeOptions(**options),
                user_types=taken.user_types,
                registry=user_registry(capture),
            ),
        )
        for table, parts in taken.tables.items()
    ]


def test_the_captures_are_there() -> None:
    assert {(c.major, c.options) for c in TYPES} >= {(m, "v1-text") for m in range(12, 19)}
    assert {(c.major, c.options) for c in TYPES} >= {(m, "v1-binary") for m in range(14, 19)}
    for capture in TYPES:
        assert set(take(capture).tables) == set(truth(capture))


@pytest.mark.parametrize("capture", TYPES, ids=str)
def test_text_of_every_type(codec: Implementation, capture: Capture) -> None:
    """``types="text"``: the server's own text, whichever form it sent."""
    for table, column, kind in columns(capture, types="text"):
        rows = truth(capture)[table]["rows"]
        decoded = decode(codec, kind, column.values, binary=column.binary)
        texts = to_pylist(decoded.array)
        expected = [text for _, text, _ in rows]
        if any(column.binary) and table == "t_money":
            # The text of money depends on lc_monetary, which its bytes do not contain.
            expected = [canonical for *_, canonical in rows]
        elif any(column.binary) and table == "t_composite":
            # The stream does not declare the fields of a composite type.
            raw = [value and "\\x" + value.hex() for value in column.values]
            expected = raw
        assert texts == expected, table
        assert decoded.array.format == "u"
        assert len(decoded.invalid) == 0
        to_pyarrow(decoded.array).validate(full=True)


@pytest.mark.parametrize("capture", TYPES, ids=str)
def test_text_by_views(codec: Implementation, capture: Capture) -> None:
    for table, column, kind in columns(capture, types="text", strings="view"):
        copied = decode(
            codec,
            column_type(
                column.oid,
                -1,
                TypeOptions(types="text"),
                user_types=take(capture).user_types,
                registry=user_registry(capture),
            ),
            column.values,
            binary=column.binary,
        )
        decoded = decode(codec, kind, column.values, binary=column.binary)
        assert decoded.array.format == "vu"
        assert to_pylist(decoded.array) == to_pylist(copied.array), table
        arrow = to_pyarrow(decoded.array)
        arrow.validate(full=True)
        assert arrow.to_pylist() == to_pylist(copied.array)


@pytest.mark.parametrize("capture", TYPES, ids=str)
def test_typed_values(codec: Implementation, capture: Capture) -> None:
    """Native types: what the server computed of each value by SQL."""
    for table, column, kind in columns(capture):
        rows = truth(capture)[table]["rows"]
        decoded = decode(codec, kind, column.values, binary=column.binary, unrepresentable="clamp")
        to_pyarrow(decoded.array).validate(full=True)
        assert len(to_numpy(decoded.array)) == len(rows)
        shown = canonical(table, decoded)
        invalid = set(decoded.invalid.tolist())
        for index, (_, text, expected) in enumerate(rows):
            where = (table, text)
            if expected is None:
                assert shown[index] is None, where
                assert index not in invalid, where
            elif index in invalid:
                assert shown[index] == CLAMPED[kind.pg.name, text], where
            elif kind.pg.name == "money" and not any(column.binary):
                assert shown[index] == text, where
            elif table == "t_composite" and any(column.binary):
                assert shown[index] == column.values[index], where
            elif kind.child is not None and kind.format == "+l" and table != "t_enum_array":
                assert shown[index] == json.loads(expected, parse_float=NUMBER[table]), where
            else:
                assert shown[index] == expected, where


@pytest.mark.parametrize("capture", TYPES, ids=str)
def test_unrepresentable_raises_or_is_null(codec: Implementation, capture: Capture) -> None:
    for table, column, kind in columns(capture):
        clamped = decode(codec, kind, column.values, binary=column.binary, unrepresentable="clamp")
        nulled = decode(codec, kind, column.values, binary=column.binary, unrepresentable="null")
        assert nulled.invalid.tolist() == clamped.invalid.tolist()
        values = to_pylist(nulled.array)
        for row in nulled.invalid:
            assert values[row] is None, table
        if len(clamped.invalid):
            with pytest.raises(ValueProblem) as problem:
                decode(codec, kind, column.values, binary=column.binary)
            assert (problem.value.code, problem.value.row) == (
                "unrepresentable",
                clamped.invalid[0],
            )
        else:
            decode(codec, kind, column.values, binary=column.binary)


#: Type and text of what its Arrow type cannot hold, and the nearest that it can.
CLAMPED: dict[tuple[str, str], Any] = {
    ("date", "infinity"): str(INT32_MAX),
    ("date", "-infinity"): str(-INT32_MAX - 1),
    ("time", "24:00:00"): "86399999999",
    ("timestamp", "infinity"): str(INT64_MAX),
    ("timestamp", "-infinity"): str(-INT64_MAX),
    ("timestamptz", "infinity"): str(INT64_MAX),
    ("timestamptz", "-infinity"): str(-INT64_MAX),
    ("timestamp", "294276-12-31 23:59:59.999999"): str(INT64_MAX),
    ("timestamptz", "294276-12-31 23:59:59.999999+00"): str(INT64_MAX),
    ("interval", "infinity"): f"{INT32_MAX} {INT32_MAX} {INT64_MAX // 1000}",
    ("interval", "-infinity"): f"{-INT32_MAX - 1} {-INT32_MAX - 1} {(-INT64_MAX - 1) // 1000}",
    ("numeric", "NaN"): None,
    ("_int4", "{{1,2},{3,4}}"): None,
}
#: JSON's numbers are numerics in one table and floats in the other.
NUMBER: dict[str, Any] = dict.fromkeys(truth(TYPES[0]), float) | {"t_numeric_array": Decimal}


def canonical(table: str, decoded: Decoded) -> list[Any]:
    """Write a column the way the truth's third column is written."""
    array = decoded.array
    plain = array.buffers[0]
    values = to_pylist(array)
    if array.format in ("f", "g"):
        bits = plain.view(f"u{plain.itemsize}")
        shown: list[Any] = [f"{value:0{2 * plain.itemsize}x}" for value in bits.tolist()]
    elif array.format in ("tdD", "ttu") or array.format.startswith("tsu"):
        shown = [str(value) for value in plain.tolist()]
    elif array.format == "+l" and table != "t_enum_array":
        return [element_texts(array.children[0].format, row) for row in values]
    elif array.format == "b":
        shown = [str(value).lower() for value in values]
    elif array.format == "tin":
        shown = [value and f"{value.months} {value.days} {value.us}" for value in values]
    elif array.format == "w:16":
        shown = [value and value.hex for value in values]
    elif table == "t_pg_lsn":
        shown = [
            value if value is None else f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
            for value in values
        ]
    elif table == "t_enum_array":
        shown = [
            "{sad,NULL,happy}" if value == ["sad", None, "happy"] else value for value in values
        ]
    elif table == "t_bytea":
        shown = [None if value is None else value.hex() for value in values]
    elif table == "t_char_10":
        assert all(value is None or len(value) == 10 for value in values)
        shown = [value and value.rstrip(" ") for value in values]
    elif table == "t_inet":
        # inet's cast to text always shows the netmask, its output does not.
        full = {True: "/128", False: "/32"}
        shown = [v if v is None or "/" in v else v + full[":" in v] for v in values]
    elif values and isinstance(values[0], Decimal):
        shown = [None if value is None else f"{value:f}" for value in values]
    elif array.format in ("u", "z"):
        shown = values
    else:
        shown = [str(value) for value in values]
    return [None if value is None else text for value, text in zip(values, shown, strict=True)]


def element_texts(element: str, row: list[Any] | None) -> Any:
    if row is None:
        return None
    if element in ("tdD", "tsu:UTC"):
        return [value and value.isoformat() for value in row]
    return [str(value) if element == "w:16" and value else value for value in row]


@pytest.mark.parametrize("capture", SETTINGS, ids=str)
def test_session_settings(codec: Implementation, capture: Capture) -> None:
    """Other settings decode to the same values, or to an error whose hint names the setting."""
    refused = {
        "german": {"d": "datestyle", "t": "datestyle", "z": "datestyle"},
        "sql": {"d": "datestyle", "t": "datestyle", "z": "datestyle"},
        "iso8601": {"i": "intervalstyle"},
        "sqlstd": {"i": "intervalstyle"},
        "verbose": {"i": "intervalstyle"},
    }.get(capture.options, {})
    said = truth(capture)["s"]
    table = take(capture).tables["s"]
    assert list(table) == said["columns"]
    for name, pinned in zip(said["columns"], zip(*said["rows"], strict=True), strict=True):
        column = table[name]
        expected = [None if text is None else text.encode() for text in pinned]
        if name in refused:
            with pytest.raises(ValueProblem) as problem:
                decode(codec, column.oid, column.values, unrepresentable="clamp")
            assert problem.value.code == "bad_value"
            assert f"Set {refused[name]}=" in (problem.value.hint or "")
            continue
        got = decode(codec, column.oid, column.values, unrepresentable="clamp")
        wanted = decode(codec, column.oid, expected, unrepresentable="clamp")
        if capture.options == "float0" and name == "f":
            # Digits that the server did not send are lost, and cannot be noticed.
            np.testing.assert_array_equal(to_numpy(got.array)[:2], [0.3, np.nan])
            continue
        assert repr(to_pylist(got.array)) == repr(to_pylist(wanted.array))
        assert got.invalid.tolist() == wanted.invalid.tolist()
