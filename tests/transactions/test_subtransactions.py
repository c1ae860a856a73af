"""Savepoints of streamed transactions: changes that are kept, and those that are rolled back."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

import pgwire_codec as pgc
from tests.support.build import T, insert, streamed, wire
from tests.support.implementations import Implementation


def block(*xids: int, first: bool = False) -> list[Any]:
    """A stream block of transaction 7 with an insert by each of some (sub)transactions."""
    rows = [insert(1, str(xid), "a", None, xid=xid) for xid in xids]
    return streamed(*([replace(T, xid=7)] if first else []), *rows, xid=7, first=first)


def abort(subxid: int) -> pgc.StreamAbort:
    return pgc.StreamAbort(7, subxid, None, None)


def kept(decoder: Any, *parts: list[Any]) -> list[str]:
    """Keys that are left when transaction 7 commits; each part is a call."""
    calls = [*parts, [pgc.StreamCommit(7, 0, 50, 51, 0)]]
    changes = [decoder.decode(wire([T, *part])) for part in calls]
    return [each for batch in changes[-1] for each in batch.new["id"].to_pylist()]


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([block(7, 8, 9, first=True), [abort(9)]], [7, 8]),
        ([block(7, 8, 9, 8, first=True), [abort(9)]], [7, 8]),
        ([block(7, 8, 9, 8, first=True), [abort(8)]], [7]),
        ([block(7, 8, 9, first=True), [abort(10)]], [7, 8, 9]),
        # A subtransaction whose changes were rolled back begins where it comes again.
        ([block(7, 8, 9, first=True), [abort(8)], block(9, 7, 8), [abort(8)]], [7, 9, 7]),
        ([block(7, 8, 9, first=True), [abort(8)], block(9, 7, 8), [abort(9)]], [7]),
        ([block(8, 9, first=True), block(9, 10, 8, 11), [abort(10)], block(12)], [8, 9, 9, 12]),
        ([block(8, 9, first=True), block(10), [abort(10), abort(9), abort(8)], block(7)], [7]),
        # Rolled back in the middle of a block.
        ([block(8, 9, 10, 11, first=True), [abort(10)], block(12, 13), [abort(13)]], [8, 9, 12]),
    ],
)
def test_rolled_back_subtransactions(
    codec: Implementation, parts: list[Any], rows: list[int]
) -> None:
    assert kept(codec.Decoder(), *parts) == rows
    assert kept(codec.Decoder(), [message for part in parts for message in part]) == rows
    (single,) = [[[message] for part in parts for message in part]]
    assert kept(codec.Decoder(), *single) == rows


def test_logical_messages_of_a_rolled_back_subtransaction(codec: Implementation) -> None:
    logical = [pgc.Message(xid, 1, 5, "m", b"%d" % xid) for xid in (7, 8, 9)]
    messages = [*streamed(*logical, xid=7), abort(8), pgc.StreamCommit(7, 0, 50, 51, 0)]
    assert codec.Decoder().decode(wire(messages)).logical_messages == logical[:1]


def test_rolling_back_many_subtransactions_is_linear() -> None:
    """A quadratic cost would be 16 times as much for 16 times as many, each."""
    assert _cost_of_each(8_000) < 5 * _cost_of_each(500)


def _cost_of_each(count: int) -> float:
    made = wire([*block(*range(8, 8 + count), first=True), *map(abort, range(7 + count, 7, -1))])
    costs = []
    for _ in range(3):
        decoder = pgc.Decoder()
        start = time.process_time()
        decoder.decode(made)
        costs.append(time.process_time() - start)
        assert decoder.carry.streams[7].position == (0, 0)
    return min(costs) / count
