"""Allocators in commands."""

from __future__ import annotations

import ctypes
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

#: Prints how many blocks of 4 MiB the C library maps by themselves, after a larger one was freed.
LARGE_BLOCKS = """
import ctypes
from pgwire_codec.cli import main

names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in names.split()]

try:
    main()
finally:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.mallinfo.restype = ctypes.c_void_p, Info
    library.free(ctypes.c_void_p(library.malloc(8 << 20)))
    before = library.mallinfo().hblks
    library.malloc(4 << 20)
    print(library.mallinfo().hblks - before)
"""


@pytest.mark.parametrize(
    ("command", "named", "expected"),
    [
        ("capture", None, "system"),
        ("mirror", None, "system"),
        ("capture", "jemalloc", "jemalloc"),
        ("check", None, None),
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


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo"), reason="not with glibc")
@pytest.mark.parametrize(
    ("command", "named", "expected"),
    [
        ("capture", None, "1"),
        ("mirror", None, "1"),
        ("capture", "33554432", "0"),
        ("check", None, "0"),
    ],
)
def test_large_blocks_are_returned(command: str, named: str | None, expected: str) -> None:
    variables = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    if named is not None:
        environment["MALLOC_MMAP_THRESHOLD_"] = named
    assert last_line(LARGE_BLOCKS, environment, command, "--help") == expected


def last_line(program: str, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]
