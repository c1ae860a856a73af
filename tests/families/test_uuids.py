"""uuid."""

from __future__ import annotations

import uuid

import pyarrow as pa
from hypothesis import strategies as st

from pgwire_codec.lake.row_types import ROW_TYPES
from tests.support.families import FamilyTests


class TestUuids(FamilyTests):
    golden = [
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
    ]

    texts = [
        (
            "uuid",
            b"A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11",
            uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
    ]

    representable = [
        (
            "uuid",
            b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            {"arrow_types": ROW_TYPES},
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
    ]

    malformed_text = [
        ("uuid", b"a0eebc999c0b4ef8bb6d6bb9bd380a11", "bad_value", 0),
    ]

    malformed_binary = [
        ("uuid", bytes(17), "bad_length", 0),
    ]

    arrow_types = [
        ("uuid", pa.array(["00000000-0000-0000-0000-0000000000ff"] * 2 + [None])),
    ]
    random_values = {"uuid": st.binary(min_size=16, max_size=16)}
    mixed = {
        "uuid": (
            b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "00" * 16,
            b"0" * 8 + b"-0000" * 3 + b"-" + b"A" * 12,
        ),
    }
