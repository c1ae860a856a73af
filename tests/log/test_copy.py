"""A log whose files are copied while it is written is a log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwire_codec import log
from tests.support.build import T, insert, transaction, wire
from tests.support.log_copies import copy_log
from tests.support.logs import SOURCE, append


def ids(folder: Path) -> list[int]:
    batches = list(log.Log(folder).read("public.t"))
    return [value for batch in batches for value in batch.new["id"].to_pylist()]


def grow(writer: log.LogWriter, count: int, seal_every: int) -> Iterator[None]:
    """Write a row in each step, and flush or seal it."""
    for number in range(1, count + 1):
        append(writer, wire(transaction(T, insert(1, str(number), "a", None), lsn=10 * number)))
        if number % seal_every:
            writer.flush()
        else:
            writer.seal()
        yield


@pytest.mark.parametrize("seal_every", [1, 2, 3, 100])
def test_a_copy_of_a_growing_log(
    seal_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all that was durable when the copy began, at least, and is continued."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    source, target = tmp_path / "log", tmp_path / "copy"
    with log.LogWriter(source, SOURCE) as writer:
        steps = grow(writer, 24, seal_every)
        next(steps)
        for _ in range(3):
            began = ids(source)
            copy_log(source, target, lambda: next(steps, None))
            assert log.verify(target).damage == ()
            copied = ids(target)
            assert copied[: len(began)] == began
            assert copied == ids(source)[: len(copied)]


def test_a_copy_can_be_written(tmp_path: Path) -> None:
    """In place of the log, if that is lost."""
    with log.LogWriter(tmp_path / "log", SOURCE) as writer:
        list(grow(writer, 5, 3))
        copy_log(tmp_path / "log", tmp_path / "copy")
    with log.LogWriter(tmp_path / "copy", SOURCE) as writer:
        assert writer.confirm_lsn == log.Log(tmp_path / "log").confirm_lsn
        append(writer, wire(transaction(T, insert(1, "6", "a", None), lsn=60)))
    assert ids(tmp_path / "copy") == [1, 2, 3, 4, 5, 6]
    assert log.verify(tmp_path / "copy").is_sound


def test_a_file_that_was_pruned_meanwhile_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "log", tmp_path / "copy"
    with log.LogWriter(source, SOURCE) as writer:
        list(grow(writer, 4, 1))
        pruned = iter([lambda: log.prune(source, 20)])
        copy_log(source, target, lambda: next(pruned, lambda: None)())
    with pytest.raises(log.LogError, match=r"0\.arrow is missing"):
        log.Log(target)
    assert not log.verify(target).is_sound
