"""Metadata columns, by the compiled core and by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.differential import differential
from tests.support.implementations import implementation

pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")
core = implementation("cython")

ROWS = 20


@given(st.lists(st.tuples(st.text(max_size=5), st.sets(st.integers(0, ROWS - 1))), max_size=6))
def test_name_lists(named: list[tuple[str, set[int]]]) -> None:
    rows = [np.array(sorted(which), np.int64) for _, which in named]
    kind, *_ = differential("name_lists", rows, [name for name, _ in named], ROWS)
    assert kind == "ArrowBuffers"


def test_names_of_every_row() -> None:
    every = np.arange(1000)
    found = core.name_lists([every, every[::2].copy()], ["a", "bc"], 1000)
    assert (found.null_count, found.validity) == (0, None)
    differential("name_lists", [every, every[::2].copy()], ["a", "bc"], 1000)


@pytest.mark.parametrize("row", [-1, 3, 2**40])
def test_names_of_a_row_that_is_not_there(row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of 3"):
        core.name_lists([np.array([0, row])], ["a"], 3)


def test_names_of_more_bytes_than_arrow_can_address() -> None:
    with pytest.raises(OverflowError, match="2147483647 bytes"):
        core.name_lists([np.arange(2)], ["x" * 2**30], 2)


@given(
    st.lists(st.none() | st.text(max_size=3), min_size=1, max_size=5),
    st.lists(st.integers(0, 2**30), max_size=20),
)
def test_strings_at(values: list[str | None], rows: list[int]) -> None:
    strings = np.array(values, np.object_)
    at = np.array([row % len(values) for row in rows], np.int64)
    kind, form, length, *_ = differential("strings_at", strings, at)
    assert (kind, form, length) == ("ArrowBuffers", ("str", "u"), ("int", len(rows)))
    differential("strings_at", np.repeat(strings, 2)[::2], at)
    differential("strings_at", np.broadcast_to(strings[:1], len(values)), at)


def test_strings_that_are_not_strings() -> None:
    for wrong, error in ((1, TypeError), ("\ud800", UnicodeEncodeError)):
        with pytest.raises(error):
            core.strings_at(np.array([wrong], np.object_), np.zeros(1, np.int64))


@pytest.mark.parametrize("row", [-1, 2, 2**40])
def test_strings_that_are_not_there(row: int) -> None:
    with pytest.raises(IndexError, match=f"string {row} of 2"):
        core.strings_at(np.array(["a", "b"], np.object_), np.array([0, row]))


def transactions(count: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(1)
    return (
        random.integers(0, 2**32, count, dtype=np.uint32),
        random.integers(0, 2**64, count, dtype=np.uint64),
        random.integers(-(2**63), 2**63, count).view("datetime64[us]"),
    )


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("rows", [0, 1, 7, 10_000])
def test_transaction_columns(count: int, rows: int) -> None:
    number = np.random.default_rng(2).integers(0, count, rows)
    columns = transactions(count)
    differential("transaction_columns", number, *columns)
    differential("transaction_columns", np.repeat(number, 2)[::2], *columns)
    differential("transaction_columns", number, *(np.repeat(each, 3)[::3] for each in columns))


@pytest.mark.parametrize("number", [-1, 2, 2**40])
def test_a_transaction_that_is_not_there(number: int) -> None:
    with pytest.raises(IndexError, match=f"transaction {number} of 2"):
        core.transaction_columns(np.array([0, number]), *transactions(2))
