"""A command of ``pgwire-codec run``: a process that ends when its supervisor has ended.

Its arguments are the first line of its standard input, in JSON: other users of the machine see
those of the command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from pgwire_codec.cli import main as run_command


def main() -> None:
    """Run the command that the first argument names."""
    arguments = json.loads(sys.stdin.buffer.readline())
    sys.argv = ["pgwire-codec", sys.argv[1], *arguments]
    threading.Thread(target=_end_with_supervisor, name="supervisor", daemon=True).start()
    run_command()


def _end_with_supervisor() -> None:
    """End this process as SIGTERM does, once nobody can write to its standard input."""
    while os.read(0, 1):
        pass
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # nobody reads what the command prints
    os.dup2(nowhere, 2)
    os.kill(os.getpid(), signal.SIGTERM)
