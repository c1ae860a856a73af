"""Retention of a log: by age, by size, and for consumers."""

from __future__ import annotations

import errno
import os
import stat
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log import growing_reader
from pgwire_codec.log.reader import Log
from tests.support import build
from tests.support.logs import SOURCE

NOW = datetime(2030, 1, 8, tzinfo=timezone.utc)
DAY = timedelta(days=1)
SEGMENTS = 7  # each with one transaction, at LSN 100, 200, …, sent seven, six, … days before now


def append(writer: log.LogWriter, *inside: Any, lsn: int, sent: str) -> None:
    """Append a transaction as a segment of its own."""
    messages = build.wire(build.transaction(*inside, lsn=lsn))
    times = np.full(len(messages), np.datetime64(sent, "us"))
    writer.append(messages, np.zeros(len(messages), np.uint64), times)
    writer.seal()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    relation = build.relation(1, build.column("id", "int4", key=True))
    with log.LogWriter(path, SOURCE) as writer:
        for number in range(SEGMENTS):
            row = build.insert(1, str(number))
            sent = f"2030-01-0{number + 1}"
            append(writer, relation, row, lsn=100 * (number + 1), sent=sent)
    return path


def commits(path: Path) -> list[int]:
    """Return the commit LSNs of the segments that a log has."""
    return [lsn for each in log.Log(path).segments if (lsn := each.last_commit_lsn) is not None]


def kept(path: Path, **what: Any) -> list[int]:
    log.retain(path, log.Retention(**what), now=NOW)
    assert log.verify(path).is_sound
    return commits(path)


def test_by_age(folder: Path) -> None:
    assert kept(folder, keep=10 * DAY) == [100, 200, 300, 400, 500, 600, 700]
    # A message that was sent just so long ago stays.
    assert kept(folder, keep=5 * DAY) == [300, 400, 500, 600, 700]
    assert kept(folder, keep=4.5 * DAY) == [400, 500, 600, 700]
    assert kept(folder, keep=timedelta(0)) == [700]  # the last one always stays


def test_a_clock_that_was_set_back(folder: Path) -> None:
    """A segment after a younger one is not removed before it."""
    with log.LogWriter(folder, SOURCE) as writer:
        for lsn, day in ((800, 1), (900, 7), (1000, 7)):
            append(writer, lsn=lsn, sent=f"2030-01-0{day}")
    assert kept(folder, keep=2 * DAY) == [600, 700, 800, 900, 1000]


def test_by_size(folder: Path) -> None:
    sizes = [each.bytes for each in log.Log(folder).segments]
    assert kept(folder, max_bytes=sum(sizes)) == [100, 200, 300, 400, 500, 600, 700]
    assert kept(folder, max_bytes=sum(sizes) - 1) == [200, 300, 400, 500, 600, 700]
    assert kept(folder, max_bytes=sum(sizes[-3:])) == [500, 600, 700]
    assert kept(folder, max_bytes=0) == [700]


def test_the_growing_segment_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read for that."""
    sizes = [each.bytes for each in log.Log(folder).segments]
    with log.LogWriter(folder, SOURCE) as writer:
        messages = build.wire(build.transaction(lsn=800))
        writer.append(
            messages, np.zeros(2, np.uint64), np.full(2, np.datetime64("2030-01-08", "us"))
        )
        writer.flush()
        planned = log.Retention(max_bytes=sum(sizes))
        monkeypatch.setattr(growing_reader, "read_growing", None)
        assert planned.needless_lsn(log.Log(folder)) == 100
        monkeypatch.undo()
        assert kept(folder, max_bytes=sum(sizes))[0] == 200


def test_age_and_size(folder: Path) -> None:
    sizes = [each.bytes for each in log.Log(folder).segments]
    assert kept(folder, keep=5 * DAY, max_bytes=sum(sizes[-2:])) == [600, 700]


def test_consumers(folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    consumers = tuple(log.LsnFile(each) for each in files)
    for path, lsn in zip(files, ("0/12C", "0/190\n"), strict=True):  # 300, 400
        path.write_text(lsn)
    assert kept(folder, consumers=consumers) == [400, 500, 600, 700]
    files[0].write_text("0/258")  # 600
    assert kept(folder, consumers=consumers) == [500, 600, 700]
    # A consumer keeps what is older, and larger, than is kept.
    assert kept(folder, keep=timedelta(0), max_bytes=0, consumers=consumers) == [500, 600, 700]
    files[1].write_text("0/0")
    assert kept(folder, consumers=consumers) == [500, 600, 700]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "does not exist"),
        ("", "contains '', not an LSN"),
        ("none", "contains 'none', not an LSN"),
        ("0/3E8", "is at 0/3E8, and the log ends at 0/2BC"),
    ],
)
def test_a_consumer_without_a_position(
    folder: Path, tmp_path: Path, text: str | None, error: str
) -> None:
    if text is not None:
        (tmp_path / "position").write_text(text)
    consumer = log.LsnFile(tmp_path / "position")
    with pytest.raises(log.LogError, match=error):
        kept(folder, keep=timedelta(0), consumers=(consumer,))
    assert len(commits(folder)) == SEGMENTS


def test_a_position_is_written(tmp_path: Path) -> None:
    consumer = log.LsnFile(tmp_path / "of" / "mirror" / "lsn")
    for lsn in (0, 1 << 33):
        consumer.write_lsn(lsn)
        assert consumer.read_lsn() == lsn
    (tmp_path / "file").touch()
    with pytest.raises(log.LogError, match=r"cannot write .*file/lsn: "):
        log.LsnFile(tmp_path / "file" / "lsn").write_lsn(1)


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_permissions_of_a_position(tmp_path: Path) -> None:
    """A new file or folder is its owner's, and an existing one keeps its permissions."""
    path = tmp_path / "checkpoint" / "lsn"
    log.LsnFile(path).write_lsn(1)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    path.chmod(0o640)
    path.parent.chmod(0o750)
    log.LsnFile(path).write_lsn(2)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o640, 0o750]


def test_a_position_does_not_follow_links(tmp_path: Path) -> None:
    """Another user who may write to the folder cannot have another file overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("lsn.tmp", "lsn"):
        (folder / name).symlink_to(victim)
    log.LsnFile(folder / "lsn").write_lsn(1 << 33)
    assert victim.read_text() == "theirs"
    assert not (folder / "lsn").is_symlink()


def test_a_position_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = log.LsnFile(tmp_path / "lsn")
    consumer.write_lsn(1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(log.LogError, match=r"cannot write .*lsn: No space left"):
            consumer.write_lsn(2)
    assert [path.name for path in tmp_path.iterdir()] == ["lsn"]
    assert consumer.read_lsn() == 1


@pytest.mark.skipif(sys.platform != "linux", reason="finds the names of descriptors")
def test_a_position_is_on_disk_with_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before its name, and each new folder after what it contains."""
    synced: list[str] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append("file" if path.suffix == ".tmp" else str(path.relative_to(tmp_path)))
        sync(descriptor)

    monkeypatch.setattr("os.fsync", record)
    log.LsnFile(tmp_path / "of" / "mirror" / "lsn").write_lsn(1)
    assert synced == [".", "of", "file", "of/mirror"]


def test_a_consumer_that_has_read_what_came_meanwhile(folder: Path, tmp_path: Path) -> None:
    position = tmp_path / "position"
    position.write_text("0/320")  # 800
    opened = log.Log(folder)
    with log.LogWriter(folder, SOURCE) as writer:
        append(writer, lsn=800, sent="2030-01-08")
    assert log.Retention(consumers=(log.LsnFile(position),)).needless_lsn(opened) == 800


@pytest.mark.parametrize(
    "what",
    [{}, {"keep": -DAY}, {"max_bytes": -1}],
)
def test_invalid_retentions(what: dict[str, Any]) -> None:
    with pytest.raises(pgc.OptionError):
        log.Retention(**what)


def checkpoint(path: Path, offsets: dict[int, list[str]], commits: list[int]) -> Any:
    for folder in ("offsets", "commits"):
        (path / folder).mkdir(parents=True)
    for number, sources in offsets.items():
        text = "\n".join(["v1", '{"batchWatermarkMs":0}', *sources])
        (path / "offsets" / str(number)).write_text(text)
        (path / "offsets" / f".{number}.crc").write_text("")
    for number in commits:
        (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return log.SparkCheckpoint(path)


def offset(lsn: str) -> str:
    return f'{{"ordinal": 5, "lsn": "{lsn}"}}'


def test_a_checkpoint(tmp_path: Path) -> None:
    """The last micro-batch that was committed counts, and the earliest of several sources."""
    found = checkpoint(
        tmp_path,
        {9: [offset("0/12C")], 10: [offset("0/190"), "-", '{"0":7}', offset("0/1F4")]}
        | {11: [offset("0/258"), offset("0/258")]},
        [9, 10],
    )
    assert found.read_lsn() == 400


def test_checkpoints_that_say_nothing(tmp_path: Path) -> None:
    assert checkpoint(tmp_path / "begun", {0: [offset("0/12C")]}, []).read_lsn() == 0
    with pytest.raises(log.LogError, match="not the checkpoint of a streaming query"):
        log.SparkCheckpoint(tmp_path / "other").read_lsn()
    with pytest.raises(log.LogError, match="query that reads no log"):
        checkpoint(tmp_path / "kafka", {0: ['{"topic":{"0":1}}']}, [0]).read_lsn()
    with pytest.raises(log.LogError, match="offsets/0 is not an offset log of version v1"):
        checkpoint(tmp_path / "lost", {}, [0]).read_lsn()
    later = checkpoint(tmp_path / "later", {0: [offset("0/12C")]}, [0])
    (tmp_path / "later" / "offsets" / "0").write_text("v9\n{}\n{}")
    with pytest.raises(log.LogError, match="not an offset log of version v1"):
        later.read_lsn()


def test_it_reads_no_more_than_it_removes(folder: Path) -> None:
    """Of the segments that are kept, those at the boundary are read, not all."""
    with mock.patch.object(Log, "segment", autospec=True, side_effect=Log.segment) as read:
        log.prune(folder, 200)
    numbers = {call.args[1] for call in read.call_args_list}
    assert commits(folder) == [300, 400, 500, 600, 700]
    assert not numbers & {4, 5}
