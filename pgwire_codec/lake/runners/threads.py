"""Threads: the runner in this process."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from pgwire_codec.lake.runners.runner import Merge, Split
from pgwire_codec.lake.tasks import BucketKey, ChangeFacts, MergeOutcome, Piece
from pgwire_codec.log.partition import LogPartition

T = TypeVar("T")
R = TypeVar("R")

#: Bytes of changes in memory; others are in temporary files.
_MOST_BYTES: Final = 128 << 20


class Threads:
    """Runs tasks in threads of this process. See :class:`Runner`.

    Parameters
    ----------
    count : int, optional
        Number of threads, by default that of the usable cores.
    """

    def __init__(self, count: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(count or _cores(), "pgwire_codec_lake")

    def map(self, task: Callable[[T], R], items: Sequence[T], size: int = 0) -> list[R]:
        if len(items) == 1:
            return [task(items[0])]
        running: list[Future[R]] = []
        try:
            running += (self._pool.submit(task, item) for item in items)
            return [future.result() for future in running]
        finally:  # nothing goes on after an error
            for future in running:
                future.cancel()
            wait(running)

    def exchange(
        self, split: Split, partitions: Sequence[LogPartition], merge: Merge, message_bytes: int
    ) -> tuple[list[ChangeFacts], list[MergeOutcome]]:
        with _Pieces() as pieces:

            def run(partition: LogPartition) -> list[ChangeFacts]:
                facts = []
                for result in split(partition):
                    if isinstance(result, Piece):
                        pieces.add(result)
                    else:
                        facts.append(result)
                return facts

            facts = [each for of_partition in self.map(run, partitions) for each in of_partition]
            failed = {each.relation_oid for each in facts if each.error is not None}
            keys = [key for key in pieces.keys() if key.relation_oid not in failed]  # noqa: SIM118
            return facts, self.map(lambda key: merge(key, pieces.take(key)), keys)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class _Pieces:
    """Changes by the task that merges them, in memory or in temporary files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[BucketKey, list[pa.RecordBatch]] = {}
        self._files: dict[BucketKey, list[Path]] = {}
        self._bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0

    def __enter__(self) -> _Pieces:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def keys(self) -> list[BucketKey]:
        """Return the keys of all pieces."""
        return sorted({*self._held, *self._files})

    def add(self, piece: Piece) -> None:
        with self._lock:
            if self._bytes + piece.events.nbytes <= _MOST_BYTES:
                self._bytes += piece.events.nbytes
                self._held.setdefault(piece.key, []).append(piece.events)
                return
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="pgwire_codec-")
            path = Path(self._folder.name) / str(self._number)
            self._number += 1
            self._files.setdefault(piece.key, []).append(path)
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_file(str(path), piece.events.schema, options=options) as file:
            file.write(piece.events)

    def take(self, key: BucketKey) -> list[pa.RecordBatch]:
        """Return the pieces of a key, which are forgotten."""
        with self._lock:
            found = self._held.pop(key, [])
            paths = self._files.pop(key, [])
        for path in paths:
            with pa.ipc.open_file(str(path)) as file:
                found.append(file.get_batch(0))
            path.unlink()
        return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
