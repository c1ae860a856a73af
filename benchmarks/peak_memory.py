"""Decodes one file of changes at once and prints the peak memory, as a process of its own.

Called as ``python -m benchmarks.peak_memory FILE``; prints JSON with sizes in bytes: the input, the
output, and the growth of the process.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pyarrow as pa

import pgwire_codec as pgc
from benchmarks.change_sets import read_change_set


def high_water(process: int | str = "self") -> int:
    """Return the peak resident memory of a process, in bytes."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) * 1024


def main(path: str) -> None:
    # A small change set first: libraries and caches that it loads are not the decoder's memory.
    small = read_change_set(Path(path)).first(10)
    for batch in pgc.Decoder().decode(small.transaction(0, 10)):
        batch.to_arrow()
    del small, batch
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # resets the peak
    before = high_water()
    change_set = read_change_set(Path(path))
    read = high_water()
    first, last = change_set.ends()
    decoder = pgc.Decoder()
    decoder.decode(first)
    changes = decoder.decode(change_set.messages)
    changes = decoder.decode(last)
    output = [batch.to_arrow() for batch in changes]
    sizes = {
        "input": change_set.messages.nbytes,
        "output": sum(batch.nbytes for batch in output),
        "loaded": read - before,
        "peak": high_water() - before,
    }
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(sys.argv[1])
