"""Malformed messages: an error with code and offset, or a message; nothing else."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.errors import ErrorCode
from tests.support.build import shapes, walk
from tests.support.corpus import captures
from tests.support.golden import FRAMES, MESSAGES, Golden

CODES = {
    ErrorCode.TRUNCATED,
    ErrorCode.TRAILING_BYTES,
    ErrorCode.UNKNOWN_TAG,
    ErrorCode.BAD_LENGTH,
    ErrorCode.BAD_VALUE,
    ErrorCode.INVALID_UTF8,
}


def decode_or_error(data: bytes, streaming: bool) -> pgc.DecodeError | None:
    """None for a message that is written as it was read; the error, if it is a sound one."""
    try:
        message = pgc.decode_message(data, streaming=streaming)
    except pgc.DecodeError as raised:
        error = raised
    else:
        assert pgc.encode_message(message) == data, data.hex()
        return None
    assert error.code in CODES
    assert 0 <= error.offset <= len(data)
    assert error.expected
    assert error.message_index is None
    return error


def sample() -> list[tuple[bytes, bool]]:
    """The shapes of the corpus, and the messages written by hand."""
    return [*shapes(), *((each.data, each.streaming) for each in MESSAGES)]


# Cut and continued.


def test_a_message_cut_at_any_byte_is_truncated() -> None:
    shorter = 0
    for data, streaming in sample():
        last = 0
        for stop in range(len(data)):
            error = decode_or_error(data[:stop], streaming)
            if error is None:
                # The one message that is valid when it ends early.
                assert (data[:1], stop) == (b"A", 9)
                shorter += 1
                continue
            assert error.code == ErrorCode.TRUNCATED, (data.hex(), stop)
            assert last <= error.offset <= stop  # the field that was cut, never one before
            last = error.offset
    assert shorter


@pytest.mark.parametrize("golden", FRAMES, ids=str)
def test_a_frame_cut_at_any_byte_is_truncated(golden: Golden) -> None:
    for stop in range(len(golden.data)):
        if golden.data[:1] == b"w" and stop >= 25:  # what it carries may be of any length
            assert pgc.decode_frame(golden.data[:stop])
            continue
        with pytest.raises(pgc.DecodeError) as raised:
            pgc.decode_frame(golden.data[:stop])
        assert raised.value.code == ErrorCode.TRUNCATED
        assert 0 <= raised.value.offset <= stop


def test_bytes_behind_a_message_are_an_error_at_its_end() -> None:
    for data, streaming in sample():
        error = decode_or_error(data + b"\0", streaming)
        assert error is not None
        if data[:1] == b"A" and len(data) == 9:  # as if the abort LSN began
            assert error.code == ErrorCode.TRUNCATED
        else:
            assert (error.code, error.offset) == (ErrorCode.TRAILING_BYTES, len(data))


def test_bytes_behind_a_frame_are_an_error_at_its_end() -> None:
    for golden in FRAMES:
        if golden.data[:1] == b"w":
            continue
        with pytest.raises(pgc.DecodeError) as raised:
            pgc.decode_frame(golden.data + b"\0")
        found = (raised.value.code, raised.value.offset)
        assert found == (ErrorCode.TRAILING_BYTES, len(golden.data))


# Changed.


def test_any_byte_changed_gives_a_message_or_an_error() -> None:
    outcomes: set[str] = set()
    for data, streaming in sample():
        changed = bytearray(data)
        for place, was in enumerate(data):
            for value in {0, 1, 2, 0x20, 0x7F, 0x80, 0xFF, was ^ 1, was ^ 0x20, ord("N")} - {was}:
                changed[place] = value
                error = decode_or_error(bytes(changed), streaming)
                outcomes.add("message" if error is None else error.code)
            changed[place] = was
    assert outcomes == {"message", *CODES}


def test_random_changes_in_real_messages_give_a_message_or_an_error() -> None:
    random_ = random.Random(20_000_101)
    outcomes: set[str] = set()
    for capture in captures(major=17):
        messages = list(walk(capture))
        for data, streaming in random_.sample(messages, min(60, len(messages))):
            changed = bytearray(data)
            changed[random_.randrange(len(data))] = random_.randrange(256)
            error = decode_or_error(bytes(changed), streaming)
            outcomes.add("message" if error is None else error.code)
    assert {"message", ErrorCode.TRUNCATED, ErrorCode.UNKNOWN_TAG} <= outcomes


@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_give_a_message_or_an_error(data: bytes, streaming: bool) -> None:
    decode_or_error(data, streaming)


@given(st.sampled_from(b"BMCORYIUDTSEcAbPKrp"), st.binary(max_size=64), st.booleans())
def test_any_bytes_behind_a_tag_give_a_message_or_an_error(
    tag: int, data: bytes, streaming: bool
) -> None:
    decode_or_error(bytes([tag]) + data, streaming)


# Named ways of being wrong: bytes, code, and the offset in the error.

XID = "000002e7"
OID = "00004001"

BAD = {
    "empty": ("", ErrorCode.TRUNCATED, 0),
    "unknown tag": ("5a 00", ErrorCode.UNKNOWN_TAG, 0),
    "tag of a frame": ("77 00", ErrorCode.UNKNOWN_TAG, 0),
    "tag not ASCII": ("ff", ErrorCode.UNKNOWN_TAG, 0),
    "value of length -1": (f"49 {OID} 4e 0001 74 ffffffff", ErrorCode.BAD_LENGTH, 9),
    "value of length -2**31": (f"49 {OID} 4e 0001 62 80000000", ErrorCode.BAD_LENGTH, 9),
    "value of length 2**31-1": (f"49 {OID} 4e 0001 74 7fffffff 61", ErrorCode.TRUNCATED, 13),
    "value one byte short": (f"49 {OID} 4e 0001 74 00000002 61", ErrorCode.TRUNCATED, 13),
    "-1 columns": (f"49 {OID} 4e ffff", ErrorCode.BAD_LENGTH, 6),
    "-32768 columns": (f"49 {OID} 4e 8000", ErrorCode.BAD_LENGTH, 6),
    "more columns than bytes": (f"49 {OID} 4e 0002 6e", ErrorCode.TRUNCATED, 8),
    "fewer columns than bytes": (f"49 {OID} 4e 0001 6e 6e", ErrorCode.TRAILING_BYTES, 9),
    "column's kind N": (f"49 {OID} 4e 0001 4e", ErrorCode.BAD_VALUE, 8),
    "column's kind 0": (f"49 {OID} 4e 0002 6e 00", ErrorCode.BAD_VALUE, 9),
    "insert without a tuple": (f"49 {OID}", ErrorCode.TRUNCATED, 5),
    "insert of K": (f"49 {OID} 4b 0000", ErrorCode.BAD_VALUE, 5),
    "insert of O": (f"49 {OID} 4f 0000", ErrorCode.BAD_VALUE, 5),
    "insert of two N": (f"49 {OID} 4e 0000 4e 0000", ErrorCode.TRAILING_BYTES, 8),
    "update of K only": (f"55 {OID} 4b 0000", ErrorCode.TRUNCATED, 8),
    "update of K then O": (f"55 {OID} 4b 0000 4f 0000 4e 0000", ErrorCode.BAD_VALUE, 8),
    "update of O then K": (f"55 {OID} 4f 0000 4b 0000 4e 0000", ErrorCode.BAD_VALUE, 8),
    "update of N then K": (f"55 {OID} 4e 0000 4b 0000", ErrorCode.TRAILING_BYTES, 8),
    "update of two N": (f"55 {OID} 4e 0000 4e 0000", ErrorCode.TRAILING_BYTES, 8),
    "delete of N": (f"44 {OID} 4e 0000", ErrorCode.BAD_VALUE, 5),
    "delete of K then O": (f"44 {OID} 4b 0000 4f 0000", ErrorCode.TRAILING_BYTES, 8),
    "delete without a tuple": (f"44 {OID}", ErrorCode.TRUNCATED, 5),
    "truncate of -1 relations": ("54 ffffffff 00", ErrorCode.BAD_LENGTH, 1),
    "truncate of too many": (f"54 00000002 00 {OID}", ErrorCode.TRUNCATED, 6),
    "truncate of 2**31-1": (f"54 7fffffff 00 {OID}", ErrorCode.TRUNCATED, 6),
    "truncate of too few": (f"54 00000000 00 {OID}", ErrorCode.TRAILING_BYTES, 6),
    "relation of -1 columns": (f"52 {OID} 00 7400 64 ffff", ErrorCode.BAD_LENGTH, 9),
    "relation of too many columns": (f"52 {OID} 00 7400 64 0001", ErrorCode.TRUNCATED, 11),
    "relation's identity X": (f"52 {OID} 00 7400 58 0000", ErrorCode.BAD_VALUE, 8),
    "relation's identity D": (f"52 {OID} 00 7400 44 0000", ErrorCode.BAD_VALUE, 8),
    "relation's identity 0": (f"52 {OID} 00 7400 00 0000", ErrorCode.BAD_VALUE, 8),
    "relation's name not ended": (f"52 {OID} 00 7474", ErrorCode.TRUNCATED, 6),
    "relation's schema not UTF-8": (f"52 {OID} 61ff00 7400 64 0000", ErrorCode.INVALID_UTF8, 6),
    "relation's name in Latin-1": (f"52 {OID} 00 63e974 00 64 0000", ErrorCode.INVALID_UTF8, 7),
    "column's name not UTF-8": (
        f"52 {OID} 00 7400 64 0001 00 6180 00 00000017 ffffffff",
        ErrorCode.INVALID_UTF8,
        13,
    ),
    "surrogate in a name": ("4f 0000000000000000 eda080 00", ErrorCode.INVALID_UTF8, 9),
    "overlong NUL in a name": ("4f 0000000000000000 c080 00", ErrorCode.INVALID_UTF8, 9),
    "content of length -1": ("4d 00 0000000000000000 00 ffffffff", ErrorCode.BAD_LENGTH, 11),
    "content too short": ("4d 00 0000000000000000 00 00000002 61", ErrorCode.TRUNCATED, 15),
    "content too long": ("4d 00 0000000000000000 00 00000000 61", ErrorCode.TRAILING_BYTES, 15),
    "first segment of 2": (f"53 {XID} 02", ErrorCode.BAD_VALUE, 5),
    "first segment of 255": (f"53 {XID} ff", ErrorCode.BAD_VALUE, 5),
    "stop with an xid": (f"45 {XID}", ErrorCode.TRAILING_BYTES, 1),
    "abort with an LSN and no time": (f"41 {XID} {XID} 0000000000000001", ErrorCode.TRUNCATED, 17),
    "gid not ended": (f"62 {'00' * 24} {XID} 6731", ErrorCode.TRUNCATED, 29),
}


@pytest.mark.parametrize(("hex_", "code", "offset"), BAD.values(), ids=BAD)
def test_code_and_offset(hex_: str, code: str, offset: int) -> None:
    error = decode_or_error(bytes.fromhex(hex_), False)
    assert error is not None
    assert (error.code, error.offset) == (code, offset)


def test_offsets_count_the_xid_of_a_stream_block() -> None:
    error = decode_or_error(bytes.fromhex(f"49 {XID} {OID} 4e 0001 74 ffffffff"), True)
    assert error is not None
    assert (error.code, error.offset) == (ErrorCode.BAD_LENGTH, 13)


@pytest.mark.parametrize(
    ("hex_", "code", "offset"),
    [
        ("", ErrorCode.TRUNCATED, 0),
        ("42", ErrorCode.UNKNOWN_TAG, 0),
        (f"6b {'00' * 16} 02", ErrorCode.BAD_VALUE, 17),
        (f"72 {'00' * 32} 02", ErrorCode.BAD_VALUE, 33),
    ],
    ids=["empty", "tag of a message", "keepalive's reply of 2", "status's reply of 2"],
)
def test_code_and_offset_of_frames(hex_: str, code: str, offset: int) -> None:
    with pytest.raises(pgc.DecodeError) as raised:
        pgc.decode_frame(bytes.fromhex(hex_))
    assert (raised.value.code, raised.value.offset) == (code, offset)


def test_an_error_reads_as_a_sentence_and_survives_pickling() -> None:
    with pytest.raises(pgc.DecodeError) as raised:
        pgc.decode_message(bytes.fromhex("53 000002e7 02"))
    error = raised.value
    assert str(error) == "bad_value: byte 5: StreamStart.first_segment of 0 or 1, not 2"
    placed = error.at(12, "here")
    assert str(placed).startswith("bad_value: message 12, byte 5 (here): StreamStart")
    for each in (error, placed):
        again = pickle.loads(pickle.dumps(each))
        assert again == each
        assert (again.message_index, again.context) == (each.message_index, each.context)
    assert error != placed
    assert isinstance(error, (pgc.PgwireError, ValueError))


def test_names_that_are_not_utf8_tell_of_the_setting() -> None:
    with pytest.raises(pgc.DecodeError) as raised:
        pgc.decode_message(b"O" + bytes(8) + "Ü".encode("latin-1") + b"\0")
    error = raised.value
    assert error.hint == "Set client_encoding=UTF8 in the session that reads the slot."
    assert error.primary == "invalid_utf8: byte 9: Origin.name in UTF-8"
    assert str(error) == f"{error.primary} — hint: {error.hint}"
    assert error.at(3).hint == error.hint
    assert pickle.loads(pickle.dumps(error)).hint == error.hint


# Values that are not bytes.


@pytest.mark.parametrize("decode", [pgc.decode_message, pgc.decode_frame])
@pytest.mark.parametrize("data", ["B", None, 66, [66], (b"B",), 1.5, object], ids=repr)
def test_what_is_not_bytes_is_a_type_error(decode: Callable[..., Any], data: object) -> None:
    with pytest.raises(TypeError, match=f"bytes-like, not {type(data).__name__}"):
        decode(data)
