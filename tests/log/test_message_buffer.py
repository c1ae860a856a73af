"""Columns of appended messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.log.message_buffer import to_batches
from pgwire_codec.log.message_columns import SCHEMA, column

TIMES = np.array(["2026-01-02T03:04:05.678901", "NaT", "1970-01-01", *["NaT"] * 6, "2100-01-01"])


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("stop", [3, 9, 10])
def test_a_column_is_what_arrow_makes_of_the_values(start: int, stop: int) -> None:
    times = TIMES.astype("datetime64[us]")[start:stop]
    made = column(times, "time")
    made.validate(full=True)
    assert made.equals(pa.array(times).cast(SCHEMA.field("time").type))
    assert made.null_count == np.isnat(times).sum()
    numbers = np.arange(10)[start:stop:2]
    assert column(numbers, "ordinal").equals(pa.array(numbers))


def test_a_missing_time_is_a_null() -> None:
    [batch] = to_batches([b"a", b"b"], np.array([1, 2**63], "u8"), ["NaT", "2000-01-01"])
    assert batch.column("time").null_count == 1
    assert batch.column("lsn").to_pylist() == [1, -(2**63)]
    assert [each is None for each in batch.column("time").to_pylist()] == [True, False]
