"""Folders of tables on a local disk."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from pgwire_codec.lake import folder
from pgwire_codec.lake.folder import LocalFolder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(sys.platform == "win32", reason="has no modes")
def test_modes(tmp_path: Path) -> None:
    """The umask decides, and a folder that exists keeps its mode."""
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(0o2770)
    before = os.umask(0o027)
    try:
        table = LocalFolder(lake / "public" / "t")
        table.create("log/0", b"a")
        with table.writer("b") as file:
            file.write(b"b")
        table.move("b", "moved/b")
    finally:
        os.umask(before)
    assert mode(lake) == 0o2770
    new = lake / "public" / "t"
    folders = (lake / "public", new, new / "log", new / "moved")
    assert {mode(path) & 0o777 for path in folders} == {0o750}
    assert {mode(path) for path in (new / "log" / "0", new / "moved" / "b")} == {0o640}


def test_folders_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to those that existed, which a process that was killed may have created."""
    synced: list[Path] = []
    monkeypatch.setattr(folder, "_sync_directory", synced.append)
    monkeypatch.setattr(folder, "_DURABLE", set())
    (tmp_path / "a").mkdir()
    LocalFolder(tmp_path / "a" / "b" / "t").create("log/0", b"")
    parents = [tmp_path / name for name in ("", "a", "a/b", "a/b/t")]
    assert [path for path in synced if path in parents] == parents
    assert synced[-1] == tmp_path / "a" / "b" / "t" / "log"
    synced.clear()
    LocalFolder(tmp_path / "a" / "b" / "t").create("log/1", b"")
    assert synced == [tmp_path / "a" / "b" / "t" / "log"]
