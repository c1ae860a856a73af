"""LogIndex: the facts of a log's segments by which ranges and tables are found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec._impl import decode_message
from pgwire_codec.log.commit_times import ALL_TIMES, TimeRange
from pgwire_codec.log.index_file import SCHEMA, IndexFile
from pgwire_codec.log.numbers import is_known, numbers, to_array
from pgwire_codec.transactions.carry import RelationVersion, Scope, unique_versions

#: Scopes that an index keeps: callers ask for a few places in turns.
_SCOPES: Final = 6

_NOT_A_TIME: Final = -(2**63)  # as numpy has it

#: Rows, with the number of the first that counts, and the number after the last.
IndexPiece: TypeAlias = tuple[pa.RecordBatch | IndexFile, int, int]


class LogIndex:
    """Rows of consecutive segments.

    Parameters
    ----------
    pieces : sequence of IndexPiece
        Rows in order.
    known : Scope
        The relations known before the first row.

    Attributes
    ----------
    first_ordinal, end_ordinal : numpy.ndarray of int64
        Of each segment.
    delivered_lsn : numpy.ndarray of uint64
        Of each segment: commit LSN of the last transaction delivered in it or before it.
    bytes : numpy.ndarray of int64
        Of each segment's file.
    last_time : numpy.ndarray of datetime64[us]
        Of each segment: the server's clock (UTC) when it sent the last message.
    """

    def __init__(self, pieces: Sequence[IndexPiece], known: Scope) -> None:
        self._pieces = pieces
        self._batches = [
            (each.rows if isinstance(each, IndexFile) else each).slice(start, stop - start)
            for each, start, stop in pieces
        ]
        self._known = known
        self._scopes: dict[int, Scope] = {0: known.copy()}  # before a segment, by its number
        self._starts = np.cumsum([0, *(len(each) for each in self._batches)])
        self.first_ordinal = self._column("first_ordinal", np.int64)
        self.end_ordinal = self._column("end_ordinal", np.int64)
        self.delivered_lsn = self._column("delivered_lsn", np.uint64)
        self._undecodable = self._column("undecodable", np.int64)
        self._commits = self._column("commits", np.int64)
        self.bytes = self._column("bytes", np.int64)
        self.last_time = self._times("last_time", _NOT_A_TIME).view("datetime64[us]")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def scope_before(self, number: int) -> Scope:
        """Return the relations known before a segment, or after the last one.

        The scope must not be changed.
        """
        if number in self._scopes:
            return self._scopes[number]
        at = max(known for known in list(self._scopes) if known <= number)
        scope = self._scopes[at].copy()
        first = int(np.searchsorted(self._starts, at, side="right")) - 1
        for place in range(first, len(self._batches)):
            start, batch = int(self._starts[place]), self._batches[place]
            if start >= number:
                break
            for row in self._rows_with(batch, "relations", "names", "types"):
                if at <= start + row < number:
                    _declare(scope, batch, row)
        self._scopes[number] = scope
        if len(self._scopes) > _SCOPES:  # the first one is that before all segments
            _, oldest, *_ = list(self._scopes)
            self._scopes.pop(oldest, None)
        return scope

    @cached_property
    def versions(self) -> tuple[RelationVersion, ...]:
        """All versions of relations known before the first segment or in the segments."""
        found = [version for _, version in self._known.relations.values()]
        for batch in self._batches:
            for row in self._rows_with(batch, "definitions"):
                found += _definitions(batch, row)
        return unique_versions(found)

    def with_changes(self, relations: Collection[int], start: int, stop: int) -> list[int]:
        """Return the numbers of the segments in a range that have changes of some relations.

        Segments of which that is not known are among them, and those with messages that do not
        decode.
        """
        found = self._undecodable > 0
        wanted = to_array(np.array(sorted(relations), np.uint32), pa.uint32())
        for place in range(len(self._pieces)):
            first, end = int(self._starts[place]), int(self._starts[place + 1])
            if first >= stop or end <= start:
                continue
            tables = self._tables(place)
            rows = pc.list_parent_indices(tables)
            oids = pc.struct_field(tables.flatten(), [0])
            found[first + numbers(rows.filter(pc.is_in(oids, wanted)))] = True
            found[first + np.flatnonzero(~is_known(tables))] = True
        segments: list[int] = (start + np.flatnonzero(found[start:stop])).tolist()
        return segments

    def with_commits(self, times: TimeRange, start: int, stop: int) -> list[int]:
        """Return the numbers of the segments in a range in which transactions commit at some times.

        Segments of which that is not known are among them, and those with messages that do not
        decode.
        """
        bounds = zip(("earliest_commit_time", "latest_commit_time"), ALL_TIMES, strict=True)
        commits = times.overlaps(*(self._times(name, unknown) for name, unknown in bounds))
        found = (commits & (self._commits > 0)) | (self._undecodable > 0)
        segments: list[int] = (start + np.flatnonzero(found[start:stop])).tolist()
        return segments

    def row(self, number: int) -> pa.RecordBatch:
        """Return the row of a segment, with all columns."""
        place = int(np.searchsorted(self._starts, number, "right")) - 1
        rows = self._batches[place]
        if "tables" not in rows.schema.names:
            rows = rows.append_column(SCHEMA.field("tables"), self._tables(place))
        row = rows.slice(number - int(self._starts[place]), 1)
        return row.replace_schema_metadata(None)

    @cached_property
    def first_open(self) -> npt.NDArray[np.int64]:
        """Return, for each segment, the first ordinal that a transaction open after it needs.

        It is that of the next segment if no transaction is open.
        """
        found: npt.NDArray[np.int64] = self.end_ordinal.copy()
        for place, batch in enumerate(self._batches):
            for row in self._rows_with(batch, "opened"):
                opened = batch.column("opened")[row].as_py()
                number = int(self._starts[place]) + row
                found[number] = min(each["first_ordinal"] for each in opened)
        return found

    def _tables(self, place: int) -> pa.Array:
        """Return the column ``tables`` of a piece."""
        piece, start, stop = self._pieces[place]
        tables = piece.tables if isinstance(piece, IndexFile) else piece.column("tables")
        return tables.slice(start, stop - start)

    def _column(self, name: str, kind: Any) -> Any:
        columns = [numbers(batch.column(name)) for batch in self._batches]
        return np.concatenate([np.empty(0, kind), *columns])

    def _times(self, name: str, unknown: int) -> npt.NDArray[np.int64]:
        columns = [batch.column(name).view(pa.int64()) for batch in self._batches]
        known = [numbers(each, unknown) for each in columns]
        return np.concatenate([np.empty(0, np.int64), *known])

    @staticmethod
    def _rows_with(batch: pa.RecordBatch, *columns: str) -> list[int]:
        """Return the rows in which one of some lists is not empty."""
        lengths = [pc.list_value_length(batch.column(name)) for name in columns]
        counts = sum(numbers(each) for each in lengths)
        rows: list[int] = np.flatnonzero(counts).tolist()
        return rows


def _declare(scope: Scope, batch: pa.RecordBatch, row: int) -> None:
    """Change a scope as a segment does."""
    definitions = _definitions(batch, row)
    for each in batch.column("types")[row].as_py():
        message: Any = decode_message(each)
        scope.types[message.oid] = message
    for each in batch.column("relations")[row].as_py():
        number, oid = each["definition"], each["oid"]
        version = scope.relations[oid][1] if number is None else definitions[number]
        scope.add(each["clock"], version)
    for each in batch.column("names")[row].as_py():
        scope.names[each["name"]] = each["clock"], each["oid"]


def _definitions(batch: pa.RecordBatch, row: int) -> list[RelationVersion]:
    found: list[Any] = [
        (decode_message(each["relation"]), tuple(map(decode_message, each["types"])))
        for each in batch.column("definitions")[row].as_py()
    ]
    return [RelationVersion(relation, types) for relation, types in found]
