"""The compiled core among threads: decoders side by side, and the GIL let go while it works."""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.types import TypeOptions, column_type
from tests.support.build import T, begin, commit, insert, wire
from tests.support.corpus import Capture, captures
from tests.support.differential import observed, outcome, plain
from tests.support.examples import in_turn

codec: Any = pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")
compiled: Any = pytest.importorskip("pgwire_codec._core.implementation")
compiled_scan: Any = pytest.importorskip("pgwire_codec._core.wire.scan")
shares: Any = pytest.importorskip("pgwire_codec._core.shares")

SEVERAL = [
    capture for capture in captures(major=18) if capture.scenario in ("types", "traps", "streams")
]


@pytest.fixture
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.differential
@pytest.mark.usefixtures("switching_often")
def test_decoders_of_their_own_side_by_side() -> None:
    """Four threads, of which two at a time read the same bytes."""
    given = [pa.array(capture.messages, pa.binary()) for capture in SEVERAL]

    def decode(number: int) -> list[Any]:
        return observed(codec.Decoder(unrepresentable="null"), given[number])

    alone = [decode(number) for number in range(len(SEVERAL))]
    order = [number for number in range(len(SEVERAL)) for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        for number, found in zip(order, pool.map(decode, order), strict=True):
            assert found == alone[number], SEVERAL[number]


@pytest.mark.differential
@pytest.mark.parametrize(
    ("capture", "threads", "heads"),
    list(in_turn(SEVERAL, [(2, False), (7, True), (2, True), (7, False)])),
    ids=str,
)
def test_shares_of_a_scan(
    capture: Capture, threads: int, heads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares begin anywhere: in stream blocks, after damaged and empty messages."""
    monkeypatch.setattr(shares, "_SMALLEST", 1)
    damaged = list(capture.messages)
    for index in range(5, len(damaged), 11):
        damaged[index] = damaged[index][: index % 9]
    outside, inside = [
        [message[:5] + here + message[6:9] + there + message[10:] for message in capture.messages]
        for here, there in ((b"N", b"?"), (b"?", b"N"))  # where a change has its marker, or not
    ]
    for given in (
        *(capture.messages, damaged, damaged[3:], damaged[: threads + 1]),
        *(outside, inside, [*capture.messages[:-40], *inside[-40:]]),
        [*capture.messages[:60], *outside[60:90], *capture.messages[90:]],
    ):
        (messages,) = to_message_arrays(given, compiled)
        for streaming in (False, True):
            for skip in (False, True):
                options = {"streaming": streaming, "skip": skip, "heads": heads}
                expected = outcome(compiled.scan, messages, **options)
                assert outcome(compiled.scan, messages, threads=threads, **options) == expected


def test_a_large_call_is_scanned_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of a decoder reach its scan, of 4,096 messages each at least."""
    asked = []
    started = shares.in_threads

    def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
        asked.append(count)
        return started(work, count)

    monkeypatch.setattr(compiled_scan, "in_threads", in_threads)
    for count in (4096, 4097, 8192, 20_000):
        many = wire([begin(), T, *[insert(1, "1", "a", "b")] * (count - 3), commit()])
        (batch,) = codec.Decoder(threads=2).decode(many)
        assert len(batch) == count - 3
    assert asked == [1, 2, 2, 2]


@pytest.mark.usefixtures("switching_often")
def test_single_messages_side_by_side() -> None:
    messages = captures("types", major=18)[0].messages[:3000]

    def decode(start: int) -> list[Any]:
        several = messages[start:] + messages[:start]
        assert [codec.encode_message(codec.decode_message(data)) for data in several] == several
        return [plain(codec.decode_message(data)) for data in messages]

    alone = decode(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(found == alone for found in pool.map(decode, range(0, 3000, 400)))


# The GIL.

ROWS = 1_000_000
TYPES = [column_type(oid, -1, TypeOptions()) for oid in (23, 25, 1700, 1082)]


def longest_wait(work: Callable[[], Any]) -> float:
    """The longest time that another thread waited for the GIL, as a share of the work's time.

    No thread is made to let the GIL go in between: the other thread runs if the work lets it.
    """
    ticks = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)  # gives the GIL back

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    ticking = threading.Thread(target=tick)
    try:
        ticking.start()
        while not ticks:
            time.sleep(0.001)
        start = time.perf_counter()
        work()
        end = time.perf_counter()
    finally:
        stop.set()
        sys.setswitchinterval(before)
        ticking.join()
    inside = [start, *(at for at in ticks if start < at < end), end]
    return float(np.diff(inside).max() / (end - start))


@pytest.fixture(scope="module")
def work() -> dict[str, Callable[[], Any]]:
    data = pgc.encode_message(insert(1, "12345", "a piece of text", "678.90", "2024-02-29"))
    messages = Messages(
        np.frombuffer(data * ROWS, np.uint8), np.arange(ROWS + 1, dtype=np.int64) * len(data)
    )
    place = (messages, np.arange(ROWS), np.arange(ROWS, dtype=np.int64) * len(data) + 5, 4)
    return {
        "scan": lambda: compiled.scan(messages),
        "tuples": lambda: compiled.tuples(*place),
        "decode_columns": lambda: compiled.decode_columns(
            *place, "new", list(enumerate(TYPES)), unrepresentable="raise"
        ),
    }


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="this interpreter has no GIL"
)
@pytest.mark.parametrize("name", ["scan", "tuples", "decode_columns"])
def test_other_threads_run_meanwhile(work: dict[str, Callable[[], Any]], name: str) -> None:
    # A busy machine may keep the other thread waiting; who holds the GIL does so each time.
    assert min(longest_wait(work[name]) for _ in range(5)) < 0.5


def test_who_holds_the_gil_is_seen() -> None:
    numbers = list(range(2_000_000, 0, -1))
    assert min(longest_wait(lambda: sum(numbers)) for _ in range(5)) > 0.5


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has a GIL"
)
def test_the_core_does_not_bring_the_gil_back() -> None:
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined]
