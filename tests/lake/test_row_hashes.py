"""Hashes of rows depend on their values only, and differ for different values."""

from __future__ import annotations

import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.lake.change_split import BucketSplit, bucket_numbers
from pgwire_codec.lake.row_hashes import column_hashes, combined, row_hashes

_TEXTS = ["", "a", "a\0", "b", "12345678", "123456789", "12345678" * 2, "x" * 1000, "ä"]

#: Types of rows, and some values that differ from one another.
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int16(), [0, 1, -1, 32767]),
    (pa.int32(), [0, 1, -1]),
    (pa.int64(), [0, 1, -1, 1 << 40]),
    (pa.float32(), [0.0, 1.5, -1.5, float("inf"), float("nan")]),
    (pa.float64(), [0.0, 1e-300, float("-inf"), float("nan")]),
    (pa.decimal128(38, 2), [Decimal(0), Decimal("0.01"), Decimal(-1), Decimal(10**35)]),
    (pa.date32(), [date(1970, 1, 1), date(2020, 1, 2)]),
    (pa.timestamp("us"), [datetime(1970, 1, 1), datetime(2020, 1, 2, 3, 4, 5, 6)]),
    (pa.timestamp("us", "UTC"), [datetime(2020, 1, 2, tzinfo=timezone.utc)]),
    (pa.string(), _TEXTS),
    (pa.binary(), [text.encode() for text in _TEXTS]),
    (pa.list_(pa.int32()), [[], [None], [0], [None, None], [1, 2], [2, 1], [1, 2, 0]]),
    (pa.list_(pa.string()), [[], [""], ["", ""], ["ab"], ["a", "b"], [None]]),
    (pa.list_(pa.list_(pa.string())), [[], [[]], [None], [["a"], ["b"]], [["a", "b"]]]),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda each: str(each)[:30])
def test_different_values_have_different_hashes(kind: pa.DataType, values: list[Any]) -> None:
    hashes = column_hashes(pa.array([*values, None], kind))
    assert len(set(hashes.tolist())) == len(values) + 1


@given(st.data())
def test_only_the_value_counts(data: st.DataObject) -> None:
    """Not its place, the other values, the slice, or the batch."""
    kind, values = data.draw(st.sampled_from(KINDS))
    chosen = data.draw(st.lists(st.sampled_from([*values, None]), min_size=1, max_size=20))
    column = pa.array(chosen, kind)
    alone = [int(column_hashes(pa.array([value], kind))[0]) for value in chosen]
    assert column_hashes(column).tolist() == alone
    begin = data.draw(st.integers(0, len(chosen)))
    end = data.draw(st.integers(begin, len(chosen)))
    assert column_hashes(column.slice(begin, end - begin)).tolist() == alone[begin:end]
    taken = column.take(pa.array([0] * 3))
    assert column_hashes(taken).tolist() == [alone[0]] * 3


def test_widths_of_numbers_do_not_count() -> None:
    for numbers in (pa.int16(), pa.int32(), pa.int64()):
        assert column_hashes(pa.array([-5], numbers)) == column_hashes(pa.array([-5], pa.int64()))
    for floats in (pa.float32(), pa.float64()):
        nans = pa.array([*struct.unpack("2d", bytes.fromhex("0100000000f8ff7f" * 2))], floats)
        assert column_hashes(nans)[0] == column_hashes(pa.array([float("nan")], pa.float64()))[0]
        assert column_hashes(pa.array([-0.0], floats))[0] != column_hashes(pa.array([0.0]))[0]


def test_values_under_a_null_do_not_count() -> None:
    valid = pa.array([True, False]).buffers()[1]
    for content in (pa.array([7, 9]), pa.array(["a", "b"])):
        column = pa.Array.from_buffers(content.type, 2, [valid, *content.buffers()[1:]])
        plain = pa.array([content[0].as_py(), None])
        assert column_hashes(column).tolist() == column_hashes(plain).tolist()


def test_columns_are_not_exchanged() -> None:
    one, other = pa.array([1, 2]), pa.array([2, 1])
    first, second = row_hashes([one, other]).tolist()
    assert first != second
    values = column_hashes(one)
    assert not np.isin(combined([values], 1), combined([values], 2)).any()


def test_sums_of_exchanged_values_differ() -> None:
    """Of pairs of rows whose values change places, the sum of the hashes changes."""
    keys, values = pa.array(np.arange(20_000)), pa.array(np.arange(20_000) % 2)
    exchanged = pa.array(1 - np.arange(20_000) % 2)
    one, other = row_hashes([keys, values]), row_hashes([keys, exchanged])
    sums = (one[::2] + one[1::2], other[::2] + other[1::2])
    difference = sums[0] - sums[1]
    assert difference.all()
    for bits in (difference & np.uint64(0xFFFF), difference >> np.uint64(48)):
        assert len(np.unique(bits)) > 5000  # as of random numbers


def test_each_bit_depends_on_the_value() -> None:
    hashes = row_hashes([pa.array(np.arange(10_000))])
    bits = np.unpackbits(hashes.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert ((bits > 0.45) & (bits < 0.55)).all()


def test_equal_rows_have_the_same_bucket() -> None:
    texts = pa.array(["a", None, "", "a", "bc", None, ""])
    numbers = pa.array([1, 2, 3, 1, None, 2, 3])
    buckets = bucket_numbers([texts, numbers], 1000)
    assert (buckets[:3] == buckets[[3, 5, 6]]).all()
    assert len(set(buckets.tolist())) == 4


def test_a_split_has_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgwire_codec.lake import change_split

    monkeypatch.setattr(change_split, "_PIECE_BYTES", 200)
    split = BucketSplit(3)
    pieces = []
    for begin in range(0, 100, 10):
        rows = pa.record_batch({"n": np.arange(begin, begin + 10)})
        pieces += split.add(rows, np.arange(begin, begin + 10) % 3)
    assert [bucket for bucket, _ in pieces] == [0, 1, 2]
    pieces += split.finish()
    for bucket, rows in pieces:
        assert {number % 3 for number in rows["n"].to_pylist()} == {bucket}
    assert sorted(n for _, rows in pieces for n in rows["n"].to_pylist()) == list(range(100))
