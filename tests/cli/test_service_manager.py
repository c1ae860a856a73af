"""Notifications of a service manager: none without one, and each state once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from pgwire_codec.capture.status import Status
from pgwire_codec.cli import capture as capture_command
from pgwire_codec.cli.capture_report import JsonReport, summary
from pgwire_codec.cli.service_manager import ServiceManager
from pgwire_codec.metrics.health import STALLED_AFTER
from tests.support.deployment import Notified
from tests.support.slot_captures import wait_until

if not hasattr(socket, "AF_UNIX"):
    pytest.skip("systemd's sockets are Unix's", allow_module_level=True)

STREAMING = Status(state="streaming", messages=1200, confirmed_lsn=0x16B2D50)


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notified]:
    with Notified() as receiver:
        monkeypatch.setenv("NOTIFY_SOCKET", receiver.address)
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield receiver


def test_each_state_is_sent_once(notified: Notified) -> None:
    manager = ServiceManager()
    for text in ("one", "one", "two\nlines\x1b[2J", "é" * 5000):
        manager.status(text)
        manager.ready()
    manager.stopping()
    manager.stopping()
    manager.alive()  # without WatchdogSec
    received = notified.rest()
    assert received[:3] == ["STATUS=one", "READY=1", "STATUS=two lines\\u001b[2J"]
    assert received[3].startswith("STATUS=éé")
    assert len(received[3].encode()) < 4096  # systemd ignores a longer datagram
    assert received[4:] == ["STOPPING=1"]


def test_the_watchdog_is_of_one_process(
    notified: Notified, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, expected in ((os.getpid(), 1), (os.getppid(), 0)):
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        monkeypatch.setenv("WATCHDOG_PID", str(pid))
        manager = ServiceManager()
        before = len(notified.received)
        manager.alive()
        manager.alive()  # long before half of the time
        manager.status(f"sent {pid}")
        assert wait_until(lambda pid=pid: f"STATUS=sent {pid}" in notified.received)
        assert notified.received[before:].count("WATCHDOG=1") == expected


def test_without_a_service_manager(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setattr(socket, "socket", None)
    manager = ServiceManager()
    manager.ready()
    manager.alive()
    manager.stopping()
    assert capsys.readouterr().err == ""


class Running:
    """A capture that has its status and no progress for some seconds."""

    status = STREAMING

    def __init__(self, stalled_seconds: float) -> None:
        self.stalled_seconds = stalled_seconds


class Worker:
    """Thread of a capture that ends after some looks at it."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._looks = 3

    def is_alive(self) -> bool:
        self._looks -= 1
        return self._looks >= 0

    def join(self, seconds: float) -> None:
        pass


class Meter:
    """A meter of a lag and a slot that are not known."""

    slot_status = None

    def measure(self, status: Status) -> None:
        pass


@pytest.mark.parametrize(("stalled", "expected"), [(0.0, 3), (STALLED_AFTER, 0)])
def test_a_capture_without_progress_is_not_alive(
    notified: Notified, monkeypatch: pytest.MonkeyPatch, stalled: float, expected: int
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "0")
    worker: object = Worker(Running(stalled))
    capture_command._show_while_alive(worker, JsonReport(60), Meter(), [])  # type: ignore[arg-type]
    received = notified.rest()
    assert received.count("WATCHDOG=1") == expected
    assert received.count("READY=1") == 1


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (STREAMING, "streaming: 1,200 messages, confirmed 0/16B2D50"),
        (Status(), "connecting"),
        (Status(state="snapshot"), "snapshot"),
        (Status(state="waiting", problem="no route"), "waiting: no route"),
        (
            Status(
                state="snapshot",
                snapshot_rows=5,
                snapshot_rows_expected=9,
                snapshot_tables_expected=2,
            ),
            "snapshot: 5 of about 9 rows, 0 of 2 tables, 0 B of 0 B",
        ),
    ],
)
def test_summary(status: Status, text: str) -> None:
    assert summary(status) == text
