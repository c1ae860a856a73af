"""tid and snapshots."""

from __future__ import annotations

import struct

from tests.support.families import FamilyTests


class TestIdentifiers(FamilyTests):
    golden = [
        ("tid", "(0,1)", "000000000001"),
        ("tid", "(4294967295,65535)", "ffffffffffff"),
        (
            "pg_snapshot",
            "10:20:10,14,15",
            "00000003000000000000000a0000000000000014000000000000000a000000000000000e000000000000000f",
        ),
        ("pg_snapshot", "5:5:", "0000000000000000000000050000000000000005"),
    ]

    texts = [
        ("tid", b"(0,1)", "(0,1)"),
    ]

    malformed_text = [
        ("tid", b"abc\xe9t\xe9", "invalid_utf8", 3),
    ]

    malformed_binary = [
        ("tid", bytes(5), "bad_length", 4),
        ("pg_snapshot", struct.pack(">iqq", -1, 1, 1), "bad_length", 0),
        ("pg_snapshot", struct.pack(">iqq", 1, 1, 1), "bad_length", 0),
    ]
