"""Passes of this package over the messages of a file: ``FILE PASSES MESSAGES_A_CALL``.

It prints the CPU time of each pass, as the programs of the peers do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import pgwire_codec as pgc
from benchmarks.call_rounds import measure


def main(path: str, passes: str, size: str) -> None:
    pa.set_cpu_count(1)
    messages = read_messages(Path(path))
    calls = [messages.slice(at, int(size)) for at in range(0, len(messages), int(size))]
    seconds = measure(pgc.Decoder, (), calls, to_arrow=True, rounds=int(passes))
    changes, values = _seen(calls)
    print(
        json.dumps(
            {
                "nanoseconds": [1e9 * each for each in seconds],
                "messages": len(messages),
                "changes": changes,
                "bytes": values,
            }
        )
    )


def write_messages(path: Path, messages: pa.LargeBinaryArray) -> None:
    """Write messages with their length before each, in 4 bytes, big-endian."""
    with path.open("wb") as file:
        for message in messages.to_pylist():
            file.write(len(message).to_bytes(4, "big") + message)


def read_messages(path: Path) -> pa.LargeBinaryArray:
    """Return the messages of a file as one array."""
    data = memoryview(path.read_bytes())
    messages, start = [], 0
    while start < len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        messages.append(bytes(data[start + 4 : end]))
        start = end
    return pa.array(messages, pa.large_binary())


def _seen(calls: list[pa.LargeBinaryArray]) -> tuple[int, int]:
    """Return the number of rows in the record batches, and the bytes of the rows' values."""
    decoder = pgc.Decoder()
    rows = size = 0
    for messages in calls:
        for batch in decoder.decode(messages):
            rows += batch.to_arrow().num_rows
            size += sum(int(np.sum(column.lengths)) for column in batch.new.values())
    return rows, size


if __name__ == "__main__":
    main(*sys.argv[1:])
