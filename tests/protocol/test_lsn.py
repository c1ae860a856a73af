"""LSNs as PostgreSQL's pg_lsn writes and reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc

# select '16/B374D848'::pg_lsn - '0/0' gives 97500059720.
PAIRS = [
    (0, "0/0"),
    (97500059720, "16/B374D848"),
    (0xFFFFFFFF, "0/FFFFFFFF"),
    (1 << 32, "1/0"),
    (2**64 - 1, "FFFFFFFF/FFFFFFFF"),
]


@pytest.mark.parametrize(("lsn", "text"), PAIRS)
def test_both_ways(lsn: int, text: str) -> None:
    assert pgc.format_lsn(lsn) == text
    assert pgc.parse_lsn(text) == lsn


@given(st.integers(0, 2**64 - 1))
def test_any_lsn_comes_back(lsn: int) -> None:
    assert pgc.parse_lsn(pgc.format_lsn(lsn)) == lsn


def test_small_letters_and_leading_zeros_are_read() -> None:
    assert pgc.parse_lsn("16/b374d848") == pgc.parse_lsn("00000016/B374D848") == 97500059720


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "/", "0/", "/0", "0/0/0", "0 /0", " 0/0", "0/0\n", "-1/0", "0x1/0", "G/0"),
        *("1_0/0", "000000000/0", "0/000000000", "٠/٠"),
    ],
)
def test_what_is_no_lsn(text: str) -> None:
    with pytest.raises(ValueError, match="16/B374D848"):
        pgc.parse_lsn(text)


@pytest.mark.parametrize("lsn", [-1, 2**64])
def test_lsns_have_64_bits(lsn: int) -> None:
    with pytest.raises(ValueError, match="2\\*\\*64"):
        pgc.format_lsn(lsn)


@pytest.mark.parametrize("text", [None, 5, b"0/0"])
def test_only_str_is_read(text: Any) -> None:
    with pytest.raises(TypeError):
        pgc.parse_lsn(text)


@pytest.mark.parametrize("lsn", [None, "0/0", b"0/0"])
def test_only_int_is_written(lsn: Any) -> None:
    with pytest.raises(TypeError):
        pgc.format_lsn(lsn)
