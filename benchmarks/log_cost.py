"""Size of one log, and the cost of writing and reading it, in rounds.

A program that imports the version of the package in the current directory, and nothing else of it:
two versions are compared in processes that take turns.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
import pyarrow as pa

_CALL = 10_000  # messages that are appended at once


def cost(path: str, options: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Return the bytes of the log a byte of its messages, and nanoseconds a message."""
    from pgwire_codec import log

    with pa.memory_map(path) as file:
        table = pa.ipc.open_file(file).read_all().combine_chunks()
        data, lsns, times = (table[name].chunk(0) for name in ("data", "lsn", "time"))
        numbers = lsns.to_numpy().view(np.uint64), times.view(pa.int64()).to_numpy().view("M8[us]")
    source = log.LogSource("1", 1, "benchmark", "slot", 180_000)
    found: dict[str, list[float]] = {}

    def note(key: str, step: Callable[[], None]) -> None:
        clocks = {"": process_time, " thread": thread_time, " clock": perf_counter}
        begun = {name: clock() for name, clock in clocks.items()}
        step()
        for name, clock in clocks.items():
            seconds = clock() - begun[name]
            found.setdefault(key + name, []).append(1e9 * seconds / len(data))

    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            uri = f"{folder}/{number}"

            def write(uri: str = uri) -> None:
                with log.LogWriter(uri, source, **options) as writer:
                    for start in range(0, len(data), _CALL):
                        part = slice(start, start + _CALL)
                        writer.append(data.slice(start, _CALL), numbers[0][part], numbers[1][part])

            note("write", write)
            reader = log.Log(uri)

            def read(reader: Any = reader) -> None:
                for batch in reader.read():
                    batch.to_arrow()

            read()  # pages of the file, and what the package imports
            note("read", read)
    segments = reader.segments
    size = sum(each.bytes for each in segments) / sum(each.message_bytes for each in segments)
    return {**found, "size": [size]}


if __name__ == "__main__":
    print(json.dumps(cost(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))
