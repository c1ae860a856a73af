"""Bins of commit time."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.report import findings as columns
from pgwire_codec.report.counts import TimeBins

times = st.integers(-(2**40), 2**50) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(st.tuples(times, st.integers(-1, 10**9)), max_size=20), max_size=5))
def test_bins(parts: list[list[tuple[int, int]]]) -> None:
    bins = TimeBins()
    for part in parts:
        values = np.zeros((len(part), 8), np.int64)
        values[:, columns.TRANSACTIONS] = 1
        bins.add(
            np.array([time for time, _ in part], np.int64),
            values,
            np.array([lag for _, lag in part], np.int64),
        )
    line = bins.time_line()
    everything = [each for part in parts for each in part]
    assert len(line) <= 200
    assert line.start % line.width == 0
    expected = Counter((time - line.start) // line.width for time, _ in everything)
    transactions = line.sums[:, columns.TRANSACTIONS].tolist()
    assert {place: count for place, count in enumerate(transactions) if count} == expected
    for place in expected:
        lags = [lag for time, lag in everything if (time - line.start) // line.width == place]
        assert line.worst_lag[place] == max(lags)
    if everything:
        assert (line.first, line.last) == (min(everything)[0], max(everything)[0])
        assert len(line) == 1 or len(line) >= 10 or line.width == 1000
