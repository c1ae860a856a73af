"""Rows of a COPY, converted by the compiled and by the plain reader."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.capture.connection.frames import ReadOutcome
from pgwire_codec.capture.snapshot.copy_to_inserts import insert_head
from pgwire_codec.errors import CaptureError
from tests.support.build import insert
from tests.support.scripted_libpq import Connection

pytest.importorskip(
    "pgwire_codec.capture.snapshot._copy_reader", reason="the compiled core is not built"
)

OID = 4711
HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER = b"\xff\xff"

VALUES = st.one_of(
    st.none(),
    st.text(st.sampled_from("aN\\\t\n\r\b\f\v\0é").filter(lambda c: c != "\0"), max_size=6),
    st.sampled_from(["", "\\N", "N", "x" * 9000]),
).map(lambda value: value if value is None else value.encode())
TABLES = st.integers(0, 4).flatmap(
    lambda columns: st.tuples(
        st.just(columns),
        st.lists(st.lists(VALUES, min_size=columns, max_size=columns), max_size=30),
    )
)
#: As in PostgreSQL's CopyAttributeOutText.
ESCAPES = {8: b"\\b", 12: b"\\f", 10: b"\\n", 13: b"\\r", 9: b"\\t", 11: b"\\v", 92: b"\\\\"}


def text(row: list[bytes | None]) -> bytes:
    """A row as COPY sends it in its text format."""
    values = (
        b"\\N" if each is None else b"".join(ESCAPES.get(byte, bytes([byte])) for byte in each)
        for each in row
    )
    return b"\t".join(values) + b"\n"


def binary(row: list[bytes | None]) -> bytes:
    """A row as COPY sends it in its binary format."""
    values = (
        struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each
        for each in row
    )
    return struct.pack(">h", len(row)) + b"".join(values)


def sent(row: list[bytes | None], is_binary: bool) -> list[str | bytes | None]:
    """Values as an Insert has them: every other one is in its binary form, if the COPY is."""
    return [
        each if each is None or (is_binary and number % 2) else each.decode()
        for number, each in enumerate(row)
    ]


def read(
    script: list[bytes | int],
    columns: int,
    socket: int,
    *,
    is_compiled: bool,
    is_binary: bool,
    max_bytes: int,
) -> tuple[int, list[bytes]]:
    """Read to the end; return the last outcome, and the messages."""
    connection = Connection(script, socket)
    reader = connection.copy_reader(
        insert_head(OID, columns), (b"tb" * 2)[:columns], is_compiled=is_compiled, binary=is_binary
    )
    messages = []
    outcome = ReadOutcome.FULL
    try:
        while outcome == ReadOutcome.FULL:
            outcome, data, offsets = reader.read(max_bytes)
            assert (data.dtype, offsets.dtype) == (np.uint8, np.int32)
            assert offsets[-1] == len(data)
            assert outcome != ReadOutcome.FULL or data.size or not is_compiled
            messages += [data[start:stop].tobytes() for start, stop in pairwise(offsets.tolist())]
    finally:
        assert connection.unfreed == 0
    return outcome, messages


@given(
    table=TABLES,
    is_binary=st.booleans(),
    max_bytes=st.sampled_from([1, 100, 20_000, 1 << 30]),
    end=st.sampled_from([-1, -2]),
    waits=st.integers(0, 31),
    apart=st.booleans(),
)
def test_both_have_the_rows(
    readable: int,
    table: tuple[int, list[list[bytes | None]]],
    is_binary: bool,
    max_bytes: int,
    end: int,
    waits: int,
    apart: bool,
) -> None:
    columns, rows = table
    script: list[Any] = [(binary if is_binary else text)(row) for row in rows]
    if is_binary:  # the header is in a frame of its own, or in that of the first row
        script = [HEADER, *script] if apart or not rows else [HEADER + script[0], *script[1:]]
        script.append(TRAILER)
    script.insert(min(waits, len(script)), 0)
    expected = [pgc.encode_message(insert(OID, *sent(row, is_binary))) for row in rows]
    for is_compiled in (False, True):
        found = read(
            [*script, end], columns, readable,
            is_compiled=is_compiled, is_binary=is_binary, max_bytes=max_bytes,
        )  # fmt: skip
        outcome = ReadOutcome.ENDED if end == -1 else ReadOutcome.BROKEN
        assert found == (outcome, expected)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    ("is_binary", "row"),
    [
        (False, b"1\n"),
        (False, b"1\t2\t3\n"),
        (False, b"1\t2"),
        (False, b"1\n2\t"),
        (True, binary([b"1"])),
        (True, binary([b"1", b"2", b"3"])),
        (True, binary([b"1", b"2"])[:-1]),
        (True, binary([b"1", b"2"])[:10]),
        (True, b"\0"),
    ],
)
def test_other_columns(readable: int, is_compiled: bool, is_binary: bool, row: bytes) -> None:
    script: list[bytes | int] = [HEADER, row, -1] if is_binary else [row, -1]
    with pytest.raises(CaptureError, match="COPY sent a row that does not have 2 columns"):
        read(script, 2, readable, is_compiled=is_compiled, is_binary=is_binary, max_bytes=1 << 20)


def test_a_row_ends_with_a_backslash(readable: int) -> None:
    script: list[bytes | int] = [b"1\t2\\\n", -1]
    with pytest.raises(CaptureError, match="COPY sent a row that does not have 2 columns"):
        read(script, 2, readable, is_compiled=True, is_binary=False, max_bytes=1)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("first", [binary([b"1", b"2"]), HEADER[:18], b"P"])
def test_no_signature(readable: int, is_compiled: bool, first: bytes) -> None:
    with pytest.raises(CaptureError, match="does not begin with its signature"):
        read([first, -1], 2, readable, is_compiled=is_compiled, is_binary=True, max_bytes=1)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_lost_connection(readable: int, is_compiled: bool) -> None:
    """Reading fails once the script has ended."""
    options = {"is_compiled": is_compiled, "is_binary": False, "max_bytes": 1 << 20}
    outcome, messages = read([b"1\n"], 1, readable, **options)  # type: ignore[arg-type]
    assert outcome == ReadOutcome.BROKEN
    assert len(messages) == 1
