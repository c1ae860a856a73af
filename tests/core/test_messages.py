"""The compiled decode_message, decode_frame and encode_message against the reference's."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
import textwrap
import typing
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import reference
from pgwire_codec.protocol import messages
from pgwire_codec.protocol.messages import Frame, LogicalMessage
from tests.support import strategies
from tests.support.build import shapes, walk
from tests.support.corpus import captures
from tests.support.golden import FRAMES
from tests.support.golden import MESSAGES as GOLDEN

pytestmark = pytest.mark.differential

core: Any = pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")

KINDS = typing.get_args(LogicalMessage)
Outcome = tuple[Any, ...]


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> Outcome:
    """Result of a call: the value with its fields' types, or the error with its fields."""
    try:
        value = function(*args, **options)
    except pgc.DecodeError as error:
        return (type(error), *error.args)
    except (pgc.EncodeError, TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)
    return "value", exact(value)


def exact(value: Any) -> Any:
    """A value with the types of all its parts: True == 1 and a list may look like a tuple."""
    if isinstance(value, (tuple, list)):
        return type(value), [exact(part) for part in value]
    if type(value).__module__ == messages.__name__:
        return type(value), [exact(getattr(value, name)) for name in type(value).__slots__]
    return type(value), value


def same_decoding(data: Any, streaming: bool) -> Outcome:
    compiled = outcome(core.decode_message, data, streaming=streaming)
    assert compiled == outcome(reference.decode_message, data, streaming=streaming)
    return compiled


def same_frame(data: Any) -> Outcome:
    compiled = outcome(core.decode_frame, data)
    assert compiled == outcome(reference.decode_frame, data)
    return compiled


def same_encoding(message: Any) -> Outcome:
    compiled = outcome(core.encode_message, message)
    assert compiled == outcome(reference.encode_message, message)
    return compiled


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the compiled codec without the reference, which decodes deferred messages."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the compiled codec called the reference")

    for name in ("decode_message", "decode_frame", "encode_message"):
        monkeypatch.setattr(f"pgwire_codec.reference.codec.{name}", refuse)


# Messages that servers sent, and other valid ones.


def test_every_message_of_the_corpus_is_read_and_written_as_the_reference_does() -> None:
    seen: set[tuple[bytes, bool]] = set()
    for capture in captures():
        for data, streaming in walk(capture):
            if (data, streaming) in seen:
                continue
            seen.add((data, streaming))
            message = core.decode_message(data, streaming=streaming)
            assert exact(message) == exact(reference.decode_message(data, streaming=streaming))
            assert core.encode_message(message) == data
    assert len(seen) > 90_000


@pytest.mark.usefixtures("alone")
def test_nothing_that_a_server_sends_is_left_to_the_reference() -> None:
    for data, streaming in [*shapes(), *((each.data, each.streaming) for each in GOLDEN)]:
        assert core.encode_message(core.decode_message(data, streaming=streaming)) == data
    for golden in FRAMES:
        assert core.encode_message(core.decode_frame(golden.data)) == golden.data


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.usefixtures("alone")
def test_any_message_comes_back(kind: type, streaming: bool) -> None:
    @settings(max_examples=50)
    @given(strategies.by_kind(streaming)[kind])
    def check(message: Any) -> None:
        data = core.encode_message(message)
        assert exact(core.decode_message(data, streaming=streaming)) == exact(message)

    check()


@pytest.mark.parametrize("kind", typing.get_args(Frame), ids=lambda kind: kind.__name__)
@pytest.mark.usefixtures("alone")
def test_any_frame_comes_back(kind: type) -> None:
    @settings(max_examples=50)
    @given(strategies.frames_by_kind()[kind])
    def check(frame: Any) -> None:
        assert exact(core.decode_frame(core.encode_message(frame))) == exact(frame)

    check()


@given(st.one_of(strategies.messages(False), strategies.messages(True), strategies.frames()))
def test_any_message_is_written_as_the_reference_writes_it(message: Any) -> None:
    assert same_encoding(message)[0] == "value"


def test_a_tuple_of_many_columns_and_long_values() -> None:
    for kinds in (
        b"t" * 63,
        b"b" * 64,
        b"t" * 65,
        b"n" * 1600,
        b"tbnu" * 400,
        b"t" + b"n" * 1600,
        b"u",
    ):
        for size in (0, 1, 100, 70_000):
            values = tuple(bytes(size) if kind in b"tb" else None for kind in kinds)
            message = pgc.Insert(None, 7, pgc.TupleData(kinds, values))
            kind, (_, data) = same_encoding(message)
            assert kind == "value"
            assert same_decoding(data, False) == ("value", exact(message))


def test_functions_are_documented_as_the_reference_is() -> None:
    for name in core.__all__:
        assert inspect.getdoc(getattr(core, name)) == inspect.getdoc(getattr(reference, name))


# Bytes that are not a message.


def test_a_message_cut_at_any_byte_gives_the_same_error() -> None:
    for data, streaming in [*shapes(), *((each.data, each.streaming) for each in GOLDEN)]:
        for stop in range(len(data)):
            same_decoding(data[:stop], streaming)
            same_decoding(data[:stop], not streaming)
        same_decoding(data + b"\0", streaming)
    for golden in FRAMES:
        for stop in range(len(golden.data)):
            same_frame(golden.data[:stop])
        same_frame(golden.data + b"\0")


def test_any_byte_changed_gives_the_same_value_or_error() -> None:
    outcomes: set[Any] = set()
    for data, streaming in [*shapes(), *((each.data, each.streaming) for each in GOLDEN)]:
        changed = bytearray(data)
        for place, was in enumerate(data):
            for value in {0, 1, 0x20, 0x7F, 0x80, 0xFF, was ^ 1, ord("N"), ord("K")} - {was}:
                changed[place] = value
                found = same_decoding(bytes(changed), streaming)
                outcomes.add(found[0] if found[0] == "value" else found[1])
            changed[place] = was
    assert outcomes == {
        "value",
        "truncated",
        "trailing_bytes",
        "unknown_tag",
        "bad_length",
        "bad_value",
        "invalid_utf8",
    }


def test_random_changes_in_real_messages_give_the_same_value_or_error() -> None:
    random_ = random.Random(20_000_102)
    for capture in captures(major=16):
        several = list(walk(capture))
        for data, streaming in random_.sample(several, min(80, len(several))):
            changed = bytearray(data)
            for _ in range(random_.randrange(1, 4)):
                changed[random_.randrange(len(data))] = random_.randrange(256)
            same_decoding(bytes(changed), streaming)


@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_give_the_same_value_or_error(data: bytes, streaming: bool) -> None:
    same_decoding(data, streaming)
    same_frame(data)


@given(st.sampled_from(b"BMCORYIUDTSEcAbPKrpwkh"), st.binary(max_size=80), st.booleans())
def test_any_bytes_behind_a_tag_give_the_same_value_or_error(
    tag: int, data: bytes, streaming: bool
) -> None:
    same_decoding(bytes([tag]) + data, streaming)
    same_frame(bytes([tag]) + data)


def test_a_codec_that_refuses_what_the_reference_reads_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgwire_codec.reference.codec.decode_message", lambda *_, **__: "anything")
    monkeypatch.setattr("pgwire_codec.reference.codec.decode_frame", lambda *_: "anything")
    for decode in (core.decode_message, core.decode_frame):
        with pytest.raises(RuntimeError, match="please report it"):
            decode(b"?")


# Objects that are not bytes, or unusual bytes-likes.


class Bytes(bytes):
    """A subclass, which may say that its bytes are others."""

    def __bytes__(self) -> bytes:
        return self[::-1]


BEGIN = reference.encode_message(pgc.Begin(1, 2, 3))

INPUTS = {
    "bytearray": bytearray(BEGIN),
    "memoryview": memoryview(BEGIN),
    "memoryview in the middle": memoryview(b"xx" + BEGIN + b"x")[2:-1],
    "memoryview of every other byte": memoryview(b"".join(bytes([b, 0]) for b in BEGIN))[::2],
    "memoryview backwards": memoryview(BEGIN[::-1])[::-1],
    "memoryview of words": memoryview(BEGIN + b"\0" * 3).cast("I"),
    "memoryview of two dimensions": memoryview(BEGIN[:20]).cast("B", (4, 5)),
    "memoryview of nothing": memoryview(b""),
    "subclass": Bytes(BEGIN[::-1]),
    "wrong subclass": Bytes(BEGIN),
    "str": "B",
    "None": None,
    "list": [66],
    "object": object(),
}


@pytest.mark.parametrize("data", INPUTS.values(), ids=INPUTS)
def test_whatever_is_given_is_taken_or_refused_alike(data: Any) -> None:
    same_decoding(data, False)
    same_frame(data)


def test_a_released_memoryview_is_refused_alike() -> None:
    data = memoryview(BEGIN)
    data.release()
    assert same_decoding(data, False)[0] is ValueError
    assert same_frame(data)[0] is ValueError


def test_a_bytearray_can_be_resized_afterwards() -> None:
    data = bytearray(BEGIN)
    core.decode_message(data)
    data += b"?"
    with pytest.raises(pgc.DecodeError):
        core.decode_message(data)
    data += b"?"


# Messages that hold what they should not.

SOME = (
    *(None, True, False, 0, 1, -1, 2**16, 2**32, 2**63, 2**64, -(2**63) - 1, 10**30, 1.0),
    *("", "d", "x", "dn", "a\0b", "\ud800", "Übung", b"", b"t", b"tn", b"abc", bytearray(b"t")),
    *(memoryview(b"t"), (), [], (None,), [None], (b"a",), [b"a"], (1,), [1, 2], ("a",), object()),
    pgc.TupleData(b"", ()),
    pgc.TupleData(b"t", (b"x",)),
    (pgc.RelationColumn(0, "a", 1, -1),),
)


class Column(pgc.RelationColumn):
    """A subclass."""


PARTS = (
    pgc.TupleData(b"t", (None,)),
    pgc.TupleData(b"n", (b"",)),
    pgc.TupleData(b"x", (b"",)),
    pgc.TupleData(b"t", ()),
    pgc.TupleData(b"tt", (b"a", 1)),  # type: ignore[arg-type]
    pgc.TupleData(b"tb", (bytearray(b"ab"), memoryview(b"cd"))),  # type: ignore[arg-type]
    pgc.TupleData(b"tb", (Bytes(b"ab"), b"cd")),
    pgc.TupleData(bytearray(b"t"), (b"a",)),  # type: ignore[arg-type]
    pgc.TupleData(b"tn", [b"a", None]),  # type: ignore[arg-type]
    pgc.TupleData(b"n" * 32768, (None,) * 32768),
    pgc.TupleData(b"n" * 32767, (None,) * 32767),
    (Column(0, "a", 1, -1),),
    [pgc.RelationColumn(1, "a", 1, -1)],
    (pgc.RelationColumn(1, "a", 1, None),),  # type: ignore[arg-type]
    (pgc.RelationColumn(256, "a", 1, 0),),
    (pgc.RelationColumn(1, "a\0", 1, 0),),
    (pgc.RelationColumn(1, "a", 1, 2**31),),
    (pgc.RelationColumn(1, "a", 1, -(2**31)),),
)


@pytest.mark.parametrize(
    "good",
    [*(each.message for each in GOLDEN), *(each.message for each in FRAMES)],
    ids=lambda message: type(message).__name__,
)
def test_a_field_that_holds_anything_is_written_or_refused_alike(good: Any) -> None:
    names = type(good).__slots__
    values = [getattr(good, name) for name in names]
    for place in range(len(names)):
        for value in (*SOME, *PARTS):
            same_encoding(type(good)(*values[:place], value, *values[place + 1 :]))


def test_what_is_no_message_is_refused_alike() -> None:
    class Mine(pgc.Begin):
        pass

    for value in (None, 1, b"", "", object(), Mine(1, 2, 3), pgc.Begin, pgc.TupleData(b"", ())):
        assert same_encoding(value)[0] is TypeError


def test_a_message_whose_fields_were_never_set_is_refused_alike() -> None:
    for kind in (*KINDS, *typing.get_args(Frame)):
        if kind is not pgc.StreamStop:
            assert same_encoding(object.__new__(kind))[0] is AttributeError


def test_messages_that_were_read_are_frozen_and_hash_as_others() -> None:
    for golden in GOLDEN:
        message = core.decode_message(golden.data, streaming=golden.streaming)
        assert hash(message) == hash(golden.message)
        assert repr(message) == repr(golden.message)
        assert not hasattr(message, "__dict__")


# Memory.

LEAKS = """
    import pgwire_codec as pgc
    from pgwire_codec import _core as core
    from tests.support.golden import FRAMES, MESSAGES
    from tests.support.leaks import assert_nothing_kept

    LONG = pgc.Insert(None, 1, pgc.TupleData(b"tn", (bytes(1_000_000), None)))
    BAD = (pgc.Begin(-1, 0, 0), pgc.Insert(None, 1, pgc.TupleData(b"tt", (bytes(5000), 1))))

    def once():
        for golden in MESSAGES:
            message = core.decode_message(golden.data, streaming=golden.streaming)
            core.encode_message(message)
            core.decode_message(bytearray(golden.data), streaming=golden.streaming)
            for bad in (golden.data[:-1], golden.data + b"?", b"?"):
                try:
                    core.decode_message(memoryview(bad), streaming=golden.streaming)
                except pgc.DecodeError:
                    pass
        for golden in FRAMES:
            core.encode_message(core.decode_frame(golden.data))
        core.decode_message(core.encode_message(LONG))
        for bad in BAD:
            try:
                core.encode_message(bad)
            except pgc.EncodeError:
                pass

    assert_nothing_kept(once, 100)
"""


def test_nothing_is_leaked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LEAKS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
