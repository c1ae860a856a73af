"""SealedSegments: descriptions of a log's complete segments, and their index."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import RESTORE
from pgwire_codec.log.directory import Directory, missing, read_sidecar
from pgwire_codec.log.index import LogIndex
from pgwire_codec.log.index_file import INDEX, REPAIR, IndexFile, index_batch, index_row
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, segment_name
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope

#: Requests at once to an object store.
_REQUESTS: Final = 16


class SealedSegments:
    """The complete segments of a log, in order. A sidecar is read when it is needed.

    Parameters
    ----------
    store : Store
        Store of the log.
    found : Directory
        The log's files.
    """

    def __init__(self, store: Store, found: Directory) -> None:
        self._store = store
        self._directory = found
        self.names = found.sealed
        self._segments: dict[str, Segment] = {}
        self._files: dict[str, IndexFile] = {}
        self._rows: dict[str, pa.RecordBatch] = {}  # of segments that no file of the index has
        self._index: LogIndex | None = None

    def update(self, found: Directory) -> None:
        """Take note of segments that were sealed or pruned meanwhile."""
        if found.sealed != self.names:
            self._index = None
        if found.sealed[:1] != self.names[:1]:  # pruning has written this sidecar again
            self._segments.pop("".join(found.sealed[:1]), None)
        self._directory = found
        self.names = found.sealed
        known = set(self.names)
        self._segments = {name: each for name, each in self._segments.items() if name in known}
        self._rows = {name: each for name, each in self._rows.items() if name in known}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> Segment:
        """Return the description of a segment.

        Raises ``LogError`` when it is damaged, or does not precede the next one.
        """
        name = self.names[number]
        if name not in self._segments:
            self._segments[name] = self._read(name)
        found = self._segments[name]
        end = segment_name(found.end_ordinal)
        is_last = number in (-1, len(self) - 1)
        if (self._directory.growing if is_last else self.names[number + 1]) not in (None, end):
            raise missing(self._store, end + SEGMENT)
        return found

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Read the sidecars of segments, many at once, if that is faster."""
        names = [self.names[number] for number in numbers]
        names = [name for name in names if name not in self._segments]
        if not self._store.grows and len(names) > 1:
            with ThreadPoolExecutor(_REQUESTS) as threads:
                self._segments.update(zip(names, threads.map(self._read, names), strict=True))

    @property
    def index(self) -> LogIndex:
        """Their index: that of the files, and of the sidecars of the segments after them.

        Raises ``LogError`` when a file or a sidecar is damaged.
        """
        if self._index is None:
            self._index = self._build()
        return self._index

    def rows_without_file(self) -> list[pa.RecordBatch]:
        """Return the rows of the segments that no file of the index has, one a batch."""
        assert self.index is not None
        return [self._rows[name] for name in self.names if name in self._rows]

    def _build(self) -> LogIndex:
        known = self._known()
        pieces: list[tuple[pa.RecordBatch | IndexFile, int]] = []
        done = 0
        for name, file in self._index_files():
            names = [segment_name(each) for each in file.rows.column("first_ordinal").to_pylist()]
            kept = [each for each in names if each >= self.names[0]]
            if not kept or kept[-1] > self.names[-1]:
                continue  # they were pruned, or the log's end is not copied yet
            start = self._find(kept, name, done)
            pieces += self._from_sidecars(done, start, known, pieces)
            pieces.append((file, len(names) - len(kept)))
            done = start + len(kept)
        pieces += self._from_sidecars(done, len(self), known, pieces)
        return LogIndex(pieces, known)

    def _find(self, names: list[str], index: str, done: int) -> int:
        """Return the number of the first of some segments; check that none is missing."""
        start = bisect_left(self.names, names[0])
        if start < done:
            raise LogError(
                f"{self._store.name}/{index}{INDEX} repeats segments of the file before it",
                hint=REPAIR,
            )
        found = self.names[start : start + len(names)]
        if found != names:
            for name in names:
                if name not in found:
                    raise missing(self._store, name + SEGMENT)
            raise LogError(
                f"{self._store.name}/{index}{INDEX} does not match the segments", hint=REPAIR
            )
        return start

    def _from_sidecars(
        self,
        start: int,
        stop: int,
        known: Scope,
        pieces: list[tuple[pa.RecordBatch | IndexFile, int]],
    ) -> list[tuple[pa.RecordBatch | IndexFile, int]]:
        """Return rows that no file has, from the sidecars; ``pieces`` are those before them."""
        first = start
        while first < stop and self.names[first] in self._rows:
            first += 1
        if first < stop:
            self.prefetch(range(first, stop))
            before = [(self._rows[name], 0) for name in self.names[start:first]]
            scope = LogIndex([*pieces, *before], known).scope_before(first)
        for number in range(first, stop):
            segment = self[number]
            declared = segment.declared(scope)
            self._rows[segment.name] = index_batch([index_row(segment, scope, declared)])
            scope.update(declared)
        return [(self._rows[name], 0) for name in self.names[start:stop]]

    def _known(self) -> Scope:
        """Return the relations known before the first segment."""
        if not len(self) or self.names[0] == segment_name(0):
            return Scope()
        known = self[0].known
        if known is None:
            raise LogError(
                f"{self._store.name}/{self.names[0]}{SIDECAR} does not contain the relations known "
                "before the segment",
                hint=RESTORE,
            )
        return known

    def _index_files(self) -> Iterator[tuple[str, IndexFile]]:
        """Yield the files of the index, with their names without suffix, in order."""
        names = self._directory.indexes if len(self) else []
        new = [name for name in names if name not in self._files]
        if len(new) > 1:
            with ThreadPoolExecutor(_REQUESTS) as threads:
                self._files.update(zip(new, threads.map(self._read_index, new), strict=True))
        for name in names:
            if name not in self._files:
                self._files[name] = self._read_index(name)
            yield name, self._files[name]

    def _read_index(self, name: str) -> IndexFile:
        file = f"{self._store.name}/{name}{INDEX}"
        data = self._store.read(name + INDEX)
        if data is None:
            raise missing(self._store, name + INDEX)
        manifest = self._directory.manifest
        return IndexFile(data, file, "" if manifest is None else manifest.log_id)

    def _read(self, name: str) -> Segment:
        return read_sidecar(self._store, name, self._directory.manifest)
