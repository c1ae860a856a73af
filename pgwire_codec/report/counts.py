"""What a gathering adds up: rows of tables, lags, problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.changes.changes import Changes
from pgwire_codec.errors import DecodeError
from pgwire_codec.log import TableCount
from pgwire_codec.report.findings import BYTES, LAG_BOUNDS, Lags, Problem, Problems

#: How many numbers are counted of a table: inserts, updates, deletes, truncates, bytes.
ROW: Final = BYTES + 1
_COLUMN: Final = np.zeros(256, np.int64)
_COLUMN[np.frombuffer(b"IUDT", np.uint8)] = range(BYTES)
_KEPT: Final = 50


def count_rows(
    ops: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
    length: int,
) -> npt.NDArray[np.int64]:
    """Count changes by place (from 0 to before ``length``) and operation, and sum their bytes.

    Of truncates, whose message may name many tables, the bytes do not count.
    """
    rows = np.zeros((length, ROW), np.int64)
    cells = np.bincount(place * BYTES + _COLUMN[ops], minlength=length * BYTES)
    rows[:, :BYTES] = cells.reshape(length, BYTES)
    is_row = ops != ord("T")
    np.add.at(rows[:, BYTES], place[is_row], sizes[is_row])
    return rows


class TableCounts:
    """Changes by table, operation and bytes."""

    def __init__(self) -> None:
        self._rows: dict[str, npt.NDArray[np.int64]] = {}

    @property
    def names(self) -> Iterator[str]:
        """Of the tables."""
        return iter(self._rows)

    def add(self, name: str, ops: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> None:
        """Count changes of a table."""
        self._of(name)[:] += count_rows(ops, sizes, np.zeros(len(ops), np.int64), 1)[0]

    def merge(self, other: TableCounts) -> None:
        """Add another's counts."""
        for name, row in other._rows.items():
            self._of(name)[:] += row

    def sum(self) -> npt.NDArray[np.int64]:
        """Add up the tables."""
        total: npt.NDArray[np.int64] = sum(self._rows.values(), np.zeros(ROW, np.int64))
        return total

    def counts(self) -> tuple[TableCount, ...]:
        """Give the counts by name."""
        return tuple(TableCount(name, *self._rows[name].tolist()) for name in sorted(self._rows))

    def _of(self, name: str) -> npt.NDArray[np.int64]:
        return self._rows.setdefault(name, np.zeros(ROW, np.int64))


class LagCounts:
    """Lags by how long they are."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(LAG_BOUNDS) + 1, np.int64)
        self._worst = -1
        self._unknown = 0

    def add(self, lags: npt.NDArray[np.int64]) -> None:
        """Count lags, in microseconds; -1 is an unknown one."""
        known = lags[lags >= 0]
        self._unknown += len(lags) - len(known)
        bounds = np.searchsorted(np.array(LAG_BOUNDS), known)
        self._counts += np.bincount(bounds, minlength=len(self._counts))
        self._worst = max(self._worst, int(known.max(initial=-1)))

    def found(self) -> Lags:
        """Give the counts."""
        worst = None if self._worst < 0 else self._worst
        return Lags(tuple(self._counts.tolist()), worst, self._unknown)


class ProblemCounts:
    """What did not decode, and what was odd."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self._bad: Counter[str] = Counter()
        self._odd: Counter[str] = Counter()

    def add(self, changes: Changes, first_ordinal: int, data: pa.Array) -> None:
        """Count those of a call, whose first message has an ordinal."""
        for each in changes.rejected:
            self._bad[each.error.code] += 1
            if len(self._first) < _KEPT:
                # A streamed change may be found wrong in a later call than it came in: then the
                # index is of that earlier call.
                index = each.message_index
                is_here = index < len(data) and data[index].as_py() == each.data
                ordinal = first_ordinal + index if is_here else None
                self._keep(ordinal, each.error, is_odd=False)
        for warning in changes.warnings:
            self._odd[warning.code] += 1
            if len(self._first) < _KEPT:
                ordinal = first_ordinal + (warning.message_index or 0)
                self._keep(ordinal, warning, is_odd=True)

    def found(self) -> Problems:
        """Give the counts."""
        return Problems(tuple(self._first), dict(self._bad), dict(self._odd))

    def _keep(self, ordinal: int | None, error: DecodeError, *, is_odd: bool) -> None:
        where = f" ({error.context})" if error.context else ""
        text = f"byte {error.offset}{where}: {error.expected}"
        self._first.append(Problem(ordinal, error.code, text, is_odd))
