"""SealedSegments: descriptions of a log's complete segments, and their index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.checked_json import RESTORE
from pgwire_codec.log.directory import Directory, missing, read_sidecar, read_sidecars
from pgwire_codec.log.index import IndexPiece, LogIndex
from pgwire_codec.log.index_file import INDEX, IndexFile, index_batch, index_row
from pgwire_codec.log.numbers import numbers
from pgwire_codec.log.object_store import REQUESTS
from pgwire_codec.log.segment import (
    SEGMENT,
    SIDECAR,
    Segment,
    end_ordinal_of,
    first_ordinal_of,
    segment_name,
)
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope

#: Newest segments whose descriptions stay in memory when the log has changed: a stream needs them
#: again, and it may run for a year.
_KEPT: Final = 64


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
        """Take note of segments that were sealed, pruned or joined meanwhile."""
        if found.sealed != self.names:
            self._index = None
        if _compactions(found) != _compactions(self._directory):
            self._index = None
            self._files.clear()  # files of the same names may have other rows
        if found.sealed[:1] != self.names[:1]:  # pruning has written this sidecar again
            self._segments.pop("".join(found.sealed[:1]), None)
        self._directory = found
        self.names = found.sealed
        newest = set(self.names[-_KEPT:])
        self._segments = {name: each for name, each in self._segments.items() if name in newest}
        known, indexes = set(self.names), set(found.indexes)
        self._rows = {name: each for name, each in self._rows.items() if name in known}
        self._files = {name: each for name, each in self._files.items() if name in indexes}

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
        if self._next_ordinal(number) not in (None, found.end_ordinal):
            raise missing(self._store, segment_name(found.end_ordinal) + SEGMENT)
        return found

    def _next_ordinal(self, number: int) -> int | None:
        """Return the first ordinal of the segment after one; None after the last."""
        is_last = number in (-1, len(self) - 1)
        following = self._directory.growing if is_last else self.names[number + 1]
        return None if following is None else first_ordinal_of(following)

    def prefetch(self, segments: Iterable[int]) -> None:
        """Read the sidecars of segments, many at once, if that is faster."""
        names = [self.names[number] for number in segments]
        names = [name for name in names if name not in self._segments]
        if not self._store.grows and len(names) > 1:
            read = read_sidecars(self._store, names, self._directory.manifest)
            self._segments.update(zip(names, read, strict=True))

    @property
    def index(self) -> LogIndex:
        """Their index: that of the files, and of the sidecars of the segments after them.

        Raises ``LogError`` when a file or a sidecar is damaged.
        """
        if self._index is None:
            self._index = self._build()
        return self._index

    def index_files(self) -> dict[str, IndexFile]:
        """Return the files of the index, by their names without suffix, in order.

        Files that were removed since they were listed are left out.
        """
        names = self._directory.indexes if len(self) else []
        new = [name for name in names if name not in self._files]
        if len(new) > 1:
            with ThreadPoolExecutor(REQUESTS) as threads:
                read = list(threads.map(self._read_index, new))
        else:
            read = [self._read_index(name) for name in new]
        for name, file in zip(new, read, strict=True):
            if file is not None:
                self._files[name] = file
        return {name: self._files[name] for name in names if name in self._files}

    def rows_without_file(self) -> list[pa.RecordBatch]:
        """Return the rows of the segments that no file of the index has, one a batch."""
        assert self.index is not None
        return [self._rows[name] for name in self.names if name in self._rows]

    def _build(self) -> LogIndex:
        known = self._known()
        pieces: list[IndexPiece] = []
        done = 0
        for file, row, number, count in self._rows_in_files():
            start = max(number, done)  # after an interruption, two files can have the same rows
            if start < number + count:
                pieces += self._from_sidecars(done, start, known, pieces)
                pieces.append((file, row + start - number, row + count))
                done = number + count
        pieces += self._from_sidecars(done, len(self), known, pieces)
        used = {id(rows) for rows, _, _ in pieces}
        self._rows = {name: each for name, each in self._rows.items() if id(each) in used}
        return LogIndex(pieces, known)

    def _rows_in_files(self) -> Iterator[tuple[IndexFile, int, int, int]]:
        """Yield runs of rows: the file, the first row, the number of its segment, and how many.

        Rows of segments that were pruned, joined, or are not copied yet, are left out.
        """
        ordinals = np.array([first_ordinal_of(name) for name in self.names], np.int64)
        ends = np.append(ordinals[1:], -1)  # -1: any
        if len(self):
            ends[-1] = self._next_ordinal(-1) or end_ordinal_of(self.names[-1]) or -1
        for file in self.index_files().values():
            firsts = numbers(file.rows.column("first_ordinal"))
            found = np.searchsorted(ordinals, firsts)
            found[found == len(ordinals)] = 0
            fits = (ends[found] == numbers(file.rows.column("end_ordinal"))) | (ends[found] == -1)
            rows = np.flatnonzero((ordinals[found] == firsts) & fits)
            steps = np.diff(rows, prepend=-2) != 1
            steps |= np.diff(found[rows], prepend=-2) != 1
            starts = np.flatnonzero(steps)
            for start, stop in pairwise([*starts.tolist(), len(rows)]):
                yield file, int(rows[start]), int(found[rows[start]]), stop - start

    def _from_sidecars(
        self,
        start: int,
        stop: int,
        known: Scope,
        pieces: list[IndexPiece],
    ) -> list[IndexPiece]:
        """Return rows that no file has, from the sidecars; ``pieces`` are those before them."""
        first = start
        while first < stop and self.names[first] in self._rows:
            first += 1
        if first < stop:
            self.prefetch(range(first, stop))
            before = [(self._rows[name], 0, 1) for name in self.names[start:first]]
            scope = LogIndex([*pieces, *before], known).scope_before(first).copy()
        for number in range(first, stop):
            segment = self[number]
            declared = segment.declared(scope)
            self._rows[segment.name] = index_batch([index_row(segment, scope, declared)])
            scope.update(declared)
        return [(self._rows[name], 0, 1) for name in self.names[start:stop]]

    def _known(self) -> Scope:
        """Return the relations known before the first segment."""
        if not len(self) or first_ordinal_of(self.names[0]) == 0:
            return Scope()
        known = self[0].known
        if known is None:
            raise LogError(
                f"{self._store.name}/{self.names[0]}{SIDECAR} does not contain the relations known "
                "before the segment",
                hint=RESTORE,
            )
        return known

    def _read_index(self, name: str) -> IndexFile | None:
        file = f"{self._store.name}/{name}{INDEX}"
        data = self._store.read(name + INDEX)
        if data is None:
            return None
        manifest = self._directory.manifest
        return IndexFile(data, file, "" if manifest is None else manifest.log_id)

    def _read(self, name: str) -> Segment:
        return read_sidecar(self._store, name, self._directory.manifest)


def _compactions(found: Directory) -> int:
    return 0 if found.manifest is None else found.manifest.compactions
