"""LogWatch: a wait ends when the log grows, and costs little while it does not."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.log import log_watch
from pgwire_codec.log.log_watch import LogWatch
from tests.support.build import T, insert, transaction, wire
from tests.support.logs import SOURCE, append, no_appends


@pytest.fixture(params=["reported", "polled"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "reported":
        pytest.importorskip("watchfiles", reason="needs the extra lake")
    else:
        monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", None)
    return str(request.param)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.LogWriter]:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T]))
        writer.flush()
        yield writer


def flush(writer: log.LogWriter, number: int = 1) -> None:
    append(writer, wire(transaction(insert(1, str(number), "a", None), lsn=100 + number)))
    writer.flush()


def test_a_flush_ends_a_wait(how: str, writer: log.LogWriter, tmp_path: Path) -> None:
    with LogWatch(tmp_path) as watch:
        assert (watch._changes is not None) == (how == "reported")
        assert not watch.wait(0)
        timer = threading.Timer(0.05, flush, [writer])
        timer.start()
        begun = time.monotonic()
        assert watch.wait(10)
        assert time.monotonic() - begun < 1
        timer.join()
        # A flush between two waits ends the next one at once, and only that.
        flush(writer, 2)
        assert watch.wait(10)
        assert not watch.wait(0.02)
        writer.seal()
        assert watch.wait(10)


def test_other_files_do_not_end_a_wait(how: str, writer: log.LogWriter, tmp_path: Path) -> None:
    with LogWatch(tmp_path) as watch:
        (tmp_path / "other.json").write_text("{}", "utf-8")
        assert not watch.wait(0.1)


def test_an_event_ends_a_wait(how: str, writer: log.LogWriter, tmp_path: Path) -> None:
    stopped = threading.Event()
    with LogWatch(tmp_path) as watch:
        threading.Timer(0.03, stopped.set).start()
        begun = time.monotonic()
        assert not watch.wait(10, stopped)
        assert time.monotonic() - begun < 1


def test_an_object_store_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_watch, "_STORE_PAUSES", (0.001, 0.01))
    filesystem = no_appends(tmp_path)
    with log.LogWriter("log", SOURCE, filesystem=filesystem) as writer:
        flush(writer)
        with LogWatch("log", filesystem=filesystem) as watch:
            assert not watch.wait(0.02)
            flush(writer, 2)
            assert watch.wait(1)


def test_pauses_grow_while_nothing_is_found(
    writer: log.LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", None)
    reads: list[str] = []
    with LogWatch(tmp_path) as watch:
        read = watch._store.read

        def count(name: str) -> Any:
            reads.append(name)
            return read(name)

        monkeypatch.setattr(watch._store, "read", count)
        monkeypatch.setattr(log_watch, "monotonic", lambda: float(len(reads)))
        monkeypatch.setattr(threading.Event, "wait", lambda *_: False)
        assert not watch.wait(30)
        assert watch._pause == log_watch._PAUSES[1]
        flush(writer)
        assert watch.wait(1)
        assert watch._pause == log_watch._PAUSES[0]


@pytest.mark.thorough
def test_a_quiet_log_costs_little(how: str, writer: log.LogWriter, tmp_path: Path) -> None:
    with LogWatch(tmp_path) as watch:
        watch._last_growth -= 60
        watch.wait(1)  # the pause has grown
        begun = time.process_time()
        assert not watch.wait(2)
        assert time.process_time() - begun <= 2 * 0.005
