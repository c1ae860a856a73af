"""LogWriter: what it writes, what it promises, and what it refuses."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log import growing_segment
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.message_buffer import MessageBuffer
from tests.support import corpus
from tests.support.build import (
    T,
    begin,
    commit,
    delete,
    insert,
    row,
    streamed,
    transaction,
    truncate,
    update,
    wire,
)
from tests.support.logs import (
    EPOCH,
    SOURCE,
    append,
    flushed_carry,
    memory,
    no_appends,
    write,
)

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
MESSAGES = wire([*transaction(T, insert(1, "1", "a", None), lsn=100), *transaction(lsn=200)])


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != "lock")


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_segment_is_an_arrow_stream_that_anyone_can_read(
    tmp_path: Path, compression: str | None
) -> None:
    write(CAPTURE, tmp_path, [20], part_bytes=500, compression=compression)
    names = ["ordinal", "lsn", "time"]
    if compression is not None:
        names = [f"{name}_step" for name in names]
    read: list[Any] = []
    for path in sorted(tmp_path.glob("*.arrow")):
        with pa.ipc.open_stream(path) as stream:
            assert stream.schema.names == [*names, "data"]
            assert stream.schema.metadata[b"pgwire_codec.format"] == b"4"
            head = json.loads(stream.schema.metadata[b"pgwire_codec.head"])
            assert head["source"]["slot"] == "slot"
            assert head["source"]["plugin_options"] == {"proto_version": "4"}
            assert path.name == f"{len(read):020}.arrow"
            for batch in stream:
                columns = [batch[name].view(pa.int64()) for name in names]
                if compression is not None:
                    columns = [pc.cumulative_sum(each) for each in columns]
                values = (each.to_pylist() for each in (*columns, batch["data"]))
                read += zip(*values, strict=True)
    ordinals, lsns, times, messages = zip(*read, strict=True)
    assert ordinals == tuple(range(len(CAPTURE.messages)))
    assert messages == tuple(CAPTURE.messages)
    assert lsns == tuple(CAPTURE.lsns.tolist())
    assert np.datetime64(times[7], "us") == EPOCH + np.timedelta64(7, "s")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compression(compression: str, tmp_path: Path) -> None:
    plain = write(CAPTURE, tmp_path / "plain", compression=None)
    packed = write(CAPTURE, tmp_path / "packed", compression=compression)
    assert packed.segments[0].bytes < plain.segments[0].bytes
    assert pa.Table.from_batches(packed.messages()) == pa.Table.from_batches(plain.messages())
    assert log.verify(tmp_path / "packed").is_sound


def test_what_the_watermark_says(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        assert (writer.confirm_lsn, writer.received_lsn, writer.end_ordinal) == (0, 0, 0)
        append(writer, MESSAGES[:5])
        assert files(tmp_path) == ["manifest.json", "watermark.json"]  # a log, nothing in it
        writer.flush(confirm_lsn=110, received_lsn=500)
        _, positions, _ = (tmp_path / "watermark.json").read_bytes().splitlines()
        said = json.loads(positions)
        assert said["segment"] == f"{0:020}"
        assert said["bytes"] == (tmp_path / f"{0:020}.arrow").stat().st_size
        assert (said["messages"], said["end_ordinal"]) == (5, 5)
        assert (said["delivered_lsn"], said["confirm_lsn"]) == ("0/64", "0/6E")
        assert said["received_lsn"] == "0/1F4"
        writer.flush(confirm_lsn=90)  # never back
        assert writer.confirm_lsn == 110
        before = (tmp_path / "watermark.json").read_bytes()
        writer.flush(confirm_lsn=110)
        assert (tmp_path / "watermark.json").read_bytes() == before  # nothing new
    names = [f"{0:020}.arrow", f"{0:020}.json", "manifest.json", "watermark.json"]
    assert files(tmp_path) == names
    with log.LogWriter(tmp_path, SOURCE) as writer:
        assert (writer.confirm_lsn, writer.received_lsn, writer.end_ordinal) == (110, 500, 5)


@pytest.mark.slow
def test_the_carry_is_that_of_what_is_flushed(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE, part_bytes=300) as writer:
        for start in range(0, len(CAPTURE.messages), 7):
            append(writer, CAPTURE.messages[start : start + 7])
            decoder = pgc.Decoder()
            decoder.decode(CAPTURE.messages[:start])
            assert flushed_carry(tmp_path).pending == decoder.pending
            writer.flush()
            decoder.decode(CAPTURE.messages[start : start + 7])
            carry = flushed_carry(tmp_path)
            assert carry.pending == decoder.pending
            assert carry.delivered_lsn == writer.delivered_lsn == decoder.carry.delivered_lsn
            assert set(carry.prepared) == set(decoder.carry.prepared)


def test_sessions_begin_segments(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        writer.new_session(snapshot=True)  # the first has nothing: no segment, no number
        append(writer, MESSAGES)
        writer.seal()
        append(writer, wire(transaction(lsn=300)))
        writer.new_session()
        writer.new_session()
        append(writer, wire(transaction(lsn=400)))
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire(transaction(lsn=500)))
    heads = [segment.header for segment in log.Log(tmp_path).segments]
    assert [(each.session, each.new_session, each.snapshot) for each in heads] == [
        (1, True, True),
        (1, False, True),
        (2, True, False),
        (3, True, False),
    ]


def test_when_a_segment_is_sealed(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE, segment_bytes=5000, part_bytes=100) as writer:
        for _ in range(103):
            append(writer, MESSAGES)
        writer.flush()
        reader = log.Log(tmp_path)
        assert len(reader) > 2
        assert all(5000 <= each.bytes < 7000 for each in reader.segments if each.sealed)
        assert writer.statistics.messages == 103 * len(MESSAGES)
        assert writer.statistics.message_bytes == 103 * sum(map(len, MESSAGES))
        assert writer.statistics.segments == len(reader)
        assert sum(each.sealed for each in reader.segments) == len(reader) - 1
    with log.LogWriter(tmp_path, SOURCE, segment_seconds=0) as writer:
        append(writer, MESSAGES)
        before = len(list(tmp_path.glob("*.json")))
        writer.flush()
        assert len(list(tmp_path.glob("*.json"))) == before + 1


def test_parts_are_about_as_large_as_asked_for(tmp_path: Path) -> None:
    reader = write(CAPTURE, tmp_path, part_bytes=1000)
    [segment] = reader.segments
    longest = max(map(len, CAPTURE.messages))
    assert all(1000 <= part.message_bytes < 1000 + longest for part in segment.parts[:-1])
    assert sum(part.messages for part in segment.parts) == len(CAPTURE.messages)
    assert sum(part.extent.length for part in segment.parts) == segment.bytes - 8 - (
        segment.header_extent.length
    )


def test_arrow_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    count = len(CAPTURE.messages)
    array = pa.array([b"cut off", *CAPTURE.messages], pa.binary())[1:]
    chunked = pa.chunked_array([array[:10], array[10:10], array[10:]])
    times = np.full(count, np.datetime64("NaT"), "datetime64[us]")
    for name, data in (("array", array), ("chunked", chunked)):
        with log.LogWriter(tmp_path / name, SOURCE, part_bytes=700) as writer:
            writer.append(data, CAPTURE.lsns, times)
        table = pa.Table.from_batches(log.Log(tmp_path / name).messages())
        assert table["data"].to_pylist() == CAPTURE.messages
        assert table["time"].null_count == count
        assert log.Log(tmp_path / name).segments[0].first_time is None


def test_lsns_of_64_bits(tmp_path: Path) -> None:
    high = 2**64 - 200
    with log.LogWriter(tmp_path, SOURCE) as writer:
        messages = wire(transaction(T, insert(1, "1", "a", None), lsn=high))
        writer.append(messages, np.array([high] * 4, np.uint64), np.full(4, EPOCH))
    reader = log.Log(tmp_path)
    assert reader.delivered_lsn == high
    [batch] = reader.read()
    assert batch.lsn is not None
    assert batch.lsn.tolist() == [high]
    assert list(reader.read(after=high)) == []


@pytest.mark.parametrize(
    ("data", "lsn", "time", "words"),
    [
        ([b"B"], [1, 2], [EPOCH], "one element a message: 1"),
        ([b"B"], [1], [], "one element a message: 1"),
        ([b"B", None], [1, 2], [EPOCH] * 2, "null"),
        ([b"B"], [1.5], [EPOCH], "whole numbers"),
        (pa.array(["B"]), [1], [EPOCH], "binary array, not string"),
        (b"B", [1], [EPOCH], "a list of bytes, or an Arrow binary array, not bytes"),
        ([b"B", "B"], [1, 2], [EPOCH] * 2, "bytes, not str"),
    ],
)
def test_input_that_is_not_as_it_should_be(
    data: Any, lsn: Any, time: Any, words: str, tmp_path: Path
) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        with pytest.raises(ValueError, match=words):
            writer.append(data, lsn, time)
        append(writer, MESSAGES)  # and nothing is lost
    assert log.Log(tmp_path).end.ordinal == len(MESSAGES)


@pytest.mark.parametrize(
    ("options", "of_files", "of_directory"),
    [
        ({}, 0o600, 0o700),
        ({"file_mode": 0o640}, 0o640, 0o750),
        ({"file_mode": 0o664}, 0o664, 0o775),
    ],
)
def test_permissions(
    options: dict[str, int], of_files: int, of_directory: int, tmp_path: Path
) -> None:
    """They do not depend on the umask, and apply to replaced files, too."""
    with log.LogWriter(tmp_path / "a" / "log", SOURCE, **options) as writer:
        append(writer, MESSAGES)
        writer.seal()
        append(writer, MESSAGES)
        writer.flush()
        directory = tmp_path / "a" / "log"
        assert stat.S_IMODE(directory.stat().st_mode) == of_directory
        modes = {name: stat.S_IMODE((directory / name).stat().st_mode) for name in files(directory)}
        assert set(modes.values()) == {of_files}, modes


def test_options_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(pgc.OptionError, match='"lz4" or "zstd", not \'gzip\''):
        log.LogWriter(tmp_path, SOURCE, compression="gzip")
    with pytest.raises(pgc.OptionError, match="part_bytes must be from 1"):
        log.LogWriter(tmp_path, SOURCE, part_bytes=0)
    with pytest.raises(pgc.OptionError, match="file_mode must be from 0o600 to 0o666, not 0o444"):
        log.LogWriter(tmp_path, SOURCE, file_mode=0o444)
    with pytest.raises(log.LogError, match="unsupported log URI 'ftp://x/y'"):
        log.LogWriter("ftp://x/y", SOURCE)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("system_identifier", "8", "system identifier '7000000000000000001', not of '8'"),
        ("timeline", 2, "timeline 1, and timeline 2 of the server does not descend from it"),
        ("slot", "other", "slot 'slot', not of 'other'"),
        ("database", "other", "database 'shop', not of 'other'"),
    ],
)
def test_another_source_is_refused(field: str, value: Any, words: str, tmp_path: Path) -> None:
    other = replace(SOURCE, **{field: value})
    with log.LogWriter(tmp_path / "position", SOURCE) as writer:
        writer.flush(confirm_lsn=1)  # nothing but a watermark
    with pytest.raises(log.LogError, match=words):
        log.LogWriter(tmp_path / "position", other)
    write(CAPTURE, tmp_path / "messages")
    with pytest.raises(log.LogError, match=words):
        log.LogWriter(tmp_path / "messages", other)


@pytest.mark.parametrize("held", [{"confirm_lsn": 1}, {"message": True}])
def test_a_log_that_holds_nothing_takes_another_source(
    held: dict[str, int], tmp_path: Path
) -> None:
    other = replace(SOURCE, slot="other")
    log.LogWriter(tmp_path, SOURCE).close()
    log.LogWriter(tmp_path, other).close()
    assert log.Log(tmp_path).source == other
    with log.LogWriter(tmp_path, SOURCE) as writer:
        if "message" in held:
            append(writer, MESSAGES[:1])
        else:
            writer.flush(**held)
    with pytest.raises(log.LogError, match="not of 'other'"):
        log.LogWriter(tmp_path, other)


def test_positions_are_forgotten_before_the_first_message_only(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        writer.flush(confirm_lsn=5, received_lsn=6)
        writer.forget_positions()
        assert (writer.confirm_lsn, writer.received_lsn) == (0, 0)
        assert log.Log(tmp_path).confirm_lsn == 0
        append(writer, MESSAGES)
        with pytest.raises(log.LogError, match="has messages already"):
            writer.forget_positions()


def test_a_server_may_be_upgraded_and_options_change(tmp_path: Path) -> None:
    write(CAPTURE, tmp_path)
    newer = replace(SOURCE, server_version=180005, plugin_options={"proto_version": "3"})
    with log.LogWriter(tmp_path, newer) as writer:
        append(writer, MESSAGES)
    reader = log.Log(tmp_path)
    assert reader.source == newer
    assert [each.header.source for each in reader.segments] == [SOURCE, newer]


class TestTimelines:
    """After a failover, the log goes on with messages of a timeline that descends from its own."""

    PROMOTED = replace(SOURCE, timeline=2, ancestors={1: 500})

    def begun(self, folder: Path, **flushed: int) -> None:
        with log.LogWriter(folder, SOURCE) as writer:
            append(writer, MESSAGES[:1])
            writer.flush(**flushed)

    def test_a_descendant_is_a_session_of_its_own(self, tmp_path: Path) -> None:
        self.begun(tmp_path, confirm_lsn=500)
        later = replace(SOURCE, timeline=4, ancestors={1: 500, 2: 600, 3: 700})
        for source in (self.PROMOTED, later):
            with log.LogWriter(tmp_path, source) as writer:
                append(writer, MESSAGES[:1])
        assert log.Log(tmp_path).source == later
        sources = [each.header.source for each in log.Log(tmp_path).segments]
        assert sources == [SOURCE, self.PROMOTED, later]
        assert log.verify(tmp_path).is_sound

    def test_of_the_same_writer(self, tmp_path: Path) -> None:
        with log.LogWriter(tmp_path, SOURCE) as writer:
            append(writer, MESSAGES[:1])
            writer.flush(confirm_lsn=1)
            writer.new_session(source=self.PROMOTED)
            assert log.Log(tmp_path).source == SOURCE  # nothing of the session is in the log yet
            writer.flush(confirm_lsn=2)
            assert log.Log(tmp_path).source == self.PROMOTED
            writer.flush(confirm_lsn=3)
            append(writer, MESSAGES[:1])
        headers = [each.header for each in log.Log(tmp_path).segments]
        assert [(each.session, each.source.timeline) for each in headers] == [(1, 1), (2, 2)]

    def test_a_writer_that_writes_nothing_leaves_the_timeline(self, tmp_path: Path) -> None:
        self.begun(tmp_path)
        log.LogWriter(tmp_path, self.PROMOTED).close()
        assert log.Log(tmp_path).source == SOURCE
        log.LogWriter(tmp_path, SOURCE).close()

    @pytest.mark.parametrize("flushed", [{"confirm_lsn": 501}, {"confirm_lsn": 1 << 40}])
    def test_beyond_the_branch(self, tmp_path: Path, flushed: dict[str, int]) -> None:
        self.begun(tmp_path, **flushed)
        words = "timeline 1 up to .*, and timeline 2 of the server branched off at 0/1F4"
        with pytest.raises(log.LogError, match=words):
            log.LogWriter(tmp_path, self.PROMOTED)
        with log.LogWriter(tmp_path, SOURCE) as writer, pytest.raises(log.LogError, match=words):
            writer.new_session(source=self.PROMOTED)

    def test_a_transaction_beyond_the_branch(self, tmp_path: Path) -> None:
        write(CAPTURE, tmp_path)
        last = log.Log(tmp_path).delivered_lsn
        with pytest.raises(log.LogError, match="branched off at"):
            log.LogWriter(tmp_path, replace(SOURCE, timeline=2, ancestors={1: last}))
        log.LogWriter(tmp_path, replace(SOURCE, timeline=2, ancestors={1: last + 1})).close()

    @pytest.mark.parametrize(
        ("source", "other"),
        [
            (SOURCE, replace(SOURCE, timeline=2)),
            (SOURCE, replace(SOURCE, timeline=3, ancestors={2: 500})),
            (PROMOTED, SOURCE),
            (PROMOTED, replace(SOURCE, timeline=2, ancestors={1: 499})),
            (PROMOTED, replace(SOURCE, timeline=3, ancestors={1: 400, 2: 600})),
        ],
        ids=["no history", "other ancestor", "former primary", "other standby", "its successor"],
    )
    def test_no_descendant(
        self, tmp_path: Path, source: log.LogSource, other: log.LogSource
    ) -> None:
        with log.LogWriter(tmp_path, source) as writer:
            append(writer, MESSAGES[:1])
        words = r"timeline \d, and timeline \d of the server does not descend from it"
        with pytest.raises(log.LogError, match=words):
            log.LogWriter(tmp_path, other)

    def test_a_log_of_an_earlier_release_has_no_ancestors(self, tmp_path: Path) -> None:
        on_second = replace(SOURCE, timeline=2)
        with log.LogWriter(tmp_path, on_second) as writer:
            append(writer, MESSAGES[:1])
            writer.flush(confirm_lsn=1)
        with log.LogWriter(tmp_path, self.PROMOTED) as writer:
            append(writer, MESSAGES[:1])
        # The server has removed the history file.
        with log.LogWriter(tmp_path, on_second) as writer:
            append(writer, MESSAGES[:1])


class TestLock:
    CODE = """
import sys
from pgwire_codec import log
try:
    with log.LogWriter(sys.argv[1], log.LogSource("1", 1, "d", "s", 1)):
        print("written", flush=True)
        sys.stdin.read()
except log.LogError as error:
    print(error)
"""

    def process(self, folder: Path) -> subprocess.Popen[str]:
        """Another process that writes the log until its input ends."""
        return subprocess.Popen(
            [sys.executable, "-c", self.CODE, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_one_writer_at_a_time(self, tmp_path: Path) -> None:
        words = f"being written by another writer of this process \\(pid {os.getpid()}\\)"
        with log.LogWriter(tmp_path, SOURCE) as writer:
            with pytest.raises(log.LogError, match=words):
                log.LogWriter(tmp_path, SOURCE)
            out, _ = self.process(tmp_path).communicate(timeout=30)
            assert f"being written by another process (pid {os.getpid()})" in out
            assert (tmp_path / "lock").read_text() == str(os.getpid())
            append(writer, MESSAGES)
        log.LogWriter(tmp_path, SOURCE).close()

    def test_the_process_that_holds_it_is_named(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "written\n"
            lock = tmp_path / "lock"
            before = lock.stat()
            words = f"being written by another process \\(pid {other.pid}\\)"
            for _ in range(2):  # who is refused leaves the file as it is
                with pytest.raises(log.LogError, match=words):
                    log.LogWriter(tmp_path, log.LogSource("1", 1, "d", "s", 1))
                assert lock.read_text() == str(other.pid)
            other.communicate("", timeout=30)
            assert other.returncode == 0
            with log.LogWriter(tmp_path, log.LogSource("1", 1, "d", "s", 1)):
                assert lock.stat().st_ino == before.st_ino
                assert stat.S_IMODE(lock.stat().st_mode) == 0o600

    def test_a_process_that_is_killed_lets_go_of_it(self, tmp_path: Path) -> None:
        with self.process(tmp_path) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "written\n"
            other.kill()
        log.LogWriter(tmp_path, log.LogSource("1", 1, "d", "s", 1)).close()

    @pytest.mark.parametrize("exists", [True, False])
    def test_a_symbolic_link_is_refused(self, tmp_path: Path, exists: bool) -> None:
        target = tmp_path / "target"
        if exists:
            target.write_text("precious")
            target.chmod(0o644)
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "lock").symlink_to(target)
        with pytest.raises(log.LogError, match=r"log/lock is a symbolic link"):
            log.LogWriter(tmp_path / "log", SOURCE)
        assert target.exists() == exists
        if exists:
            assert target.read_text() == "precious"
            assert stat.S_IMODE(target.stat().st_mode) == 0o644

    def test_closed_by_another_thread(self, tmp_path: Path) -> None:
        writer = log.LogWriter(tmp_path, SOURCE)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(writer.close).result()
        log.LogWriter(tmp_path, SOURCE).close()

    def test_without_filelock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(CAPTURE, tmp_path / "log")
        monkeypatch.setitem(sys.modules, "filelock", None)
        with pytest.raises(pgc.MissingExtraError, match=r"filelock.*pgwire-codec\[log\]"):
            log.LogWriter(tmp_path / "log", SOURCE)
        assert sum(map(len, log.Log(tmp_path / "log").messages())) == len(CAPTURE.messages)


def test_a_writer_that_failed_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, MESSAGES[:2])
        writer.flush(confirm_lsn=5)
        append(writer, MESSAGES[2:])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(log.LogError, match=r"cannot write .*: No space left") as raised:
                writer.flush(confirm_lsn=50)
            assert raised.value.is_transient
        assert writer.confirm_lsn == 5
        for step in (writer.flush, writer.seal, writer.new_session):
            with pytest.raises(
                log.LogError, match=r"failed before: cannot write .*: No space left"
            ):
                step()
        with pytest.raises(log.LogError, match=r"failed before: .* No space left"):
            append(writer, MESSAGES)
    with log.LogWriter(tmp_path, SOURCE) as writer:
        assert (writer.end_ordinal, writer.confirm_lsn) == (2, 5)


@pytest.mark.parametrize("at", range(3))
def test_an_append_that_failed_ends_the_writer(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a later flush would make durable, and confirm, what comes after the lost messages."""
    steps: list[Any] = [
        (MessageBuffer, "add"),
        (growing_segment, "encode_batch"),
        (LocalStore, "create"),
    ]

    def out_of_memory(*arguments: Any, **options: Any) -> Any:
        raise MemoryError

    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        append(writer, MESSAGES[:2])
        writer.flush(confirm_lsn=5)
        writer.seal()
        with monkeypatch.context() as patched:
            patched.setattr(*steps[at], out_of_memory)
            with pytest.raises(log.LogError, match="out of memory while writing the log"):
                append(writer, MESSAGES[2:])
        for step in (writer.flush, writer.seal, lambda: append(writer, MESSAGES)):
            with pytest.raises(log.LogError, match="failed before: out of memory while writing"):
                step()
    with log.LogWriter(tmp_path, SOURCE) as writer:
        assert (writer.end_ordinal, writer.confirm_lsn) == (2, 5)
    assert log.verify(tmp_path).is_sound


def test_messages_that_do_not_decode_are_kept(tmp_path: Path) -> None:
    """They are what the server sent; what to do with them is for readers to say."""
    messages = [MESSAGES[0], b"?", *MESSAGES[1:], b"", b"C\0"]
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        append(writer, messages)
    reader = log.Log(tmp_path)
    assert pa.Table.from_batches(reader.messages())["data"].to_pylist() == messages
    with pytest.raises(pgc.DecodeError, match=r"unknown_tag: message \d+, .*, ordinal 1\)"):
        list(reader.read())
    with pytest.raises(pgc.DecodeError, match=r"truncated: message \d+, .*, ordinal 7\)"):
        list(reader.read(after=100))
    with pytest.raises(pgc.DecodeError, match=r"truncated: message \d+, .*, ordinal 7\)"):
        list(reader.read(after=reader.end))
    assert list(reader.read(after=200, until=reader.end)) == []
    [batch] = reader.read(on_error="skip")
    assert batch.new["v"].to_pylist() == ["a"]
    [batch] = [batch for changes in reader.changes(on_error="skip") for batch in changes]
    assert batch.new["v"].to_pylist() == ["a"]


@pytest.mark.parametrize("place", [memory, no_appends])
def test_a_place_that_cannot_append(place: Any, tmp_path: Path) -> None:
    """Every flush seals a segment there."""
    filesystem = place(*([tmp_path] if place is no_appends else []))
    with log.LogWriter("a/log", SOURCE, filesystem=filesystem, part_bytes=300) as writer:
        append(writer, CAPTURE.messages[:50], CAPTURE.lsns[:50])
        assert len(log.Log("a/log", filesystem=filesystem)) == 0
        writer.flush(confirm_lsn=7)
        reader = log.Log("a/log", filesystem=filesystem)
        assert (reader.end.ordinal, len(reader), reader.confirm_lsn) == (50, 1, 7)
        append(writer, CAPTURE.messages[50:], CAPTURE.lsns[50:])
        writer.flush()
        writer.flush()
    with log.LogWriter("a/log", SOURCE, filesystem=filesystem) as writer:
        assert writer.end_ordinal == len(CAPTURE.messages)
        assert writer.confirm_lsn == 7
    reader.refresh()
    assert (len(reader), [each.sealed for each in reader.segments]) == (2, [True, True])
    assert log.verify("a/log", filesystem=filesystem).is_sound
    whole = pgc.Decoder().decode(CAPTURE.messages, CAPTURE.lsns)
    assert sum(map(len, reader.read())) == sum(map(len, whole))


def test_a_uri(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/log"
    write(CAPTURE, uri)
    assert (tmp_path / "log" / "lock").exists()  # local all the same
    assert log.Log(uri).end == log.Log(tmp_path / "log").end


def test_what_is_counted_of_tables(tmp_path: Path) -> None:
    other = replace(T, oid=2, name="other")
    renamed = replace(T, name="renamed")
    changes = [
        begin(7, 100),
        T,
        insert(1, "1", "a", None),
        insert(1, "2", "a", None),
        other,
        insert(2, "1", "a", None),
        update(1, row("2", "b", None)),
        renamed,
        delete(1, key=row("1", None, None)),
        truncate(1, 2),
        commit(100),
        *streamed(replace(T, xid=8), insert(1, "5", "x", None, xid=8), truncate(1, xid=8), xid=8),
        pgc.StreamAbort(8, 8, None, None),
    ]
    messages = wire(changes)
    for part_bytes in (1, 1 << 20):
        path = tmp_path / str(part_bytes)
        with log.LogWriter(path, SOURCE, part_bytes=part_bytes) as writer:
            append(writer, messages)
        [segment] = log.Log(path).segments
        size = [len(each) for each in messages]
        assert segment.tables == (
            log.RelationCount("public.other", 1, 0, 0, 1, size[5], 2),
            log.RelationCount("public.renamed", 0, 0, 1, 1, size[8], 1),
            log.RelationCount("public.t", 3, 1, 0, 1, size[2] + size[3] + size[6] + size[13], 1),
        )
        assert (segment.commits, segment.first_commit_lsn, segment.last_commit_lsn) == (1, 100, 100)
        assert [each.qualified_name for each in segment.versions] == [
            "public.t",
            "public.other",
            "public.renamed",
        ]


def test_nonsense_leaves_no_log(tmp_path: Path) -> None:
    with pytest.raises(pgc.OptionError, match="segment_bytes must be 1 or more, not 0"):
        log.LogWriter(tmp_path / "log", SOURCE, segment_bytes=0)
    with pytest.raises(TypeError, match="source must be a LogSource, not NoneType"):
        log.LogWriter(tmp_path / "log", None)  # type: ignore[arg-type]
    assert not (tmp_path / "log").exists()
