"""bit and varbit."""

from __future__ import annotations

import struct

from tests.support.families import FamilyTests


class TestBits(FamilyTests):
    golden = [
        ("bit", "1", "0000000180"),
        ("varbit", "", "00000000"),
        ("varbit", "1", "0000000180"),
        ("varbit", "0101010", "0000000754"),
        ("varbit", "10101010", "00000008aa"),
        ("varbit", "101010101", "00000009aa80"),
    ]

    texts = [
        ("bit", b"101", "101"),
        ("varbit", b"", ""),
    ]

    malformed_text = [
        ("varbit", b"abc\xe9t\xe9", "invalid_utf8", 3),
    ]

    malformed_binary = [
        ("varbit", struct.pack(">i", -1), "bad_length", 0),
        ("varbit", struct.pack(">i", 9) + b"\1", "bad_length", 4),
    ]
