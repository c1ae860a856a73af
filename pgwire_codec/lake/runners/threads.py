"""Threads: the runner in this process."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from pgwire_codec.lake.runners.runner import BucketKey, Merge, Piece

T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F")

_MOST_BYTES: Final = 128 << 20  # bytes of pieces in memory; others are in temporary files


class Threads:
    """Runner in threads of this process, by default one for each usable core."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count or _cores()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._count, "pgwire_codec_lake")

    def map(self, task: Callable[[T], R], items: Sequence[T], size: int = 0) -> list[R]:
        if len(items) < 2 or self._count == 1:
            return [task(item) for item in items]
        running = [self._pool.submit(task, item) for item in items]
        try:
            return [future.result() for future in running]
        except BaseException:  # nothing goes on after an error
            for future in running:
                future.cancel()
            wait(running)
            raise

    def exchange(
        self,
        split: Callable[[T], Iterable[Piece | F]],
        items: Sequence[T],
        merge: Merge[R],
        size: int = 0,
    ) -> tuple[list[F], list[R]]:
        with _Pieces() as pieces:

            def run(item: T) -> list[F]:
                facts = []
                for result in split(item):
                    if isinstance(result, Piece):
                        pieces.add(result)
                    else:
                        facts.append(result)
                return facts

            facts = [each for of_item in self.map(run, items) for each in of_item]
            return facts, self.map(lambda key: merge(key, pieces.take(key)), pieces.keys())


class _Pieces:
    """Pieces by the task that merges them, in memory or in temporary files."""

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
            if self._bytes + piece.rows.nbytes <= _MOST_BYTES:
                self._bytes += piece.rows.nbytes
                self._held.setdefault(piece.key, []).append(piece.rows)
                return
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="pgwire_codec-")
            path = Path(self._folder.name) / str(self._number)
            self._number += 1
            self._files.setdefault(piece.key, []).append(path)
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_file(str(path), piece.rows.schema, options=options) as file:
            file.write(piece.rows)

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
