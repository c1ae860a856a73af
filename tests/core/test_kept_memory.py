"""Memory that the core keeps for the next batch is taken again."""

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

#: Decodes the same long texts again and again, and prints by how many MiB memory grew meanwhile.
PROGRAM = """
import pgwire_codec as pgc
from tests.support.build import T, insert, transaction, wire

def megabytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Anonymous:")) / 1024

rows = [insert(1, str(number), "a" * 50, None) for number in range(12_000)]
messages = wire(transaction(T, *rows, lsn=100))
[batch] = pgc.Decoder().decode(messages)
for count in (20, 200):
    before = megabytes()
    for _ in range(count):
        batch.to_arrow()
print(megabytes() - before)
"""


def test_a_column_of_texts_takes_what_the_one_before_had() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=root,
        env=os.environ | {"PGWIRE_CODEC_IMPL": "cython"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 16  # 200 times 0.6 MB otherwise
