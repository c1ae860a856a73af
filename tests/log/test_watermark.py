"""The watermark is overwritten in place, a sector at a time; earlier releases wrote one line."""

from __future__ import annotations

import errno
import itertools
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from pgwire_codec import log
from pgwire_codec.log.bounds import (
    SECTOR,
    Watermark,
    watermark_from_bytes,
    watermark_to_bytes,
)
from pgwire_codec.log.checked_json import checksum
from pgwire_codec.log.local_store import LocalStore
from tests.support.build import T, insert, transaction, wire
from tests.support.logs import SOURCE, append

MESSAGES = wire(transaction(T, insert(1, "1", "a", None), lsn=100))


def left(directory: Path) -> Path:
    """Write the log of a writer that dies after a flush, and return its watermark."""
    with suppress(RuntimeError), log.LogWriter(directory, SOURCE) as writer:
        append(writer, MESSAGES)
        writer.flush(confirm_lsn=110, received_lsn=120)
        raise RuntimeError
    return directory / "watermark.json"


def test_flushes_overwrite_two_sectors_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "watermark.json"
    with log.LogWriter(tmp_path, SOURCE) as writer:
        inode, before = path.stat().st_ino, path.read_bytes()
        for lsn in range(3):
            append(writer, wire(transaction(lsn=100 + lsn)))
            writer.flush(confirm_lsn=100 + lsn)
            after = path.read_bytes()
            assert path.stat().st_ino == inode
            assert len(after) == len(before)
            changed = [
                n for n in range(0, len(after), SECTOR) if after[n:][:SECTOR] != before[n:][:SECTOR]
            ]
            assert changed == [(lsn + 1) % 2 * SECTOR]
            assert log.Log(tmp_path).confirm_lsn == 100 + lsn
            before = after
    upgraded = replace(SOURCE, server_version=190000)
    with log.LogWriter(tmp_path, upgraded) as writer:
        assert writer.confirm_lsn == 102
        assert log.Log(tmp_path).source == SOURCE  # until the log has something of the new one
        writer.flush(confirm_lsn=103)
        assert log.Log(tmp_path).source == upgraded


def test_the_largest_positions_fit_into_a_sector() -> None:
    largest = Watermark(
        "f" * 32, SOURCE, "9" * 20, 2**63 - 1, 2**63 - 1, "f" * 16, 2**63 - 1,
        2**64 - 1, 2**64 - 1, 2**64 - 1, "2026-11-22T19:03:44.123+00:00",
    )  # fmt: skip
    data = watermark_to_bytes(largest)
    assert data[SECTOR - 1 : SECTOR] == b"\n"
    assert len(data.splitlines()) == 3
    assert watermark_from_bytes(data, "file") == largest


def test_every_byte_is_checked(tmp_path: Path) -> None:
    data = left(tmp_path).read_bytes()
    for place in range(len(data)):
        wrong = bytearray(data)
        wrong[place] ^= 1
        with pytest.raises(log.LogError, match=r"^file is damaged: its checksum does not match"):
            watermark_from_bytes(bytes(wrong), "file")
    for size in range(len(data)):
        with pytest.raises(log.LogError, match=r"^file is damaged: its checksum does not match"):
            watermark_from_bytes(data[:size], "file")


def test_the_single_line_of_an_earlier_release(tmp_path: Path) -> None:
    path = left(tmp_path)
    fields = {}
    for line in reversed(path.read_bytes().splitlines()[1:]):
        fields |= json.loads(line)
    del fields["checksum"], fields["number"]
    body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    path.write_bytes(b'%s,"checksum":"%s"}\n' % (body, checksum(body).encode()))
    reader = log.Log(tmp_path)
    assert (reader.end.ordinal, reader.confirm_lsn) == (len(MESSAGES), 110)
    assert reader.source == SOURCE
    with log.LogWriter(tmp_path, SOURCE) as writer:
        assert (writer.confirm_lsn, writer.received_lsn) == (110, 120)
        append(writer, wire(transaction(lsn=200)))
        writer.flush(confirm_lsn=210)
        assert log.Log(tmp_path).confirm_lsn == 210
    assert log.verify(tmp_path).is_sound


def test_a_watermark_that_is_overwritten_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left(tmp_path)
    old = path.read_bytes()
    with suppress(RuntimeError), log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire(transaction(lsn=200)))
        writer.flush(confirm_lsn=210)
        raise RuntimeError
    new = path.read_bytes()
    read = LocalStore.read
    different = [place for place in range(2 * SECTOR) if old[place] != new[place]]
    cut = different[len(different) // 2]
    torn = itertools.chain([old[:cut] + new[cut:], new[:cut] + old[cut:]], itertools.repeat(new))

    def read_torn(store: LocalStore, name: str) -> bytes | None:
        return next(torn) if name == path.name else read(store, name)

    monkeypatch.setattr(LocalStore, "read", read_torn)
    assert log.Log(tmp_path).confirm_lsn == 210


@pytest.mark.parametrize("last", [100, 0])
def test_a_write_that_the_system_cuts_short(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is written, too; if that is impossible, the flush does not succeed."""
    write, sizes = os.write, iter([100, 1, last])

    def write_some(descriptor: int, data: bytes) -> int:
        count = next(sizes, SECTOR)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, memoryview(data)[:count])

    with suppress(RuntimeError), log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, MESSAGES)
        monkeypatch.setattr(os, "write", write_some)
        if last:
            writer.flush(confirm_lsn=110)
        else:
            with pytest.raises(log.LogError, match=os.strerror(errno.ENOSPC)):
                writer.flush(confirm_lsn=110)
        monkeypatch.undo()
        raise RuntimeError
    if last:
        assert log.Log(tmp_path).confirm_lsn == 110


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_torn_sector(share: float, tmp_path: Path) -> None:
    """The flush that was cut short was never confirmed: the repaired log ends with the one before.

    That a sector was confirmed before it was damaged cannot be excluded, so that a person decides.
    """
    writer = log.LogWriter(tmp_path, SOURCE)
    path = tmp_path / "watermark.json"
    states = []
    for lsn in (100, 200, 300):
        append(writer, wire(transaction(T, insert(1, "1", "a", None), lsn=lsn)))
        writer.flush(confirm_lsn=lsn + 10)
        states.append(path.read_bytes())
    files = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.name != "lock"}
    writer.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in files.items():
        (copy / name).write_bytes(content)
    different = [place for place in range(2 * SECTOR) if states[2][place] != states[1][place]]
    cut = different[int(share * len(different))]
    torn = states[2][:cut] + states[1][cut:]
    (copy / "watermark.json").write_bytes(torn)
    for read in (log.Log, lambda path: log.LogWriter(path, SOURCE)):
        with pytest.raises(log.LogError, match="is damaged") as raised:
            read(copy)
        assert raised.value.hint is not None
        assert "log verify --repair" in raised.value.hint
    assert not log.verify(copy).is_sound
    report = log.verify(copy, repair=True)
    assert (report.is_sound, report.repaired) == (True, ("watermark.json",))
    reader = log.Log(copy)
    assert (reader.confirm_lsn, reader.delivered_lsn) == (210, 200)
    with log.LogWriter(copy, SOURCE) as again:
        append(again, wire(transaction(T, insert(1, "1", "a", None), lsn=300)))
        again.flush(confirm_lsn=310)
    assert log.verify(copy).is_sound


def test_a_write_that_fails_leaves_the_other_sector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one overwrites the same sector."""
    store = LocalStore(tmp_path)
    store.write("file", b"a" * 2 * SECTOR)
    store.overwrite("file", b"b" * SECTOR)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", mock.Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        with pytest.raises(log.LogError, match="Input/output error"):
            store.overwrite("file", b"c" * SECTOR)
    store.overwrite("file", b"d" * SECTOR)
    assert (tmp_path / "file").read_bytes() == b"d" * SECTOR + b"b" * SECTOR
