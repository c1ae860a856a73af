"""Blocks that the kernels decode without a branch a value, and blocks that just miss that."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.reference import values as reference
from pgwire_codec.types import ColumnType, TypeOptions, column_type

compiled: Any = pytest.importorskip("pgwire_codec._core.implementation")

ROWS = 300  # more than a block
INT2, INT4, INT8, OID, TEXT, DATE, NUMERIC = 21, 23, 20, 26, 25, 1082, 1700


def kind(oid: int, modifier: int = -1) -> ColumnType:
    return column_type(oid, modifier, TypeOptions())


def numeric(precision: int, scale: int) -> ColumnType:
    return kind(NUMERIC, (precision << 16 | scale) + 4)


def decoded(decode: Any, column: ColumnType, values: list[bytes], form: int) -> object:
    """Return the array's buffers and the invalid rows, or the error."""
    # The last value ends where the data do.
    data = np.frombuffer(b"\0" * 12 + b"".join(values), np.uint8).copy()
    lengths = np.array([len(value) for value in values], np.int32)
    offsets = 12 + np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    states, forms = np.ones(len(values), np.uint8), np.full(len(values), form, np.uint8)
    try:
        found: Decoded = decode(column, data, offsets, lengths, states, forms)
    except ValueProblem as problem:
        return problem.args
    buffers = [buffer.tobytes() for buffer in found.array.buffers]
    return buffers, found.array.null_count, found.invalid.tolist()


def same(column: ColumnType, values: list[bytes], form: int = 0) -> None:
    assert decoded(compiled.decode_values, column, values, form) == decoded(
        reference.decode_values, column, values, form
    )


def among(usual: list[bytes], other: bytes) -> list[bytes]:
    """Return blocks of usual values, with another value in the second block and at the end."""
    values = (usual * ROWS)[:ROWS]
    values[ROWS - 7] = values[-1] = other
    return values


@pytest.mark.parametrize("oid", [INT2, INT4, INT8, OID])
@pytest.mark.parametrize(
    "other", [b"0", b"-1", b"-0", b"-", b"", b"--1", b"1-", b"99999999", b"-99999999", b"32767",
              b"-32768", b"-32769", b"32768", b"123456789", b"1x", b"/", b":", b" 1"]
)  # fmt: skip
@pytest.mark.parametrize("usual", [[b"7", b"1234"], [b"-7", b"31", b"-3276"]])
def test_integers(oid: int, usual: list[bytes], other: bytes) -> None:
    same(kind(oid), among(usual, other))


@pytest.mark.parametrize("oid", [INT2, INT4, INT8, OID, DATE])
def test_binary_numbers(oid: int) -> None:
    size = {INT2: 2, INT8: 8}.get(oid, 4)
    usual = [number.to_bytes(size, "big", signed=True) for number in (0, 1, -1, 1000, -32768)]
    if oid in (OID, DATE):
        usual = usual[:2]
    for other in (usual[0], usual[0][1:], usual[0] + b"\0", b"", b"\x80" + bytes(size - 1),
                  b"\x7f" + b"\xff" * (size - 1), b"\x7f\xd9\xb8\x68"[:size]):  # fmt: skip
        same(kind(oid), among(usual, other), 1)


def test_every_date() -> None:
    years = (1, 4, 100, 400, 1600, 1900, 1999, 2000, 2023, 2024, 9999)
    days = [
        f"{year:04}-{month:02}-{day:02}".encode()
        for year in years
        for month in range(1, 13)
        for day in range(1, 29)
    ]
    same(kind(DATE), days)
    for other in (b"0000-01-01", b"2024-02-29", b"2023-02-29", b"1900-02-29", b"2024-13-01",
                  b"2024-00-01", b"2024-04-31", b"2024-01-00", b"2024-01-32", b"2024:01-01",
                  b"2024-01.01", b"2024-01\xad01", b"2024\xac01-01", b"202a-01-01", b"2024-1a-01",
                  b"2024-01-0:", b"2024-01-\xb01", b"\xb2024-01-01", b"2024-91-01", b"2024-01-1",
                  b"12024-01-01", b"infinity", b""):  # fmt: skip
        same(kind(DATE), among(days[:5], other))


@pytest.mark.parametrize("width", [1, 7, 8, 9, 15, 16, 31, 32, 63, 64, 65, 200])
@pytest.mark.parametrize(
    "other", [b"", b"a", b"z" * 63, "é".encode(), b"\xff", b"\xc3", b"long" * 40]
)
def test_strings(width: int, other: bytes) -> None:
    usual = [b"x" * width, b"y" * (width // 2), b""]
    same(kind(TEXT), among(usual, other))
    same(kind(TEXT), among(usual, other), 1)


def test_empty_strings() -> None:
    same(kind(TEXT), [b""] * ROWS)


def group(count: int, weight: int, sign: int, shown: int, *digits: int) -> bytes:
    return struct.pack(f">HhHH{len(digits)}H", count, weight, sign, shown, *digits)


@pytest.mark.parametrize("scale", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("precision", [9, 15, 30])
def test_binary_numerics(precision: int, scale: int) -> None:
    unit = 10 ** (4 - min(scale, 4))
    usual = [
        group(0, 0, 0, scale),
        group(1, 0, 0, scale, 17),
        group(1, 0, 0x4000, scale, 9999),
        group(1, -1, 0, scale, unit),
        group(2, 0, 0x4000, scale, 12, 9 * unit),
        group(1, 1, 0, scale, 3),
    ]
    others = [
        group(3, 1, 0, scale, 9, 9999, 9 * unit),
        group(3, 1, 0, scale, 99, 9999, 9 * unit),
        group(4, 2, 0, scale, 9999, 9999, 9999, 9 * unit),
        group(1, 2, 0, scale, 9999),
        group(1, 3, 0, scale, 1),
        group(1, 0, 0, scale, 10000),
        group(2, 0, 0, scale, 1, 0xFFFF),
        group(2, 0, 0, scale, 1, 42768),
        group(1, -1, 0, scale, 1),
        group(1, -2, 0, scale, 1),
        group(0, 0, 0x4000, scale),
        group(0, 5, 0, scale),
        group(0, 0, 0xC000, scale),
        group(0, 0, 0xD000, scale),
        group(1, 0, 0, scale + 1, 5),
        group(1, 0, 0, 0, 5),
        group(2, 0, 0, scale, 5),
        group(1, 0, 0x2000, scale, 5),
        group(0, 0, 0, scale)[:7],
        group(1, 0, 0, scale, 5)[:9],
        b"",
    ]
    for other in others:
        same(numeric(precision, scale), among(usual, other), 1)
