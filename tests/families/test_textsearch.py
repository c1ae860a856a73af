"""tsvector and tsquery."""

from __future__ import annotations

import struct

from tests.support.families import FamilyTests
from tests.support.implementations import Implementation
from tests.support.values import (
    one,
)


class TestTextSearch(FamilyTests):
    golden = [
        ("tsvector", "", "00000000"),
        (
            "tsvector",
            "'a':1A,2B,3C,4 'b''''c':16383 'd\\\\ e'",
            "0000000361000004c001800240030004622727630000013fff645c2065000000",
        ),
        ("tsvector", "'a' 'b' 'c'", "00000003610000006200000063000000"),
        ("tsquery", "", "00000000"),
        ("tsquery", "'a'", "000000010100006100"),
        ("tsquery", "'a':*AB & 'b'", "0000000302020100006200010c016100"),
        (
            "tsquery",
            "!( 'a' | 'b':D ) & !'c'",
            "000000070202020101000063000201020301010062000100006100",
        ),
        ("tsquery", "'a' <-> ( 'b' | 'c' )", "00000005020400010203010000630001000062000100006100"),
        (
            "tsquery",
            "'a' <-> 'b' <5> ( 'c' <-> 'd' )",
            "000000070204000502040001010000640001000063000204000101000062000100006100",
        ),
        (
            "tsquery",
            "'a' <-> ( 'b' <-> 'c' )",
            "000000050204000102040001010000630001000062000100006100",
        ),
        (
            "tsquery",
            "'a' & 'b' | 'c' & !!'d'",
            "00000009020302020201020101000064000100006300020201000062000100006100",
        ),
        ("tsquery", "!( 'a' <-> 'b' )", "0000000402010204000101000062000100006100"),
        ("tsquery", "'x''y\\\\z' & 'q'", "00000003020201000071000100007827795c7a00"),
    ]

    texts = [
        ("tsvector", b"'a':1A", "'a':1A"),
    ]

    malformed_text = [
        ("tsvector", b"abc\xe9t\xe9", "invalid_utf8", 3),
    ]

    malformed_binary = [
        ("tsvector", struct.pack(">i", 1) + b"abc", "bad_length", 4),
        ("tsquery", struct.pack(">i", 1) + b"\2\2", "bad_value", 4),
        ("tsquery", struct.pack(">i", 2) + b"\1\0\0a\0\1\0\0b\0", "bad_value", 4),
        ("tsquery", bytes.fromhex("00000001" + "01" + "10" + "00" + "6100"), "bad_value", 4),
        ("tsquery", bytes.fromhex("00000001" + "01" + "00" + "02" + "6100"), "bad_value", 4),
        ("tsquery", bytes.fromhex("00000001" + "02" + "05"), "bad_value", 4),
        ("tsquery", bytes.fromhex("00000001" + "03" + "00"), "bad_value", 4),
        ("tsvector", struct.pack(">i", 1) + b"a\xe9\0" + struct.pack(">H", 0), "invalid_utf8", 5),
    ]


def test_deep_query_needs_no_stack(codec: Implementation) -> None:
    depth = 20_000
    raw = struct.pack(">i", depth + 1) + b"\2\1" * depth + b"\1\0\0a\0"
    assert one(codec, "tsquery", raw, binary=True) == "!" * depth + "'a'"
