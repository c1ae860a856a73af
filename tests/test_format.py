"""Formats of sizes, durations, times and shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgwire_codec.format import (
    format_duration,
    format_share,
    format_size,
    format_timestamp,
    suggest_table,
)


@pytest.mark.parametrize(
    ("format_it", "value", "text"),
    [
        (format_size, 0, "0 B"),
        (format_size, 999, "999 B"),
        (format_size, 1000, "1.0 kB"),
        (format_size, 99_960, "100 kB"),
        (format_size, 999_950, "1.0 MB"),
        (format_size, 12_345_678_901, "12.3 GB"),
        (format_size, 10**16, "10,000 TB"),
        (format_duration, 0, "0 s"),
        (format_duration, 394, "394 µs"),
        (format_duration, 1500, "1.5 ms"),
        (format_duration, 60_000_000, "1 min"),
        (format_duration, 3 * 3_600_000_000, "3 h"),
        (format_duration, 2.5 * 86_400_000_000, "2.5 d"),
        (format_timestamp, 0, "1970-01-01 00:00:00"),
        (format_timestamp, -1, "1969-12-31 23:59:59"),
    ],
)
def test_formats(format_it: Callable[[Any], str], value: float, text: str) -> None:
    assert format_it(value) == text


def test_shares() -> None:
    assert [format_share(each, 1000) for each in (0, 0.5, 1, 500, 999.99, 1000)] == [
        *("0 %", "< 0.1 %", "0.1 %", "50.0 %", "> 99.9 %", "100 %")
    ]
    assert format_share(0, 0) == "0 %"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("public.order", "Did you mean public.orders?"),
        ("orders", "Did you mean public.orders?"),
        ("sales.orders", "Did you mean public.orders?"),
        ("public.Orders", "Did you mean public.orders?"),
        ("public.nope", "Their tables: public.customers, public.orders."),
    ],
)
def test_the_nearest_table(name: str, hint: str) -> None:
    assert suggest_table(name, ["public.orders", "public.customers"]) == hint


def test_few_of_many_tables() -> None:
    many = [f"public.t{number:03}" for number in range(1000)]
    assert suggest_table("public.nobody", many) == (
        f"Their tables: {', '.join(many[:10])} and 990 more."
    )
    assert suggest_table("public.t", []) == "Their tables: none."
