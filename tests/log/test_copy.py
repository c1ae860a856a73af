"""A copy has the complete segments of a log, whatever interrupts it, and is read like a log."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from pgwire_codec import log
from pgwire_codec.log.local_store import LocalStore
from tests.support import corpus
from tests.support.build import T, insert, transaction, wire
from tests.support.logs import SOURCE, append, memory, write

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
MESSAGES = wire([*transaction(T, insert(1, "1", "a", None), lsn=100)])


def messages(uri: Path | str, **options: object) -> pa.Table:
    return pa.Table.from_batches(log.Log(uri, **options).messages())  # type: ignore[arg-type]


def test_a_copy_is_read_like_the_log(tmp_path: Path) -> None:
    source = write(CAPTURE, tmp_path / "log", [20, 50], part_bytes=700)
    copied = log.copy(tmp_path / "log", tmp_path / "copy")
    assert copied == [f"{segment.name}.arrow" for segment in source.segments]
    assert messages(tmp_path / "copy") == messages(tmp_path / "log")
    reader = log.Log(tmp_path / "copy")
    assert (reader.begin, reader.end, reader.source) == (source.begin, source.end, source.source)
    assert log.verify(tmp_path / "copy").is_sound
    assert log.copy(tmp_path / "log", tmp_path / "copy") == []


def test_a_copy_follows_a_log_that_grows_and_is_pruned(tmp_path: Path) -> None:
    filesystem = memory()
    with log.LogWriter(tmp_path, SOURCE) as writer:
        assert log.copy(tmp_path, "copy", target_filesystem=filesystem) == []
        assert len(log.Log("copy", filesystem=filesystem)) == 0
        for number in range(4):
            append(writer, wire(transaction(T, insert(1, "1", "a", None), lsn=100 + number)))
            writer.flush()
            before = log.copy(tmp_path, "copy", target_filesystem=filesystem)
            assert before == []  # it still grows
            writer.seal()
            [name] = log.copy(tmp_path, "copy", target_filesystem=filesystem)
            assert name == f"{4 * number:020}.arrow"
            if number:
                log.prune(tmp_path, 100 + number - 1)
    assert log.Log(tmp_path).begin.ordinal > 0
    copy = log.Log("copy", filesystem=filesystem)
    assert (copy.begin, copy.end) == ((0, 0), (16, 103))
    assert log.prune("copy", 102, filesystem=filesystem) == [f"{4 * n:020}.arrow" for n in range(3)]
    assert log.Log("copy", filesystem=filesystem).begin == (12, 102)
    assert log.verify("copy", filesystem=filesystem).is_sound


def test_a_copy_that_was_interrupted_is_continued(tmp_path: Path) -> None:
    write(CAPTURE, tmp_path / "log", [20, 50])
    steps = 0
    write_file = LocalStore.write
    while True:
        left = [steps]

        def interrupted(store: LocalStore, name: str, data: bytes, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError
            write_file(store, name, data)

        copy = tmp_path / f"copy{steps}"
        with mock.patch.object(LocalStore, "write", interrupted):
            try:
                log.copy(tmp_path / "log", copy)
                break
            except RuntimeError:
                pass
        if steps:
            assert log.verify(copy).is_sound
            assert len(log.Log(copy)) == (steps - 1) // 3
        log.copy(tmp_path / "log", copy)
        assert messages(copy) == messages(tmp_path / "log")
        steps += 1
    assert steps == 1 + 3 * 3  # the manifest, and of each segment two files and the manifest again


def test_what_is_refused(tmp_path: Path) -> None:
    write(CAPTURE, tmp_path / "log", [20, 50])
    log.copy(tmp_path / "log", tmp_path / "copy")
    with pytest.raises(log.LogError, match="is a copy of a log — hint: A copy is not written to"):
        log.LogWriter(tmp_path / "copy", SOURCE)
    write(CAPTURE, tmp_path / "other")
    for target in ("copy", "log"):
        with pytest.raises(log.LogError, match="is not a copy of"):
            log.copy(tmp_path / "other", tmp_path / target)
    with pytest.raises(log.LogError, match="is not a log"):
        log.copy(tmp_path / "nowhere", tmp_path / "copy")


def test_a_log_that_was_pruned_beyond_its_copy(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path / "log", SOURCE) as writer:
        for number in range(3):
            append(writer, wire(transaction(lsn=100 + number)))
            writer.seal()
            if not number:
                log.copy(tmp_path / "log", tmp_path / "copy")
        log.prune(tmp_path / "log", 101)
    with pytest.raises(log.LogError, match=r"was pruned: the copy .* ends before ordinal 2, but"):
        log.copy(tmp_path / "log", tmp_path / "copy")


def test_damage_is_not_copied(tmp_path: Path) -> None:
    write(CAPTURE, tmp_path / "log", [20, 50])
    second = sorted((tmp_path / "log").glob("*.arrow"))[1]
    content = bytearray(second.read_bytes())
    content[-20] ^= 1
    second.write_bytes(content)
    with pytest.raises(log.LogError, match=f"{second.name} is damaged"):
        log.copy(tmp_path / "log", tmp_path / "copy")
    assert len(log.Log(tmp_path / "copy")) == 1
