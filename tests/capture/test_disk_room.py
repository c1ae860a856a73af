"""Captures into a log on a small disk that is filled meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.capture import LogCapture, SegmentOptions
from tests.crash.harness import COMMAND, capture_process, wait_for_stream
from tests.support.servers import Database
from tests.support.slot_captures import confirmed_by_server, wait_until
from tests.support.small_disk import NoSmallDiskError, SmallDisk, small_disk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs in a namespace"),
]

_SIZE, _LEAST = 32 << 20, 8 << 20
_SECONDS = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with ExitStack() as entered:
        try:
            made = entered.enter_context(small_disk(tmp_path, _SIZE))
        except NoSmallDiskError as error:
            pytest.skip(str(error))
        yield made


@contextmanager
def running(made: Database, folder: Path, **options: Any) -> Iterator[LogCapture]:
    """A capture in a thread."""
    capture = _capture(made, folder, **options)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            capture.run()
        except BaseException as error:  # noqa: BLE001  (raised below)
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield capture
    finally:
        capture.stop()
        thread.join()
    if failures:
        raise failures[0]


def _capture(made: Database, folder: Path, **options: Any) -> LogCapture:
    return LogCapture(
        made.dsn, folder, slot=made.slot, publication="p", min_free_bytes=_LEAST, **options
    )


def _waits(capture: LogCapture) -> bool:
    problem = capture.status.problem or ""
    return capture.status.state == "waiting" and "is nearly full" in problem


def _kill(made: Database, folder: Path) -> None:
    """Capture a row, and kill the capture."""
    with capture_process(
        [
            *(sys.executable, "-c", COMMAND, "capture", "--json", "--dsn", made.dsn),
            *("--slot", made.slot, "--publication", "p", "--log", str(folder), "--min-free", "0"),
        ]
    ) as process:
        wait_for_stream(process)
        made.execute("INSERT INTO t VALUES (0, 'before')")
        assert wait_until(lambda: list(_keys(folder)) == [0], _SECONDS)


def _keys(folder: Path) -> Iterator[int]:
    for batch in log.Log(folder).read():
        yield from batch.new["k"].to_pylist()


def test_a_capture_waits_for_room_and_confirms_nothing(table: Database, disk: SmallDisk) -> None:
    made, folder = table, disk.path / "log"
    with running(made, folder) as capture:
        made.execute("INSERT INTO t VALUES (1, 'one')")
        assert wait_until(lambda: capture.status.transactions == 1, _SECONDS)
        disk.fill(_LEAST // 2)
        assert wait_until(lambda: _waits(capture), _SECONDS)
        confirmed = confirmed_by_server(made)
        made.execute("INSERT INTO t VALUES (2, 'two')")
        assert not wait_until(lambda: capture.status.transactions > 1, 3)
        assert (_waits(capture), confirmed_by_server(made)) == (True, confirmed)
        disk.empty()
        assert wait_until(lambda: capture.status.transactions == 2, _SECONDS)
        assert capture.status.problem is None
    assert confirmed_by_server(made) > confirmed
    assert list(_keys(folder)) == [1, 2]


@pytest.mark.parametrize("before", ["no log", "log", "log of a killed capture"])
def test_a_capture_waits_before_it_opens_its_log(
    before: str, table: Database, disk: SmallDisk
) -> None:
    made, folder = table, disk.path / "log"
    if before == "log":
        _capture(made, folder).run(until_lsn="now")
    elif before != "no log":  # the next start seals its segment
        _kill(made, folder)
    files = set(disk.path.rglob("*"))
    made.execute("INSERT INTO t VALUES (1, 'one')")
    disk.fill()
    with running(made, folder) as capture:
        assert wait_until(lambda: _waits(capture), _SECONDS)
        disk.empty()
        assert wait_until(lambda: capture.status.transactions == 1, _SECONDS)
    assert files <= set(disk.path.rglob("*"))
    assert list(_keys(folder))[-1] == 1


def test_a_capture_prunes_its_log_while_it_waits(table: Database, disk: SmallDisk) -> None:
    made, folder = table, disk.path / "log"
    segments = SegmentOptions(segment_bytes=1 << 20, compression=None)
    insert = "INSERT INTO t SELECT 100 * {} + g, repeat('x', 10000) FROM generate_series(1, 100) g"
    made.execute(*(insert.format(number) for number in range(15)))
    _capture(made, folder, segments=segments).run(until_lsn="now")
    disk.fill(_LEAST // 2)
    retention = log.Retention(max_bytes=1 << 20)
    with running(made, folder, segments=segments, retention=retention) as capture:
        made.execute("INSERT INTO t VALUES (0, 'after')")
        assert wait_until(lambda: capture.status.transactions == 1, _SECONDS)
    assert log.Log(folder).begin.ordinal > 0


def test_a_stop_ends_the_wait(table: Database, disk: SmallDisk) -> None:
    disk.fill()
    with running(table, disk.path / "log") as capture:
        assert wait_until(lambda: _waits(capture), _SECONDS)
    assert capture.status.state == "stopped"
