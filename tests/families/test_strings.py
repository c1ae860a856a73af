"""Text and what is sent as text, bytea, and bytes of unknown types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import reference
from pgwire_codec.arrow.values import to_pylist
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.types import TypeRegistry
from tests.support.build import column, relation, row
from tests.support.families import FamilyTests
from tests.support.implementations import Implementation
from tests.support.values import (
    decode,
    one,
    type_of,
)


class TestStrings(FamilyTests):
    golden = [
        ("text", "a é", "6120c3a9"),
        ("varchar", "", ""),
        ("bytea", "\\x00ff5c", "00ff5c"),
        ("bytea", "\\x", ""),
        ("char", "", "00"),
        ("char", "a", "61"),
        ("char", "\\377", "ff"),
        (
            "jsonb",
            '{"a": [true, null, "é"], "b": 1}',
            "017b2261223a205b747275652c206e756c6c2c2022c3a9225d2c202262223a20317d",
        ),
        ("jsonb", "1.50", "01312e3530"),
        ("jsonb", "null", "016e756c6c"),
        ("jsonpath", '$."a"[*]?(@ > 2)', "01242e2261225b2a5d3f2840203e203229"),
        ("jsonpath", "strict $", "017374726963742024"),
    ]

    texts = [
        ("bpchar", b"abc       ", "abc       "),
        ("json", b'{"a":  1}', '{"a":  1}'),
        ("bytea", b"\\x00fF", b"\x00\xff"),
        ("bytea", b"\\000\\377\\\\'", b"\0\xff\\'"),
        ("bytea", b"", b""),
        ("bytea", b"\\\\x41", b"\\x41"),
    ]

    malformed_text = [
        ("bytea", b"\\x0", "bad_value", 0),
        ("bytea", b"\\400", "bad_value", 0),
        ("bytea", b"\\", "bad_value", 0),
        ("bytea", b"\xff", "bad_value", 0),
        ("text", b"abc\xe9t\xe9", "invalid_utf8", 3),
        ("json", b"abc\xe9t\xe9", "invalid_utf8", 3),
    ]

    malformed_binary = [
        ("jsonb", b"\x02{}", "bad_value", 0),
        ("jsonb", b"", "bad_value", 0),
        ("text", b"abc\xe9t", "invalid_utf8", 3),
        ("jsonb", b"\x01ab\xe9", "invalid_utf8", 3),
    ]

    arrow_types = [
        ("bytea", pa.array([b"ab", b"\xff\x00", None], pa.binary(2))),
        ("jsonb", pa.array(["{}", "x" * 30, None], pa.string_view())),
    ]
    random_values = {
        "bytea": st.binary(max_size=80),
        "text": st.text(max_size=80).map(str.encode)
        | st.text("ab\x7f é", max_size=70).map(str.encode),
        "jsonb": st.text(max_size=40).map(lambda text: b"\1" + text.encode()),
    }
    mixed = {
        "bytea": (b"\\x00ff", "0102", b"\\000a\\\\"),
        "text": (b"plain", "c3a9", "ünïcode that is longer than a view holds".encode()),
    }
    by_kernel = [("text", "naïve €uro 😀"), ("json", "{}")]

    alike = [
        ("text", [b"a", b"", b"b" * 40], ["é".encode(), b"\xff", b"c" * 400]),
    ]


def test_empty_is_not_null(codec: Implementation) -> None:
    for kind in ("text", "bytea", "bpchar", "inet"):
        found = decode(codec, kind, [b"", None])
        assert found.array.null_count == 1
        assert to_pylist(found.array)[0] in ("", b"")


def test_unknown_types_pass_through(codec: Implementation) -> None:
    text = decode(codec, 99999, [b"sad", None])
    assert (text.array.format, to_pylist(text.array)) == ("u", ["sad", None])
    mixed = decode(codec, 99999, [b"sad", b"\0\xff"], binary=[False, True])
    assert (mixed.array.format, to_pylist(mixed.array)) == ("z", [b"sad", b"\0\xff"])
    views = decode(codec, 99999, [b"sad", b"\0\xff"], binary=[False, True], strings="view")
    assert (views.array.format, to_pylist(views.array)) == ("vz", [b"sad", b"\0\xff"])
    # A NULL has no form.
    assert decode(codec, 99999, [None, b"sad"], binary=[True, False]).array.format == "u"


def test_unknown_types_are_strings_if_the_options_promise_strings(codec: Implementation) -> None:
    promised: list[dict[str, Any]] = [{"arrow_types": ROW_TYPES}, {"types": "text"}]
    for options in promised:
        found = decode(codec, 99999, [b"sad", b"\0\xff"], binary=[False, True], **options)
        assert (found.array.format, to_pylist(found.array)) == ("u", ["sad", "\\x00ff"])


def test_text_that_is_not_utf8_names_the_setting(codec: Implementation) -> None:
    for kind in ("text", 99999):
        with pytest.raises(ValueProblem) as problem:
            decode(codec, kind, [b"\xe9"])
        assert "client_encoding" in (problem.value.hint or "")


@given(st.binary(max_size=60))
def test_bytea_round_trip(codec: Implementation, value: bytes) -> None:
    shown = one(codec, "bytea", value, binary=True, types="text")
    assert one(codec, "bytea", shown.encode()) == one(codec, "bytea", value, binary=True) == value
    escaped = b"".join(
        b"\\\\" if byte == 0x5C else bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte
        for byte in value
    )
    assert one(codec, "bytea", escaped) == value


def test_types_that_are_registered_or_not_known_are_written() -> None:
    encode_batch = reference.encode_batch
    registry = TypeRegistry()
    registry.register(20_000, "mood", like="text")
    registry.register(20_001, "_mood", element="mood")
    table = relation(1, column("a", 20_000), column("b", 20_001), column("c", 20_002))
    moods = [pa.array(["sad"]), pa.array([["sad", None]]), pa.array([b"\x01"])]
    (data,) = encode_batch(table, moods, registry=registry).to_pylist()
    assert pgc.decode_message(data).new == row("sad", "{sad,NULL}", b"\x01")
    moods[2] = pa.array(["x"])
    (data,) = encode_batch(table, moods, registry=registry, binary=True).to_pylist()
    assert pgc.decode_message(data).new.kinds == b"bbt"


@pytest.mark.parametrize("strings", ["copy", "view"])
def test_every_lead_byte_of_utf8(codec: Implementation, strings: str) -> None:
    edges = bytes.fromhex("00417f808f909fa0bfc0f5ff")
    texts = [bytes([a, b]) for a in range(256) for b in edges]
    texts += [bytes([a, b, 0x80]) for a in range(0xDF, 0xF6) for b in range(0x7F, 0xC1)]
    texts += [bytes([a, b, 0x80, 0xBF]) for a in range(0xEF, 0xF6) for b in range(0x7F, 0xC1)]
    texts += [b"a" * n + "é".encode() + b"b" * m for n in range(36) for m in range(36)]
    texts += [text + b"tail of ascii that is long" for text in texts[::7]]
    kind = type_of("text", strings=strings)
    for text in texts:
        try:
            text.decode()
            good = True
        except UnicodeDecodeError:
            good = False
        try:
            decode(codec, kind, [text])
            decoded = True
        except ValueProblem:
            decoded = False
        assert decoded == good, text
