"""A writer dies at any step, and the disk keeps what it likes of what was not synced: what was
flushed is there, what was not is not to be seen, and another writer goes on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log.bounds import SECTOR
from pgwire_codec.log.local_store import LocalStore
from tests.support.build import T, insert, transaction, wire
from tests.support.examples import examples
from tests.support.logs import SOURCE, append, flushed_carry


class Crash(BaseException):
    """The machine stops here."""


class Disk:
    """Stops the machine at the n-th thing that is asked of the disk, before or after it is done.

    It knows how much of each file is synced. Renaming a file that is not is an error of the writer.
    """

    def __init__(self) -> None:
        self._left = -1
        self._synced: dict[int, int] = {}  # by inode
        self.overwritten: dict[Path, bytes] = {}  # sectors of which one is not synced

    @contextmanager
    def stops(self, at: int = -1) -> Iterator[None]:
        self._left = at
        with (
            mock.patch("os.fsync", self._step(self._sync)),
            mock.patch("os.fdatasync", self._step(self._sync)),
            mock.patch.object(LocalStore, "overwrite", self._overwrite(LocalStore.overwrite)),
            mock.patch.object(Path, "replace", self._step(self._replace(Path.replace))),
            mock.patch.object(Path, "unlink", self._step(self.unlink(Path.unlink))),
        ):
            yield

    def keeps(self, path: Path) -> int:
        return self._synced.get(path.stat().st_ino, 0)

    def unlink(self, unlink: Callable[..., Any]) -> Callable[..., Any]:
        def forget(path: Path) -> None:
            self._synced.pop(path.stat().st_ino, None)  # another file may get the number
            unlink(path)

        return forget

    def _step(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            self._tick()
            result = do(*arguments, **options)
            self._tick()
            return result

        return step

    def _tick(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise Crash

    def _sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._synced[found.st_ino] = found.st_size
        for path in [*self.overwritten]:
            if path.stat().st_ino == found.st_ino:
                del self.overwritten[path]

    def _overwrite(self, overwrite: Callable[..., Any]) -> Callable[..., Any]:
        def remember(store: LocalStore, name: str, data: bytes) -> None:
            path = Path(store.name, name)
            assert len(data) == SECTOR
            assert self.keeps(path) == path.stat().st_size  # a whole file, which keeps its length
            self.overwritten[path] = path.read_bytes()[: 2 * SECTOR]
            overwrite(store, name, data)
            assert path not in self.overwritten

        return remember

    def _replace(self, replace: Callable[..., Any]) -> Callable[..., Any]:
        def check(path: Path, target: Path) -> Any:
            assert self.keeps(path) == path.stat().st_size
            if target.exists():
                self._synced.pop(target.stat().st_ino, None)
            return replace(path, target)

        return check


class History:
    """Calls of a writer, and the positions that it made durable."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []  # appended
        self.promised = 0  # of them, flushed
        self.confirm_lsn = 0
        self.asked_lsn = 0  # of a flush that did not return

    def write(self, directory: Path, data: st.DataObject) -> None:
        sizes = {"part_bytes": data.draw(st.sampled_from([1, 200, 5000]))}
        sizes["segment_bytes"] = data.draw(st.sampled_from([1, 4000, 1 << 20]))
        with log.LogWriter(directory, SOURCE, **sizes) as writer:
            assert writer.end_ordinal == len(self.messages) == self.promised
            for step in data.draw(st.lists(st.sampled_from("aaaafffsn"), max_size=12)):
                if step == "a":
                    self._append(writer, data.draw(st.integers(1, 3)))
                    continue
                if step == "f":
                    self.asked_lsn += 10
                    writer.flush(confirm_lsn=self.asked_lsn)
                    self.confirm_lsn = self.asked_lsn
                elif step == "s":
                    writer.seal()
                else:
                    writer.new_session()
                self.promised = len(self.messages)
        self.promised = len(self.messages)

    def _append(self, writer: log.LogWriter, transactions: int) -> None:
        for _ in range(transactions):
            lsn = 100 + 100 * len(self.messages)
            new = wire(transaction(T, insert(1, str(lsn), "v" * (lsn % 97), None), lsn=lsn))
            cut = lsn % (len(new) + 1)
            for piece in (new[:cut], new[cut:]):
                self.messages += piece
                append(writer, piece)

    def check(self, directory: Path) -> None:
        """All that was promised can be read, in its order; from here on it is what was written."""
        if not (directory / "watermark.json").exists():
            assert self.promised == 0
            with pytest.raises(log.LogError, match="is not a log"):
                log.Log(directory)
            self.messages = []
            return
        reader = log.Log(directory)
        records = list(reader.messages())
        found = [each for one in records for each in one.column("data").to_pylist()]
        ordinals = [each for one in records for each in one.column("ordinal").to_pylist()]
        assert ordinals == list(range(len(found)))
        assert reader.end.ordinal == len(found) >= self.promised
        assert found == self.messages[: len(found)]
        assert reader.confirm_lsn in (self.confirm_lsn, self.asked_lsn)
        serial = pgc.Decoder().decode(found)
        assert reader.delivered_lsn == max(serial.transactions.commit_lsn.tolist(), default=0)
        assert sum(map(len, reader.read())) == sum(map(len, serial))
        self.messages, self.promised = found, len(found)
        self.confirm_lsn = self.asked_lsn = reader.confirm_lsn


def lose(directory: Path, disk: Disk, data: st.DataObject) -> None:
    """Do to files what a crash does: what was not synced is there, or is not, or is garbage."""
    for path, sector in disk.overwritten.items():
        if data.draw(st.booleans()):
            with path.open("r+b") as file:
                file.write(sector)
    disk.overwritten.clear()
    for path in sorted(directory.iterdir()):
        size, kept = path.stat().st_size, disk.keeps(path)
        if path.name.endswith(".tmp"):
            path.write_bytes(data.draw(st.binary(max_size=40)))
        elif path.suffix == ".arrow" and kept == 0 and data.draw(st.booleans()):
            disk.unlink(Path.unlink)(path)
        elif path.suffix == ".arrow" and not path.with_suffix(".json").exists():
            with path.open("r+b") as file:
                file.truncate(data.draw(st.integers(min(kept, size), size)))
                file.seek(0, os.SEEK_END)
                file.write(data.draw(st.binary(max_size=20)))
        elif path.suffix == ".arrow":
            assert kept == size  # sealed: all of it is safe


@pytest.mark.slow
@examples(30, 200)
def test_a_crash_at_any_step(examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        history = History()
        with tempfile.TemporaryDirectory() as name:
            directory, disk = Path(name) / "log", Disk()
            for _ in range(data.draw(st.integers(1, 3))):
                with disk.stops(data.draw(st.integers(0, 80))), suppress(Crash):
                    history.write(directory, data)
                if directory.exists():
                    lose(directory, disk, data)
                history.check(directory)
            with disk.stops():
                history.write(directory, data)
            history.check(directory)
            whole = {"lock", "manifest.json", "watermark.json"}
            names = {path.name for path in directory.iterdir()} - whole
            assert {each.removesuffix(".json") for each in names if each.endswith(".json")} == {
                each.removesuffix(".arrow") for each in names if each.endswith(".arrow")
            }
            assert not [each for each in names if each.endswith(".tmp")]

    check()


MESSAGES = wire([*transaction(T, insert(1, "1", "a", None), lsn=100), *transaction(lsn=200)])


def left(directory: Path) -> bytes:
    """Write the log of a writer that dies: two flushed messages, then bytes of others."""
    with suppress(RuntimeError), log.LogWriter(directory, SOURCE, part_bytes=1) as writer:
        append(writer, MESSAGES[:2])
        writer.flush(confirm_lsn=7, received_lsn=9)
        append(writer, MESSAGES[2:])
        raise RuntimeError
    return (directory / f"{0:020}.arrow").read_bytes()


def data_of(directory: Path) -> list[bytes]:
    found = log.Log(directory).messages()
    return [each for records in found for each in records.column("data").to_pylist()]


def reopen(directory: Path) -> None:
    with log.LogWriter(directory, SOURCE) as writer:
        assert (writer.confirm_lsn, writer.received_lsn) == (7, 9)
        assert writer.end_ordinal == 2
        assert flushed_carry(directory).plain is not None  # the transaction that broke off
        append(writer, MESSAGES)
        writer.flush()
        assert flushed_carry(directory).delivered_lsn == writer.delivered_lsn == 200
    assert data_of(directory) == MESSAGES[:2] + MESSAGES
    changes = list(log.Log(directory).read())
    assert [batch.new["v"].to_pylist() for batch in changes] == [["a"]]


def test_what_was_not_flushed_is_not_read_and_goes(tmp_path: Path) -> None:
    left(tmp_path)
    assert data_of(tmp_path) == MESSAGES[:2]
    reopen(tmp_path)


def test_a_stream_that_was_ended_and_has_no_sidecar(tmp_path: Path) -> None:
    size = len(left(tmp_path))
    with (tmp_path / f"{0:020}.arrow").open("ab") as file:
        file.write(b"\xff\xff\xff\xff\0\0\0\0")
    assert (tmp_path / f"{0:020}.arrow").stat().st_size == size + 8
    reopen(tmp_path)


def test_a_sidecar_that_the_watermark_does_not_know_of(tmp_path: Path) -> None:
    left(tmp_path)
    watermark = (tmp_path / "watermark.json").read_bytes()
    with log.LogWriter(tmp_path, SOURCE):
        pass
    (tmp_path / "watermark.json").write_bytes(watermark)
    assert data_of(tmp_path) == MESSAGES[:2]
    reopen(tmp_path)


def test_files_that_nobody_acknowledged(tmp_path: Path) -> None:
    left(tmp_path)
    (tmp_path / f"watermark.json.{0:032x}.tmp").write_bytes(b"{")
    (tmp_path / "other.tmp").write_bytes(b"of somebody else")
    assert data_of(tmp_path) == MESSAGES[:2]
    reopen(tmp_path)
    assert not (tmp_path / f"watermark.json.{0:032x}.tmp").exists()
    end = log.Log(tmp_path).end.ordinal
    (tmp_path / f"{end:020}.arrow").write_bytes(b"half a segment")  # the next one, just begun
    assert data_of(tmp_path) == MESSAGES[:2] + MESSAGES
    log.LogWriter(tmp_path, SOURCE).close()
    assert not (tmp_path / f"{end:020}.arrow").exists()
    assert (tmp_path / "other.tmp").exists()
    (tmp_path / f"{end + 9:020}.arrow").write_bytes(b"which no writer left so")
    with pytest.raises(log.LogError, match=f"{end + 9:020}.json is missing"):
        log.LogWriter(tmp_path, SOURCE)
    assert (tmp_path / f"{end + 9:020}.arrow").exists()


def refused(directory: Path, words: str) -> None:
    """Neither read nor written, and nothing is changed."""
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}
    with pytest.raises(log.LogError, match=words):
        list(log.Log(directory).messages())
    with pytest.raises(log.LogError, match=words):
        log.LogWriter(directory, SOURCE)
    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}
    assert after == before


def test_a_file_shorter_than_what_was_acknowledged(tmp_path: Path) -> None:
    left(tmp_path)
    os.truncate(tmp_path / f"{0:020}.arrow", 700)
    refused(tmp_path, r"has 700 bytes, and \d+ of it belong to the log — hint: Restore")


def test_damage_before_the_watermark(tmp_path: Path) -> None:
    content = bytearray(left(tmp_path))
    start = log.Log(tmp_path).segments[0].parts[0].extent.offset
    content[start : start + 100] = bytes(100)
    (tmp_path / f"{0:020}.arrow").write_bytes(content)
    refused(tmp_path, f"{0:020}.arrow is damaged: its first .* do not have the checksum")


def test_a_growing_segment_that_is_missing(tmp_path: Path) -> None:
    left(tmp_path)
    (tmp_path / f"{0:020}.arrow").unlink()
    refused(tmp_path, f"{0:020}.arrow is missing")


def test_a_damaged_watermark(tmp_path: Path) -> None:
    left(tmp_path)
    (tmp_path / "watermark.json").write_bytes(b"{}")
    refused(tmp_path, r"watermark.json is damaged")


def three_segments(directory: Path) -> list[Path]:
    with log.LogWriter(directory, SOURCE) as writer:
        for _ in range(3):
            append(writer, MESSAGES)
            writer.seal()
    return sorted(directory.glob("*.arrow"))


def test_a_missing_sidecar_between_others(tmp_path: Path) -> None:
    _, second, _ = three_segments(tmp_path)
    second.with_suffix(".json").unlink()
    with pytest.raises(log.LogError, match=f"{second.stem}.json is missing"):
        list(log.Log(tmp_path).messages())
    with pytest.raises(log.LogError, match=f"{second.stem}.json is missing"):
        log.LogWriter(tmp_path, SOURCE)
    assert second.exists()


def test_a_missing_watermark(tmp_path: Path) -> None:
    three_segments(tmp_path)
    (tmp_path / "watermark.json").unlink()
    refused(tmp_path, "watermark.json is missing")
    left(tmp_path / "growing")
    (tmp_path / "growing" / "watermark.json").unlink()
    refused(tmp_path / "growing", "watermark.json is missing")
