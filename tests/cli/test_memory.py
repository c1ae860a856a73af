"""The allocator that commands choose for Arrow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from pgwire_codec.cli.memory import use_c_allocator
use_c_allocator()
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize(("named", "expected"), [(None, "system"), ("jemalloc", "jemalloc")])
def test_the_environment_decides(named: str | None, expected: str) -> None:
    pa = pytest.importorskip("pyarrow")
    if expected not in pa.supported_memory_backends():
        pytest.skip(f"this pyarrow has no {expected}")
    environment = os.environ | ({} if named is None else {"ARROW_DEFAULT_MEMORY_POOL": named})
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
