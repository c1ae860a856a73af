"""Ranges and multiranges."""

from __future__ import annotations

import struct

from tests.support.families import FamilyTests


class TestRanges(FamilyTests):
    golden = [
        ("int4range", "empty", "01"),
        ("int4range", "[1,5)", "0200000004000000010000000400000005"),
        ("int4range", "(,5)", "080000000400000005"),
        ("int4range", "[7,)", "120000000400000007"),
        ("int4range", "(,)", "18"),
        ("numrange", "[1.50,2]", "060000000c0002000000000002000113880000000a00010000000000000002"),
        ("numrange", "(-Infinity,NaN]", "040000000800000000f00000200000000800000000c0000000"),
        ("numrange", "(,2.0]", "0c0000000a00010000000000010002"),
        (
            "tsrange",
            '["2024-01-01 00:00:00","2024-02-01 12:00:00")',
            "02000000080002b0d5d4e94000000000080002b34f80e99000",
        ),
        ("tsrange", "(,infinity]", "0c000000087fffffffffffffff"),
        (
            "tstzrange",
            '["2024-01-01 00:00:00+00","2024-02-01 12:00:00+00")',
            "02000000080002b0d5d4e94000000000080002b34f80e99000",
        ),
        ("daterange", "[2024-01-01,2024-02-01)", "02000000040000223e000000040000225d"),
        ("int8multirange", "{}", "00000000"),
        (
            "int8multirange",
            "{[1,5),[7,9)}",
            "0000000200000019020000000800000000000000010000000800000000000000050000001902000000080000000000000007000000080000000000000009",
        ),
        (
            "tsmultirange",
            '{["2024-01-01 00:00:00","2024-02-01 12:00:00"),["2025-01-01 00:00:00",)}',
            "000000020000001902000000080002b0d5d4e94000000000080002b34f80e990000000000d12000000080002cd987ed48000",
        ),
    ]

    texts = [
        ("int4range", b"[1,5)", "[1,5)"),
    ]

    malformed_text = [
        ("int4range", b"abc\xe9t\xe9", "invalid_utf8", 3),
    ]

    malformed_binary = [
        ("int4range", b"\x20", "bad_value", 0),
        ("int4range", b"\x02\0\0\0\4\0\0\0", "bad_length", 5),
        ("int4range", b"\x01\0", "bad_length", 1),
        ("int4multirange", struct.pack(">ii", 1, 5) + b"\x08\0\0\0\0", "bad_length", 13),
        ("int4multirange", struct.pack(">i", 2**31 - 1), "bad_length", 0),
    ]
