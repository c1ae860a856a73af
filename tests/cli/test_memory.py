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

#: Prints Arrow's own default.
ARROW_ALONE = "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"


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
    environment = {
        name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"
    }
    if expected is None:
        expected = last_line(ARROW_ALONE, environment)
    if expected not in pa.supported_memory_backends():
        pytest.skip(f"this pyarrow has no {expected}")
    if named is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = named
    assert last_line(PROGRAM, environment, command, "--help") == f"{expected} {named}"


def last_line(program: str, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]
