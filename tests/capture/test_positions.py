"""When a slot may advance by itself, and when a position is reached."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pgwire_codec.capture.positions import Progress


def feed(progress: Progress, *messages: tuple[str, int]) -> None:
    tags, lsns = zip(*messages, strict=True)
    progress.messages(np.array([ord(tag) for tag in tags], np.uint8), np.array(lsns, np.uint64))


def test_an_idle_stream_advances_with_the_keepalives() -> None:
    progress = Progress(100)
    progress.keepalive(150)
    progress.advance_idle()
    assert progress.confirmed == 150


def test_an_unconfirmed_transaction_holds_the_slot() -> None:
    progress = Progress(100)
    feed(progress, ("B", 110), ("R", 0), ("I", 110), ("C", 120))
    progress.keepalive(150)
    progress.advance_idle()
    assert progress.confirmed == 100
    progress.confirm(120)
    progress.advance_idle()
    assert progress.confirmed == 150


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
    progress = Progress(110)
    feed(progress, ("B", 110), ("I", 110), ("C", 120), *later)
    progress.keepalive(150)
    progress.advance_idle()
    assert progress.confirmed == 110


@pytest.mark.parametrize("end", ["C", "P", "c", "p", "K", "r"])
def test_every_end_of_a_transaction_has_to_be_confirmed(end: str) -> None:
    progress = Progress(100)
    feed(progress, (end, 120))
    assert progress.required == 120
    assert progress.has_passed(120)
    assert not progress.has_passed(121)


def test_a_message_counts_by_itself_only_outside_a_transaction() -> None:
    progress = Progress(100)
    feed(progress, ("B", 110), ("M", 111))
    assert progress.required == 100
    feed(progress, ("C", 120), ("M", 130))
    assert progress.required == 130


def test_a_streamed_transaction_that_runs_holds_nothing() -> None:
    progress = Progress(100)
    feed(progress, ("S", 110), ("I", 111), ("E", 111))
    progress.keepalive(150)
    progress.advance_idle()
    assert progress.confirmed == 150


def test_a_position_is_not_reached_inside_a_transaction() -> None:
    progress = Progress(100)
    feed(progress, ("B", 140), ("I", 110))
    progress.keepalive(130)
    assert not progress.has_passed(120)
    feed(progress, ("C", 145))
    assert progress.has_passed(120)
    assert progress.has_passed(145)


def test_confirmation_never_goes_back() -> None:
    progress = Progress(100)
    progress.confirm(90)
    assert progress.confirmed == 100


def test_it_is_the_same_however_messages_are_cut() -> None:
    """Every stream of five messages: at once, and one by one."""
    for tags in itertools.product("BCSEMI", repeat=5):
        messages = [(tag, 100 + 10 * number) for number, tag in enumerate(tags)]
        whole, single = Progress(0), Progress(0)
        feed(whole, *messages)
        for message in messages:
            feed(single, message)
        assert [getattr(whole, name) for name in Progress.__slots__] == [
            getattr(single, name) for name in Progress.__slots__
        ], tags
