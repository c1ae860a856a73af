"""Memory that the core keeps for the next batch is taken again, or freed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(
        "asan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps what is freed"
    ),
]
pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")

#: Functions of the programs below.
COMMON = """
import time
import pgwire_codec as pgc
from tests.support.build import T, insert, transaction, wire

def megabytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) / 1024

def batch_of(rows, width):
    rows = [insert(1, str(number), "a" * width, None) for number in range(rows)]
    [batch] = pgc.Decoder().decode(wire(transaction(T, *rows, lsn=100)))
    return batch
"""

#: Decodes the same long texts again and again, and prints by how many MiB memory grew meanwhile.
AGAIN = """
batch = batch_of(12_000, 50)
for count in (20, 200):
    before = megabytes()
    for _ in range(count):
        batch.to_arrow()
print(megabytes() - before)
"""

#: Decodes one column of 48 MB, and others until memory shrank or 30 s have passed. Prints by how
#: many MiB it had shrunk at once, and by how many at the end.
LATER = """
large, other = batch_of(1_200, 40_000), batch_of(ROWS, 50)
large.to_arrow()
before = megabytes()
other.to_arrow()
soon = megabytes()
latest = time.monotonic() + 30
while before - megabytes() <= 40 and time.monotonic() < latest:
    time.sleep(0.2)
    other.to_arrow()
print(before - soon, before - megabytes())
"""


def test_a_column_of_texts_takes_what_the_one_before_had() -> None:
    [grown] = printed(start(AGAIN))
    assert grown < 16  # 200 times 0.6 MB otherwise


@pytest.mark.slow
def test_what_is_not_taken_again_is_freed() -> None:
    """When blocks that are large enough to be kept are freed, and when only small ones are.

    Blocks are kept for ten seconds, for which both programs wait at the same time.
    """
    for program in [start(LATER.replace("ROWS", rows)) for rows in ("12_000", "12")]:
        soon, later = printed(program)
        assert soon < 8
        assert later > 40


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMON + program],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PGWIRE_CODEC_IMPL": "cython"},
        stdout=subprocess.PIPE,
        text=True,
    )


def printed(program: subprocess.Popen[str]) -> list[float]:
    """Return the numbers that a program prints."""
    output, _ = program.communicate()
    assert program.returncode == 0
    return [float(number) for number in output.split()]
