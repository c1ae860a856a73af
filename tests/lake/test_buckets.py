"""Hashes of rows depend on their values only."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec.lake.buckets import bucket_numbers, row_hashes


@pytest.mark.parametrize(
    "others", [[], [None], ["", ""], ["x", None], [None, "", "longer"]], ids=repr
)
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_the_rows_around_a_text_do_not_matter(others: list[Any], kind: pa.DataType) -> None:
    alone = row_hashes([pa.array(["dup"]).cast(kind)])[0]
    for values in (["dup", *others], [*others, "dup"], [*others, "dup", *others]):
        column = pa.array(values, pa.string()).cast(kind)
        assert row_hashes([column])[values.index("dup")] == alone
        if place := values.index("dup"):
            assert row_hashes([column.slice(1)])[place - 1] == alone


def test_equal_rows_have_the_same_bucket() -> None:
    texts = pa.array(["a", None, "", "a", "bc", None, ""])
    numbers = pa.array([1, 2, 3, 1, None, 2, 3])
    buckets = bucket_numbers([texts, numbers], 1000)
    assert (buckets[:3] == buckets[[3, 5, 6]]).all()
    assert len(set(buckets.tolist())) == 4
