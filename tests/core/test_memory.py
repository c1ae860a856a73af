"""The compiled core when it runs out of memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does"),
    pytest.mark.skipif(
        "asan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer aborts without memory"
    ),
]
pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")

#: Calls under a limit of memory that rises from what the process has, so that each large allocation
#: fails at some limit. A call raises MemoryError, or returns what it returns without a limit.
STARVE = """
    import resource, sys

    import numpy as np

    import pgwire_codec as pgc
    from pgwire_codec._core import implementation as core
    from pgwire_codec.codec.message_array import Messages
    from pgwire_codec.types import TypeOptions, column_type
    from tests.support.build import insert
    from tests.support.differential import plain

    ROWS = 60_000
    STEP = 128 << 10
    TYPES = {
        "unchanged": (25, -1, ["x", ...]),
        "null": (25, -1, [None, "x"]),
        "text": (25, -1, ["a text of some length, \\u00e9", "x" * 50]),
        "bytea": (17, -1, ["\\\\x0011223344", b"1234567"]),
        "int4": (23, -1, ["12", b"\\0\\0\\0\\1"]),
        "numeric": (1700, (20 << 16 | 2) + 4, ["12.50", "NaN"]),
        "date": (1082, -1, ["2024-02-29", "infinity"]),
        "array": (1009, -1, ['{a,"b \\\\"c",NULL}', "{}"]),
    }

    def limit(more):
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        soft = resource.RLIM_INFINITY if more is None else size + more
        resource.setrlimit(resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))

    held = []

    def starve(call):
        failures, more, found = 0, 0, None
        held.append([call() for _ in range(30)])  # what the pool keeps: it has to ask for more
        while found is None:
            limit(more)
            try:
                found = call()
            except MemoryError:
                failures += 1
                more += STEP
            finally:
                limit(None)
        assert plain(found) == plain(held[-1][0])
        return failures

    oid, modifier, values = TYPES[sys.argv[1]]
    several = [pgc.encode_message(insert(1, value)) for value in values] * (ROWS // len(values))
    offsets = np.concatenate([[0], np.cumsum([len(message) for message in several])])
    messages = Messages(np.frombuffer(b"".join(several), np.uint8), offsets.astype(np.int64))
    place = (messages, np.arange(len(several)), offsets[:-1] + 5, 1)
    wanted = [(0, column_type(oid, modifier, TypeOptions()))]
    small = [bytes(100) for _ in range(20_000)][::2]  # leaves space for small objects
    assert starve(lambda: core.scan(messages)) > 0
    table = core.scan(messages)
    assert starve(lambda: core.runs(messages, table)) > 1
    found = core.runs(messages, table)
    pieces = np.array([[0], [len(several)], [0], [0]])
    batch = np.zeros(1, np.int32)
    assert starve(lambda: core.group_rows(found.rows, found.group, batch, [pieces])) > 2
    assert starve(lambda: core.tuples(*place)) > 3
    starved = starve(lambda: core.decode_columns(*place, "new", wanted, unrepresentable="null"))
    assert starved > 1, starved
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", ["unchanged", "null", "text", "bytea", "int4", "numeric", "date", "array"]
)
def test_an_allocation_that_fails_is_a_memory_error(values: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(STARVE), values],
        # Large blocks come from the system, each by itself.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(64 << 10)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
