"""Copies of the files of a log, in the order of docs/howto/log-files.md."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

_FIRST_AND_LAST = ("manifest.json", "watermark.json")


def copy_log(source: Path, target: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Copy a log; ``meanwhile`` is called after each file."""
    target.mkdir(exist_ok=True)
    bounds = {name: (source / name).read_bytes() for name in _FIRST_AND_LAST}
    meanwhile()
    for path in sorted(each for each in source.glob("*.*") if each.name not in bounds):
        copied = target / path.name
        if not copied.exists() or copied.stat().st_mtime_ns < path.stat().st_mtime_ns:
            shutil.copy2(path, copied)
        meanwhile()
    for name, data in bounds.items():
        (target / name).write_bytes(data)
        meanwhile()
