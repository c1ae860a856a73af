"""The description of a segment does not depend on its record batches, or on what was asked when."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgwire_codec.log import segment_builder
from pgwire_codec.log.message_buffer import to_batches
from pgwire_codec.log.segment import SegmentHeader
from pgwire_codec.log.segment_builder import SegmentBuilder
from pgwire_codec.log.state import LogState
from pgwire_codec.transactions.carry import Carry, Scope
from tests.support.build import T, insert, transaction, wire
from tests.support.examples import examples
from tests.support.logs import SOURCE
from tests.transactions.test_runs import calls, streams


def builder(delivered_lsn: int = 0) -> SegmentBuilder:
    header = SegmentHeader(
        log_id="0" * 32,
        source=SOURCE,
        session=1,
        new_session=True,
        snapshot=False,
        first_ordinal=0,
        before=LogState(Carry(delivered_lsn=delivered_lsn)),
        encoding="plain",
    )
    return SegmentBuilder(header, Scope(), b"header", None)


def add(to: SegmentBuilder, messages: list[bytes]) -> None:
    count = len(messages)
    times = np.full(count, "2026-01-01", "datetime64[us]")
    for records in to_batches(messages, np.zeros(count, np.uint64), times):
        to.add(records, b"".join(messages))


@pytest.mark.slow
@examples(75, 600)
def test_batches_do_not_matter(examples: int) -> None:
    @settings(max_examples=examples)
    @given(streams(), st.integers(0, 99), st.integers(0, 40), st.sampled_from([1, 100, 10**6]))
    def check(messages: list[bytes], seed: int, delivered_lsn: int, waiting: int) -> None:
        whole, often, seldom = (builder(delivered_lsn) for _ in range(3))
        if not messages:
            return
        add(whole, messages)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segment_builder, "_MOST_WAITING", waiting)
            for cut in calls(messages, random.Random(seed)):
                add(often, messages[cut])
                add(seldom, messages[cut])
                until = builder(delivered_lsn)
                add(until, messages[: cut.stop])
                assert often.delivered_lsn == until.segment(sealed=False).delivered_lsn
            expected: Any = whole.segment(sealed=True)
            assert often.segment(sealed=True) == seldom.segment(sealed=True) == expected
            assert often.state() == seldom.state() == whole.state()

    check()


def test_small_batches_are_described_together(monkeypatch: pytest.MonkeyPatch) -> None:
    described = []
    describe = SegmentBuilder._describe
    monkeypatch.setattr(
        SegmentBuilder,
        "_describe",
        lambda self: described.append(len(self._waiting)) or describe(self),
    )
    several = builder()
    add(several, wire([T]))
    assert several.delivered_lsn == 0
    assert described == [1]
    for lsn in range(1, 100):
        add(several, wire(transaction(insert(1, "1", "a", None), lsn=lsn)))
        assert several.delivered_lsn == lsn
    assert described == [1]
    assert several.segment(sealed=False).commits == 99
    assert described == [1, 99]
