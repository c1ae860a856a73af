"""Files are written again between turns, when a table has many small or worn ones."""

from __future__ import annotations

import errno
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake import rewriting
from pgwire_codec.lake.tables import delta, delta_vectors
from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, relation

deltalake = pytest.importorskip("deltalake")

V = column("v")
TABLE = "public.t1"


def made(folder: Path) -> tuple[MirrorOf, Writer]:
    """A mirror of a table of nine rows, each with a file of its own."""
    writer, mirror = Writer(folder), MirrorOf(None, folder, "local")
    for key in range(1, 10):
        turn(mirror, writer, build.insert(1, str(key), "a"))
    return mirror, writer


def turn(mirror: MirrorOf, writer: Writer, *changes: Any) -> None:
    writer.commit(relation(1, ID, V), *changes)
    writer.flush()
    mirror.run()


def sizes(mirror: MirrorOf) -> list[tuple[int, int]]:
    """Rows of each file, and how many of them are deleted."""
    (found,) = mirror.lake.glob("public/*")
    target = mirror.opened._open(str(found))
    return sorted((file.rows or 0, file.deleted) for file in target.files.files)


def check(mirror: MirrorOf) -> None:
    assert mirror.rows(TABLE) == mirror.expected(TABLE)


def test_small_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, writer = made(tmp_path)
    assert sizes(mirror) == [(1, 0)] * 9
    monkeypatch.setattr(rewriting, "_SMALL_FILES", 9)
    turn(mirror, writer, build.update(1, build.row("3", "b")))
    assert sizes(mirror) == [(1, 0)] * 9, "the file of the old row went with it"
    turn(mirror, writer, build.insert(1, "10", "a"))
    assert sizes(mirror) == [(10, 0)]
    check(mirror)


def test_worn_files_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, writer = made(tmp_path)
    monkeypatch.setattr(rewriting, "_SMALL_FILES", 8)
    turn(mirror, writer, build.insert(1, "10", "a"))
    monkeypatch.setattr(rewriting, "_SMALL_BYTES", 0)
    turn(mirror, writer, *(build.update(1, build.row(str(key), "b")) for key in (1, 2)))
    assert sizes(mirror) == [(2, 0), (10, 2)]
    turn(mirror, writer, build.update(1, build.row("3", "b")))
    assert sizes(mirror) == [(1, 0), (2, 0), (7, 0)]
    check(mirror)


def test_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The table remains as it is; a full disk ends the mirror."""
    mirror, writer = made(tmp_path)
    monkeypatch.setattr(rewriting, "_SMALL_FILES", 8)
    errors = [ValueError("not a Parquet file"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def failing(*_: Any) -> Any:
        raise errors.pop(0)

    with monkeypatch.context() as context, caplog.at_level(logging.WARNING):
        context.setattr(rewriting, "write_data_files", failing)
        turn(mirror, writer, build.insert(1, "10", "a"))
        assert "t1 are not written again: " in caplog.text
        assert "ValueError: not a Parquet file" in caplog.text
        with pytest.raises(PgwireError, match=r"cannot write .*t1: No space left on device"):
            turn(mirror, writer, build.insert(1, "11", "a"))
    assert sizes(mirror) == [(1, 0)] * 11
    check(mirror)
    turn(mirror, writer, build.insert(1, "12", "a"))
    assert sizes(mirror) == [(12, 0)]
    check(mirror)


@pytest.mark.thorough
def test_files_that_were_replaced_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time for which old versions can be read; so are commits and vectors."""
    monkeypatch.setattr(rewriting, "_SMALL_FILES", 4)
    monkeypatch.setattr(delta, "_CHECKPOINT_COMMITS", 3)
    monkeypatch.setattr(delta, "_EXPIRY_SECONDS", 0.0)
    monkeypatch.setattr(delta_vectors, "_INLINE_BYTES", 0)
    writer, local = Writer(tmp_path), MirrorOf(None, tmp_path, "local")
    folder = local.lake / "public" / "t1"
    counts = []
    for number in range(30):
        key = build.row(str(number // 2), str(number))
        table = relation(1, ID, column("v"))
        change = build.update(1, key) if number % 2 else build.insert(1, str(number // 2), "0")
        writer.commit(table, change)
        writer.flush()
        local.run(keep=1)
        if number % 10 == 9:
            time.sleep(1.1)
            counts.append(len([*folder.rglob("*")]))
    assert max(counts) < 45, "of some 100"
    assert local.rows("public.t1") == local.expected("public.t1")
    assert deltalake.DeltaTable(str(folder)).version() > 30
