"""Threads that read a log's JSON at once, in a process that has read none."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading
import msgspec
from pgwire_codec.log import sidecar, state_json
from pgwire_codec.log.checked_json import decoder
sys.setswitchinterval(1e-6)
kinds = [each for module in (state_json, sidecar) for each in vars(module).values()
         if isinstance(each, type) and issubclass(each, msgspec.Struct)]
together = threading.Barrier(8)
def read():
    together.wait()
    for kind in kinds:
        try:
            decoder(kind).decode(b'{"header": {}, "head": {}}')
        except msgspec.DecodeError:
            pass
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("times", [3, pytest.param(12, marks=pytest.mark.thorough)])
def test_the_process_goes_on(times: int) -> None:
    """Each of these ended by a segmentation fault in one of four, with a decoder a thread."""
    for _ in range(times):
        assert subprocess.run([sys.executable, "-c", SCRIPT]).returncode == 0
