"""Decodes one file of changes at once, and tells the most memory that took; a process of its own.

Called as ``python -m benchmarks.memory FILE``; prints JSON, in bytes: what the input and the output
are, and by how much the process grew while it had both.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pyarrow as pa

import pgwire_codec as pgc
from benchmarks.streams import read_stream


def high_water() -> int:
    """Give the most resident memory that this process ever had, in bytes."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) * 1024


def main(path: str) -> None:
    # What is loaded once, and kept, is not the decoder's: a small stream first.
    small = read_stream(Path(path)).first(10)
    for batch in pgc.Decoder().decode(small.transaction(0, 10)):
        batch.to_arrow()
    del small, batch
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the mark begins anew
    before = high_water()
    stream = read_stream(Path(path))
    read = high_water()
    first, last = stream.ends()
    decoder = pgc.Decoder()
    decoder.decode(first)
    changes = decoder.decode(stream.messages)
    changes = decoder.decode(last)
    output = [batch.to_arrow() for batch in changes]
    told = {
        "input": stream.messages.nbytes,
        "output": sum(batch.nbytes for batch in output),
        "loaded": read - before,
        "peak": high_water() - before,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
