"""Check and repair of a log's index, and the damage that a check finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.directory import Directory
from pgwire_codec.log.index_file import INDEX, IndexFile, index_batch, index_row, ordinal_ranges
from pgwire_codec.log.index_writer import INDEXED_SEGMENTS, write_index
from pgwire_codec.log.joined_segments import JoinedSegments
from pgwire_codec.log.segment import Segment, segment_name
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of one file.

    Attributes
    ----------
    file : str
        Name of the file in the log.
    offset : int or None
        Position of the first wrong byte; None if only the whole file can be named.
    reason : str
        Description of the damage.
    """

    file: str
    offset: int | None
    reason: str

    def __str__(self) -> str:
        place = self.file if self.offset is None else f"{self.file}, byte {self.offset}"
        return f"{place}: {self.reason}"


class IndexChecker:
    """Compares the files of an index with the segments."""

    def __init__(self, store: Store, found: Directory) -> None:
        self._store = store
        self._directory = found
        self._joined = JoinedSegments(found.sealed)
        self._rows: dict[int, pa.RecordBatch] = {}  # by the segment's first ordinal

    def add(self, segment: Segment, before: Scope, declared: Scope) -> None:
        """Add a sealed segment, with the relations known before it and those that it declared."""
        self._rows[segment.first_ordinal] = index_batch([index_row(segment, before, declared)])

    def damage(self) -> Iterator[Damage]:
        """Yield the damage of each damaged file."""
        for name in self._directory.indexes:
            try:
                reason = self._difference(name)
            except LogError as error:
                reason = str(error)
            if reason is not None:
                yield Damage(name + INDEX, None, reason)

    def repair(self) -> list[str]:
        """Write the whole index again if it is damaged or incomplete, and return its new files."""
        rows = list(self._rows.values())
        missing = len(rows) - self._indexed()
        if missing < INDEXED_SEGMENTS and not any(self.damage()):
            return []
        # Readers use the sidecars of segments without a file of the index.
        for name in self._directory.indexes:
            self._store.remove(name + INDEX)
        log_id = self._log_id()
        starts = range(0, len(rows) - INDEXED_SEGMENTS + 1, INDEXED_SEGMENTS)
        return [
            write_index(self._store, log_id, rows[start : start + INDEXED_SEGMENTS])
            for start in starts
        ]

    def _indexed(self) -> int:
        """Return the number of segments that are in sound files."""
        found: set[int] = set()
        for name in self._directory.indexes:
            try:
                rows = self._read(name).rows
            except LogError:
                return 0
            found.update(
                ordinal for ordinal, end in ordinal_ranges(rows) if not self._is_old(ordinal, end)
            )
        return len(found)

    def _difference(self, name: str) -> str | None:
        """Return the difference of a file from the segments, as far as they are known."""
        file = self._read(name)
        first = file.rows.column("first_ordinal")[0].as_py() if len(file.rows) else None
        if first is None or segment_name(first) != name:
            return "its first segment is not the one that it is named after"
        actual = file.rows.append_column("tables", file.tables)
        for number, (ordinal, end) in enumerate(ordinal_ranges(file.rows)):
            if self._is_old(ordinal, end):
                continue
            expected = self._rows.get(ordinal)
            if expected is None and ordinal < self._directory.end_ordinal and self._rows:
                if ordinal not in self._joined.first_ordinals:
                    return f"it has a segment {segment_name(ordinal)}, which the log does not have"
                continue  # damaged
            if expected is not None and not actual.slice(number, 1).equals(expected):
                return f"its row of segment {segment_name(ordinal)} does not match the segment"
        return None

    def _is_old(self, first_ordinal: int, end_ordinal: int) -> bool:
        """Return whether a segment was pruned, or joined with others."""
        is_pruned = first_ordinal < self._directory.first_ordinal
        return is_pruned or self._joined.replace(first_ordinal, end_ordinal)

    def _read(self, name: str) -> IndexFile:
        data = self._store.read(name + INDEX)
        return IndexFile(data or b"", f"{self._store.name}/{name}{INDEX}", self._log_id())

    def _log_id(self) -> str:
        manifest = self._directory.manifest
        return "" if manifest is None else manifest.log_id
