"""Ordinals, LSNs and times are stored as differences, and read as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.log.message_columns import SCHEMA, STORED, from_stored, to_stored

_NUMBERS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def messages(draw: st.DrawFn) -> pa.RecordBatch:
    """Draw a slice of messages, with any numbers and times."""
    rows = draw(st.lists(st.tuples(_NUMBERS, st.none() | _NUMBERS, st.binary(max_size=3))))
    first = draw(st.integers(0, 2**63 - 1 - len(rows)))
    lsns, times, data = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [range(first, first + len(rows)), lsns, times, data]
    arrays = [
        pa.array(list(values), field.type) for values, field in zip(columns, SCHEMA, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    start = draw(st.integers(0, len(rows)))
    return batch.slice(start, draw(st.integers(0, len(rows))))


@given(messages())
def test_any_numbers_and_times(batch: pa.RecordBatch) -> None:
    stored = to_stored(batch, "differences")
    stored.validate(full=True)
    assert stored.schema == STORED["differences"]
    found = from_stored(stored, "differences")
    found.validate(full=True)
    assert found.equals(batch)
    assert found.schema == SCHEMA
    assert from_stored(batch, "plain") is to_stored(batch, "plain") is batch
    names = ["ordinal", "lsn", "data"]
    assert from_stored(stored, "differences", with_time=False).equals(batch.select(names))


def test_ordinals_with_a_gap() -> None:
    columns = [pa.array([7, 9, 10]), pa.array([0] * 3), pa.nulls(3, SCHEMA[2].type), [b""] * 3]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    assert from_stored(to_stored(batch, "differences"), "differences").equals(batch)


@given(messages())
def test_cumulative_sums_are_the_values(batch: pa.RecordBatch) -> None:
    stored = to_stored(batch, "differences")
    for step, field in zip(stored.columns[:3], SCHEMA, strict=False):
        found = pc.cumulative_sum(step, skip_nulls=True)
        assert found.equals(batch.column(field.name).view(pa.int64()))


@pytest.mark.parametrize("known", [[0, 1, 2, 3], [1, 3], [2], []])
def test_steps_are_those_from_the_last_known_row(known: list[int]) -> None:
    times = np.array([100, 101, 105, 105])
    given_ = pa.array([each if i in known else None for i, each in enumerate(times.tolist())])
    columns = [pa.array([7, 8, 9, 10]), pa.array([50, 40, 40, 45]), given_.cast(SCHEMA[2].type)]
    stored = to_stored(
        pa.RecordBatch.from_arrays([*columns, [b""] * 4], schema=SCHEMA), "differences"
    )
    assert stored.column("ordinal_step").to_pylist() == [7, 1, 1, 1]
    assert stored.column("lsn_step").to_pylist() == [50, -10, 0, 5]
    expected = dict(zip(known, np.diff(times[known], prepend=0).tolist(), strict=True))
    assert stored.column("time_step").to_pylist() == [expected.get(i) for i in range(4)]
