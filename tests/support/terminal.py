"""Output of the command on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


def shown(*arguments: str, columns: int = 400) -> tuple[str, int]:
    """Run ``pgwire-codec`` on a terminal; its output, escapes and all, and its exit status."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from pgwire_codec.cli import main; main()", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "60", "TERM": "xterm-256color"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    ) as process:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:  # how the other side's end looks on Linux
            pass
        finally:
            os.close(ours)
    return b"".join(pieces).decode("utf-8", "replace"), process.returncode
