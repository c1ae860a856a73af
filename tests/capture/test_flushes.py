"""Moments of a capture's flushes: at once when little arrives, seldom when much does."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pgwire_codec import log
from pgwire_codec.capture import receive_loop
from pgwire_codec.capture.batch import MessageBatch
from pgwire_codec.capture.disk_room import DiskRoom
from pgwire_codec.capture.options import FLUSH_SECONDS, OBJECT_FLUSH_SECONDS
from pgwire_codec.capture.status import StatusBoard
from pgwire_codec.errors import CaptureError
from tests.support.log_captures import capture_into, flush_lsn, messages
from tests.support.servers import Database
from tests.support.slot_captures import confirmed_by_server, opened, tags, wait_until


class TestReads:
    """Batches that end with a transaction, and reads that another thread ends."""

    @pytest.mark.slow
    def test_until_commit(self, table: Database) -> None:
        with opened(table) as capture:
            table.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
            first = capture.read(max_seconds=60, until_commit=True)
            second = capture.read(max_seconds=60, until_commit=True)
        assert (tags(first.data), tags(second.data)) == (b"BRIC", b"BIC")

    @pytest.mark.slow
    def test_wake(self, table: Database) -> None:
        with opened(table) as capture:
            began = time.monotonic()
            timer = threading.Timer(0.2, capture.wake)
            timer.start()
            assert len(capture.read(max_seconds=60)) == 0
            assert time.monotonic() - began < 30
            timer.join()
        capture.wake()  # no effect: it is closed


@pytest.mark.slow
class TestLatency:
    def test_each_transaction_is_readable_soon(
        self, table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A commit begins the flush, and no other time that passes does."""
        monkeypatch.setattr(receive_loop, "_TICK", 60.0)
        monkeypatch.setattr(receive_loop, "_LARGEST_PAUSE", 60.0)
        capture = capture_into(table, tmp_path)
        thread = threading.Thread(target=capture.run)
        thread.start()
        try:
            assert wait_until(lambda: capture.status.state == "streaming")
            for count in range(1, 6):
                table.execute(f"INSERT INTO t VALUES ({count}, 'a')")
                end = flush_lsn(table)
                assert wait_until(
                    lambda count=count: tags(messages(tmp_path)).count(b"C") == count, 20
                )
                assert wait_until(lambda end=end: confirmed_by_server(table) >= end, 20)
        finally:
            capture.stop()
            table.execute("INSERT INTO t VALUES (0, 'the read that waits returns')")
            thread.join()

    def test_the_server_is_never_ahead_of_the_log(
        self, table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ahead: list[int] = []
        flush = log.LogWriter.flush

        def slow(writer: log.LogWriter, *arguments: int, **named: int) -> None:
            flush(writer, *arguments, **named)
            durable = log.Log(tmp_path).confirm_lsn
            time.sleep(0.02)
            ahead.append(confirmed_by_server(table) - durable)

        capture = capture_into(table, tmp_path)
        thread = threading.Thread(target=capture.run)
        thread.start()
        try:
            assert wait_until(lambda: capture.status.state == "streaming")
            monkeypatch.setattr(log.LogWriter, "flush", slow)
            for key in range(50):
                table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
            end = flush_lsn(table)
            assert wait_until(lambda: confirmed_by_server(table) >= end)
        finally:
            capture.stop()
            thread.join()
        assert len(ahead) > 1
        assert max(ahead) <= 0


class Fed:
    """A capture whose transactions of 1 MB arrive every two milliseconds of a clock of its own."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.received_lsn = self.confirmable_lsn = self.confirmed_lsn = 0
        self.reply_requested = False
        self._left = count

    def clock(self) -> float:
        return self.now

    def read(self, **limits: Any) -> MessageBatch:
        if not self._left:
            raise CaptureError("the server ended the stream")
        self._left -= 1
        self.now += 0.002
        self.received_lsn = self.confirmable_lsn = self.received_lsn + 100
        size = 1 << 20
        return MessageBatch(
            buffer=np.full(size, ord("I"), np.uint8),
            offsets=np.array([0, size], np.int32),
            lsn=np.array([self.received_lsn], np.uint64),
            time=np.array([0], "datetime64[us]"),
            xid=None,
            first=0,
            confirm_lsn=self.received_lsn,
        )

    def confirm(self, lsn: int) -> None:
        self.confirmed_lsn = lsn

    def keepalive(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def has_passed(self, lsn: int) -> bool:
        return False


class Counted:
    """A writer that counts the messages of each flush."""

    confirm_lsn = 0
    statistics = log.writer.WriterStatistics()

    def __init__(self) -> None:
        self.flushes: list[int] = []
        self._appended = 0

    def append(self, data: Any, lsn: Any, time: Any) -> None:
        self._appended += len(data)

    def flush(self, **positions: int) -> None:
        self.flushes.append(self._appended)
        self._appended = 0


def test_flushes_are_large_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    capture, writer = Fed(600), Counted()
    monkeypatch.setattr(receive_loop, "monotonic", capture.clock)
    stopping, status_board = threading.Event(), StatusBoard()
    loop = receive_loop.ReceiveLoop(
        capture,  # type: ignore[arg-type]
        writer,  # type: ignore[arg-type]
        flush_seconds=0.005,
        stopping=stopping,
        status_board=status_board,
        flushed=lambda: None,
        room=DiskRoom(".", 0, stopping, status_board),
    )
    with pytest.raises(CaptureError):
        loop.run(None, None)
    assert sum(writer.flushes) == 600
    # The first one is empty, and the others grow: without pauses there would be 240 of them.
    assert len(writer.flushes) <= 20
    assert max(writer.flushes) >= 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grows", "requested", "expected"),
    [(True, None, FLUSH_SECONDS), (False, None, OBJECT_FLUSH_SECONDS), (False, 30.0, 30.0)],
)
def test_the_interval_depends_on_the_store(
    table: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    grows: bool,
    requested: float | None,
    expected: float,
) -> None:
    seen: list[float] = []

    class Loop:
        def __init__(self, *_: Any, flush_seconds: float, **named: Any) -> None:
            seen.append(flush_seconds)

        def run(self, *limits: Any) -> None:
            pass

    monkeypatch.setattr(log.LogWriter, "grows", grows)
    monkeypatch.setattr("pgwire_codec.capture.log_capture.ReceiveLoop", Loop)
    capture_into(table, tmp_path, flush_seconds=requested).run(until_lsn=0)
    assert seen == [expected]
