"""Processes of the tests, with those that they have started."""

from __future__ import annotations

from contextlib import suppress

import psutil


def kill_tree(pid: int) -> None:
    """Kill a process and all that it has started, in whatever group or session they are."""
    try:
        parent = psutil.Process(pid)
        tree = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
