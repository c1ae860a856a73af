"""When a slot may advance by itself, and when a position is reached."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.capture import positions as positions_module
from pgwire_codec.capture.positions import Positions


def feed(positions: Positions, *messages: tuple[str, int]) -> None:
    tags, lsns = zip(*messages, strict=True)
    positions.add_messages(
        np.array([ord(tag) for tag in tags], np.uint8), np.array(lsns, np.uint64)
    )


def test_an_idle_stream_advances_with_the_keepalives() -> None:
    positions = Positions(100)
    positions.add_keepalive(150)
    positions.advance_idle()
    assert positions.confirmed == 150


def test_an_unconfirmed_transaction_holds_the_slot() -> None:
    positions = Positions(100)
    feed(positions, ("B", 110), ("R", 0), ("I", 110), ("C", 120))
    positions.add_keepalive(150)
    positions.advance_idle()
    assert positions.confirmed == 100
    positions.confirm(120)
    positions.advance_idle()
    assert positions.confirmed == 150


@pytest.mark.parametrize(
    "later",
    [
        [("B", 105)],
        [("S", 90), ("R", 0)],
        [("S", 90), ("I", 90), ("E", 95)],
        [("B", 105), ("R", 0)],
    ],
)
def test_a_later_message_with_a_lower_lsn_does_not_release_it(later: list[tuple[str, int]]) -> None:
    positions = Positions(110)
    feed(positions, ("B", 110), ("I", 110), ("C", 120), *later)
    positions.add_keepalive(150)
    positions.advance_idle()
    assert positions.confirmed == 110


@pytest.mark.parametrize("end", ["C", "P", "c", "p", "K", "r"])
def test_every_end_of_a_transaction_has_to_be_confirmed(end: str) -> None:
    positions = Positions(100)
    feed(positions, (end, 120))
    assert positions.required == 120
    assert positions.has_passed(120)
    assert not positions.has_passed(121)


def test_a_message_counts_by_itself_only_outside_a_transaction() -> None:
    positions = Positions(100)
    feed(positions, ("B", 110), ("M", 111))
    assert positions.required == 100
    feed(positions, ("C", 120), ("M", 130))
    assert positions.required == 130


def test_a_streamed_transaction_that_runs_holds_nothing() -> None:
    positions = Positions(100)
    feed(positions, ("S", 110), ("I", 111), ("E", 111))
    positions.add_keepalive(150)
    positions.advance_idle()
    assert positions.confirmed == 150


def test_a_position_is_not_reached_inside_a_transaction() -> None:
    positions = Positions(100)
    feed(positions, ("B", 140), ("I", 110))
    positions.add_keepalive(130)
    assert not positions.has_passed(120)
    feed(positions, ("C", 145))
    assert positions.has_passed(120)
    assert positions.has_passed(145)


def test_confirmation_never_goes_back() -> None:
    positions = Positions(100)
    positions.confirm(90)
    assert positions.confirmed == 100


def test_it_is_the_same_however_messages_are_cut() -> None:
    """Every stream of five messages: at once, and one by one."""
    for tags in itertools.product("BCSEMI", repeat=5):
        messages = [(tag, 100 + 10 * number) for number, tag in enumerate(tags)]
        whole, single = Positions(0), Positions(0)
        feed(whole, *messages)
        for message in messages:
            feed(single, message)
        assert [getattr(whole, name) for name in Positions.__slots__] == [
            getattr(single, name) for name in Positions.__slots__
        ], tags


@given(
    st.lists(st.tuples(st.sampled_from("BCIRMSEcApPbKrYO"), st.integers(0, 500)), max_size=16),
    st.booleans(),
)
def test_few_messages_count_as_many_do(messages: list[tuple[str, int]], is_open: bool) -> None:
    found = []
    for few in (0, 16):
        positions = Positions(100)
        positions.is_open = is_open
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(positions_module, "_FEW", few)
            if messages:
                feed(positions, *messages)
        found.append([getattr(positions, name) for name in Positions.__slots__])
    assert found[0] == found[1]
