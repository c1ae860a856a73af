"""Deletion vectors, compared with the bytes that other libraries write."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.lake.tables.delta_vectors import z85_decode, z85_encode
from pgwire_codec.lake.vectors import (
    bitmap,
    from_blob,
    positions_of,
    serialize,
    to_blob,
)

pytest.importorskip("pyroaring", reason="needs the extra lake")


@given(st.sets(st.integers(0, 2**40), max_size=50))
def test_a_vector_is_read_as_it_was_written(positions: set[int]) -> None:
    blob = to_blob(bitmap(positions))
    length, magic = struct.unpack(">i", blob[:4])[0], struct.unpack("<i", blob[4:8])[0]
    assert (length, magic) == (len(blob) - 8, 1681511377)
    assert struct.unpack(">I", blob[-4:])[0] == zlib.crc32(blob[4:-4])
    assert blob[4:-4] == serialize(bitmap(positions))
    assert positions_of(from_blob(blob + b"next")).tolist() == sorted(positions)


def test_a_damaged_vector_is_an_error() -> None:
    blob = to_blob(bitmap([3, 4, 7, 11, 18, 29]))
    for place in range(len(blob)):
        damaged = bytearray(blob)
        damaged[place] ^= 0x10
        with pytest.raises(ValueError, match="deletion vector"):
            from_blob(bytes(damaged))
    for length in range(len(blob)):
        with pytest.raises(ValueError, match="deletion vector"):
            from_blob(blob[:length])


def test_the_example_of_base_85() -> None:
    """The one of ZeroMQ's RFC 32."""
    assert z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert z85_decode("HelloWorld").hex() == "864fd26fb559f75b"
    for text in ("Hell", "Hell;", "Hell~", "Hell'", "Hellé", "#####"):
        with pytest.raises(ValueError):  # noqa: PT011  (the message is Python's)
            z85_decode(text)


@given(st.binary(max_size=40).map(lambda data: data + bytes(-len(data) % 4)))
def test_base_85(data: bytes) -> None:
    assert z85_decode(z85_encode(data)) == data
