"""The allocator that Arrow has in commands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from pgwire_codec.cli import main
try:
    main()
finally:
    import pyarrow as pa
    print(pa.default_memory_pool().backend_name, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


@pytest.mark.parametrize(
    ("command", "named", "expected"),
    [
        ("capture", None, "system"),
        ("mirror", None, "system"),
        ("capture", "jemalloc", "jemalloc"),
        ("bench", None, None),
    ],
)
def test_commands_that_run_for_long(command: str, named: str | None, expected: str | None) -> None:
    pa = pytest.importorskip("pyarrow")
    if expected is None:  # Arrow's default, which this process has
        expected = pa.default_memory_pool().backend_name
    if expected not in pa.supported_memory_backends():
        pytest.skip(f"this pyarrow has no {expected}")
    environment = {
        name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"
    }
    if named is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = named
    program = [sys.executable, "-c", PROGRAM, command, "--help"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{expected} {named}"
