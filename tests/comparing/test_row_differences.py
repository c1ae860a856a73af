"""Checksums and counts of rows are those of a model in plain Python, however rows are split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.comparing.row_differences import (
    NET,
    Balance,
    Checksum,
    Differences,
    KeyChoice,
    RowCount,
    RowSplit,
)
from pgwire_codec.lake.runners.threads import Threads

Row = tuple[Any, ...]

#: A key of two columns, then values.
TYPES = {
    "id": pa.int64(),
    "key": pa.string(),
    "n": pa.decimal128(10, 2),
    "f": pa.float64(),
    "list": pa.list_(pa.string()),
}
KEYED = ComparedColumns(TYPES, ("id", "key"), has_keys=True)
BAG = ComparedColumns(TYPES, tuple(TYPES), has_keys=False)

ROWS = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from([None, Decimal("0.01"), Decimal("1.00")]),
    st.sampled_from([None, 0.0, 1.5]),
    st.sampled_from([None, (), (None,), ("",), ("a", "b"), ("ab",)]),
)


@dataclass(frozen=True)
class Rows:
    """Rows of a side, in batches."""

    sign: int
    rows: Sequence[Row]
    batch_rows: int
    size: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(self.rows), self.batch_rows):
            rows = self.rows[begin : begin + self.batch_rows]
            columns = list(map(list, zip(*rows, strict=True)))
            arrays = [pa.array(*each) for each in zip(columns, TYPES.values(), strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


def split(sign: int, rows: list[Row], data: st.DataObject) -> list[Any]:
    """Return rows in any order and in parts."""
    shuffled = data.draw(st.permutations(rows))
    parts = data.draw(st.integers(1, 3))
    size = data.draw(st.integers(1, 4))
    return [Rows(sign, shuffled[number::parts], size) for number in range(parts)]


def find(
    parts: list[Any], columns: ComparedColumns, count: int, choice: KeyChoice, max_keys: int
) -> tuple[Balance, Differences | None]:
    """Compare the parts of both sides as a comparison does."""
    threads = Threads(1)
    balance = Balance.from_checksums(threads.map(Checksum(columns), parts))
    if not balance.different.any():
        return balance, None
    task = RowCount(columns, choice, max_keys)
    _, found = threads.exchange(RowSplit(1, columns, balance.different, count), parts, task)
    return balance, task.join(found)


def expected(server: list[Row], target: list[Row]) -> dict[Row, int]:
    net = Counter(server)
    net.subtract(target)
    return {row: count for row, count in net.items() if count}


def rows_of(table: pa.Table) -> dict[Row, int]:
    return {
        tuple(tuple(value) if isinstance(value, list) else value for value in values): net
        for net, *values in (
            (row[NET], *(row[f"c{number}"] for number in range(len(TYPES))))
            for row in table.to_pylist()
        )
    }


@pytest.mark.slow
@given(st.lists(ROWS, max_size=12), st.lists(ROWS, max_size=6), st.data())
def test_counts_are_those_of_the_model(
    server: list[Row], others: list[Row], data: st.DataObject
) -> None:
    """The target lacks some rows of the server, and has others."""
    columns = data.draw(st.sampled_from([KEYED, BAG]))
    target = [row for row in server if data.draw(st.booleans())] + others
    net = expected(server, target)
    parts = [*split(1, server, data), *split(-1, target, data)]
    balance, found = find(parts, columns, data.draw(st.integers(1, 5)), KeyChoice(), 99)
    assert (balance.server_rows, balance.target_rows) == (len(server), len(target))
    if found is None:
        assert not net
        return
    key = slice(2) if columns.has_keys else slice(None)
    assert rows_of(found.rows) == net
    assert len(found.keys) == len({row[key] for row in net})
    assert (np.diff(found.keys) > 0).all()
    assert not len(found.chosen)


@pytest.mark.slow
@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 3), st.data())
def test_rows_of_chosen_keys(server: list[Row], max_keys: int, data: st.DataObject) -> None:
    """They are the first ones in the order of their keys."""
    parts = split(1, server, data)
    whole = find(parts, KEYED, 1, KeyChoice(), 99)[1]
    assert whole is not None
    is_among = np.array([data.draw(st.booleans()) for _ in whole.keys], np.bool_)
    is_without = np.array([data.draw(st.booleans()) for _ in whole.keys], np.bool_)
    choice = KeyChoice(whole.keys[is_among], whole.keys[is_without])
    found = find(parts, KEYED, data.draw(st.integers(1, 5)), choice, max_keys)[1]
    assert found is not None
    chosen = {*whole.keys[is_among & ~is_without].tolist()}
    assert (choice.mask(whole.keys) == (is_among & ~is_without)).all()
    for rows, possible in ((found.rows, whole.keys.tolist()), (found.chosen, chosen)):
        every = [row for row in whole.rows.to_pylist() if row["key"] in possible]
        keys = [(row["c0"], row["c1"]) for row in every]
        assert [(row["c0"], row["c1"]) for row in rows.to_pylist()] == sorted(keys)[: 2 * max_keys]
