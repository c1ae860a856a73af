"""Invalid frames and messages: errors of this package, without loss of earlier messages."""

from __future__ import annotations

import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgwire_codec import log
from pgwire_codec.capture import Capture, LogCapture
from pgwire_codec.capture.connection.frames import ReadOutcome
from pgwire_codec.capture.connection.replication_connection import ReplicationEnded
from pgwire_codec.capture.disk_room import DiskRoom
from pgwire_codec.capture.receive_loop import ReceiveLoop
from pgwire_codec.capture.receiver import Receiver
from pgwire_codec.capture.status import StatusBoard
from pgwire_codec.errors import CaptureError
from tests.support.corpus import capture as corpus_capture
from tests.support.error_style import check_style
from tests.support.log_captures import decoded, flush_lsn, messages
from tests.support.logs import SOURCE
from tests.support.proxy import Proxy, proxied
from tests.support.scripted_libpq import Connection
from tests.support.servers import Database
from tests.support.slot_captures import confirmed_by_server

CAPTURE = corpus_capture("dml.pg18.v1-text")


def xlog_data(message: bytes, start: int = 0, time: int = 0) -> bytes:
    return struct.pack(">cQQq", b"w", start, start, time) + message


def keepalive(wal_end: int) -> bytes:
    return struct.pack(">cQqB", b"k", wal_end, 0, 0)


@pytest.fixture(params=["cython", "python"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Split frames with each of the implementations."""
    monkeypatch.setattr("pgwire_codec._impl.IMPL", request.param)
    name: str = request.param
    return name


@pytest.fixture
def proxy(table: Database) -> Iterator[tuple[Proxy, str]]:
    table.execute("INSERT INTO t VALUES (1, 'a')")
    with proxied(table) as made:
        yield made


@pytest.mark.slow
@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"?unknown", "unknown_tag"),
        (b"k", "truncated"),
        (keepalive(1)[:-1], "truncated"),
        (keepalive(1) + b"x", "trailing"),
        (b"w", "truncated"),
        (xlog_data(b"")[:-1], "truncated"),
        (xlog_data(b""), "without a message"),
        (b"s" + bytes(40), "unknown_tag"),
        (b"r" + bytes(33), "StandbyStatusUpdate"),
    ],
)
def test_frames(
    table: Database, proxy: tuple[Proxy, str], tmp_path: Path, frame: bytes, said: str
) -> None:
    between, dsn = proxy
    between.frames.append(frame)
    capture = LogCapture(dsn, tmp_path, slot=table.slot, publication="p", max_retries=0)
    with pytest.raises(CaptureError, match=said) as caught:
        capture.run(idle_seconds=1)
    assert not caught.value.is_transient
    _, hint = check_style(caught.value)
    assert hint == "Connect to a PostgreSQL server directly, not through a pooler or proxy."
    with (
        Capture(dsn, slot=table.slot, publication="p") as bare,
        pytest.raises(CaptureError, match=said),
    ):
        bare.read()
    between.frames.clear()
    capture.run(until_lsn=flush_lsn(table))
    assert [row["k"] for row in decoded(tmp_path, "public.t")] == [1]


@pytest.mark.slow
@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("message", [b"?", b"\xff\0\0", b"C", b"I\0\0", b"c\0\0\0\7", b"B", b"E"])
def test_messages_that_do_not_decode_are_kept(
    table: Database, proxy: tuple[Proxy, str], tmp_path: Path, message: bytes
) -> None:
    """The log contains the messages as they were sent; readers report those that do not decode."""
    between, dsn = proxy
    between.frames.append(xlog_data(message))
    capture = LogCapture(dsn, tmp_path, slot=table.slot, publication="p")
    capture.run(until_lsn=flush_lsn(table))
    assert messages(tmp_path)[0] == message
    assert b"I" in {each[:1] for each in messages(tmp_path)[1:]}
    assert confirmed_by_server(table) <= log.Log(tmp_path).confirm_lsn


class Stream:
    """A scripted connection in COPY BOTH mode: frames, and then the end."""

    def __init__(self, frames: list[bytes], side: str, socket: int) -> None:
        self.connection = Connection([*frames, -1], socket)
        self.frames = getattr(self.connection, side)()

    def read(self, max_messages: int, max_bytes: int, stop_lsn: int, seconds: float) -> ReadOutcome:
        outcome = ReadOutcome(self.frames.read(max_messages, max_bytes, stop_lsn, seconds))
        if outcome in (ReadOutcome.ENDED, ReadOutcome.BROKEN):
            raise ReplicationEnded("", "")
        return outcome

    def write(self, frame: bytes) -> None:
        pass

    def wake(self) -> None:
        pass


class Played(Capture):
    """A capture of such a stream."""

    def __init__(self, stream: Any) -> None:
        super().__init__("", slot="s", publication="p")
        self._connection = stream
        self._receiver = Receiver(
            stream, 0, status_interval=10.0, receive_timeout=60.0, auto_advance=False
        )


def played(frames: list[bytes], side: str, socket: int, folder: Path) -> tuple[str, list[bytes]]:
    """Return the error that ends a stream, and the messages of the log."""
    with log.LogWriter(folder, SOURCE) as writer:
        writer.new_session()
        stopping, status_board = threading.Event(), StatusBoard()
        stream = ReceiveLoop(
            Played(Stream(frames, side, socket)),
            writer,
            flush_seconds=60.0,
            stopping=stopping,
            status_board=status_board,
            flushed=lambda: None,
            room=DiskRoom(folder, 0, stopping, status_board),
        )
        with pytest.raises(CaptureError) as caught:
            stream.run(None, None)
    return str(caught.value), messages(folder)


NUMBERS = st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
FRAMES = st.one_of(
    st.binary(min_size=1, max_size=30),
    st.builds(keepalive, NUMBERS),
    st.builds(
        lambda message, start, time: xlog_data(message, start, time - (1 << 63)),
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from(b"BCSEMAIRcpbPKr").map(lambda tag: bytes([tag])),
            st.sampled_from(CAPTURE.messages),
        ),
        NUMBERS,
        st.integers(0, (1 << 64) - 1) | NUMBERS,
    ),
)


@pytest.mark.slow
@given(frames=st.lists(FRAMES, min_size=1, max_size=8))
@example(frames=[xlog_data(b"?", (1 << 64) - 1, -(1 << 63))])
@example(frames=[xlog_data(b"C" + bytes(25), (1 << 64) - 1, (1 << 63) - 1)])
@example(frames=[xlog_data(b"C")])
@example(frames=[keepalive((1 << 64) - 1)])
def test_errors_are_of_this_package(frames: list[bytes]) -> None:
    pytest.importorskip(
        "pgwire_codec.capture.connection._frames", reason="the compiled core is not built"
    )
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as readable:
        compiled, plain = (
            played(frames, side, readable.fileno(), Path(folder, side))
            for side in ("compiled", "plain")
        )
    assert compiled == plain
    sent = [frame[25:] for frame in frames if frame[:1] == b"w" and len(frame) > 25]
    assert plain[1] == sent[: len(plain[1])]
