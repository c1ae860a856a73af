"""Sums of a report: changes by table, lags, problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.changes.changes import Changes
from pgwire_codec.errors import DecodeError, with_hint
from pgwire_codec.log import TableCount
from pgwire_codec.report.findings import BYTES, LAG_BOUNDS, Lags, Problem, Problems

#: Number of figures of a table: inserts, updates, deletes, truncates, bytes.
COUNTS: Final = BYTES + 1
_COLUMN: Final = np.zeros(256, np.int64)
_COLUMN[np.frombuffer(b"IUDT", np.uint8)] = range(BYTES)
_MAX_KEPT: Final = 50


def count_rows(
    ops: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int64],
    place: npt.NDArray[np.int64],
    length: int,
) -> npt.NDArray[np.int64]:
    """Count changes by place (0 to ``length - 1``) and operation, and sum their bytes.

    The bytes of truncates do not count, because one message can name many tables.
    """
    rows = np.zeros((length, COUNTS), np.int64)
    cells = np.bincount(place * BYTES + _COLUMN[ops], minlength=length * BYTES)
    rows[:, :BYTES] = cells.reshape(length, BYTES)
    is_row = ops != ord("T")
    np.add.at(rows[:, BYTES], place[is_row], sizes[is_row])
    return rows


class TableCounts:
    """Number of changes by table and operation, and their bytes."""

    def __init__(self) -> None:
        self._rows: dict[str, npt.NDArray[np.int64]] = {}

    @property
    def names(self) -> Iterator[str]:
        """Names of the tables."""
        return iter(self._rows)

    def add(self, name: str, ops: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> None:
        """Count changes of a table."""
        self._of(name)[:] += count_rows(ops, sizes, np.zeros(len(ops), np.int64), 1)[0]

    def merge(self, other: TableCounts) -> None:
        """Add the counts of another."""
        for name, row in other._rows.items():
            self._of(name)[:] += row

    def sum(self) -> npt.NDArray[np.int64]:
        """Add up the tables."""
        total: npt.NDArray[np.int64] = sum(self._rows.values(), np.zeros(COUNTS, np.int64))
        return total

    def counts(self) -> tuple[TableCount, ...]:
        """Return the counts by name."""
        return tuple(TableCount(name, *self._rows[name].tolist()) for name in sorted(self._rows))

    def _of(self, name: str) -> npt.NDArray[np.int64]:
        return self._rows.setdefault(name, np.zeros(COUNTS, np.int64))


class LagCounts:
    """Number of transactions by lag."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(LAG_BOUNDS) + 1, np.int64)
        self._worst = -1
        self._unknown = 0

    def add(self, lags: npt.NDArray[np.int64]) -> None:
        """Count lags, in microseconds; -1 is unknown."""
        known = lags[lags >= 0]
        self._unknown += len(lags) - len(known)
        bounds = np.searchsorted(np.array(LAG_BOUNDS), known)
        self._counts += np.bincount(bounds, minlength=len(self._counts))
        self._worst = max(self._worst, int(known.max(initial=-1)))

    def lags(self) -> Lags:
        """Return the counts."""
        worst = None if self._worst < 0 else self._worst
        return Lags(tuple(self._counts.tolist()), worst, self._unknown)


class ProblemCounts:
    """Rejected messages and warnings, by code."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self._errors: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()

    def add(self, changes: Changes, first_ordinal: int, data: pa.Array) -> None:
        """Count those of one call; ``first_ordinal`` is that of its first message."""
        for each in changes.rejected:
            self._errors[each.error.code] += 1
            if len(self._first) < _MAX_KEPT:
                # A streamed change is decoded with its commit, which can come in a later call.
                # The index then counts from the start of that earlier call.
                index = each.message_index
                is_here = index < len(data) and data[index].as_py() == each.data
                ordinal = first_ordinal + index if is_here else None
                self._keep(ordinal, each.error, is_warning=False)
        for warning in changes.warnings:
            self._warnings[warning.code] += 1
            if len(self._first) < _MAX_KEPT:
                ordinal = first_ordinal + (warning.message_index or 0)
                self._keep(ordinal, warning, is_warning=True)

    def problems(self) -> Problems:
        """Return the counts."""
        return Problems(tuple(self._first), dict(self._errors), dict(self._warnings))

    def _keep(self, ordinal: int | None, error: DecodeError, *, is_warning: bool) -> None:
        where = f" ({error.context})" if error.context else ""
        text = with_hint(f"byte {error.offset}{where}: {error.expected}", error.hint)
        self._first.append(Problem(ordinal, error.code, text, is_warning))
