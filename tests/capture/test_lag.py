"""Lag of a log and waiting times of a capture: arithmetic, without a server."""

from __future__ import annotations

import pytest

from pgwire_codec.capture.connection.backoff import Backoff
from pgwire_codec.capture.lag import Lag, Sample, Samples

SECOND_2000 = 946_684_800  # 2000-01-01, in seconds since 1970


def samples(*given: tuple[int, float]) -> Samples:
    found = Samples()
    for lsn, time in given:
        found.add(Sample(lsn, SECOND_2000 + time))
    return found


def test_no_sample_no_lag() -> None:
    assert Samples().lag(100, 0) is None


@pytest.mark.parametrize("confirmed", [300, 301])
def test_no_lag(confirmed: int) -> None:
    assert samples((100, 10), (300, 20)).lag(confirmed, None) == Lag(0, 0.0)


def test_since_the_server_was_where_the_log_is() -> None:
    measured = samples((100, 10), (200, 11), (200, 12), (300, 20))
    assert measured.lag(200, None) == Lag(100, 8.0)
    assert measured.lag(299, None) == Lag(1, 8.0)
    assert measured.lag(150, None) == Lag(150, 10.0)


def test_before_the_first_sample() -> None:
    """A lag from before the first sample is estimated from the last commit."""
    assert samples((200, 10), (300, 20)).lag(100, None) == Lag(200, 10.0)
    assert samples((200, 10), (300, 20)).lag(100, 2_000_000) == Lag(200, 18.0)
    assert samples((200, 10), (300, 20)).lag(250, 2_000_000) == Lag(50, 10.0)


def test_no_time_is_below_zero() -> None:
    assert samples((300, 1)).lag(100, 9_000_000) == Lag(200, 0.0)


def test_waits_double_up_to_a_cap() -> None:
    backoff = Backoff(longest=4)
    waits = [backoff.fail() for _ in range(2000)]
    for wait, most in zip(waits, [0.5, 1, 2, 4, 4, 4], strict=False):
        assert wait is not None
        assert most / 2 <= wait <= most
    assert len(set(waits[3:])) > 100  # by chance


def test_success_resets_the_waits() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.fail()
    backoff.succeed()
    wait = backoff.fail()
    assert wait is not None
    assert wait <= 0.5


def test_retries_end() -> None:
    backoff = Backoff(max_retries=2)
    assert backoff.fail() is not None
    assert backoff.fail() is not None
    assert backoff.fail() is None
    assert Backoff(max_retries=0).fail() is None
