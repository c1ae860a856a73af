"""TableCheck: the comparison of one table, over as many snapshots as it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.comparing.log_changes import ChangedRows
from pgwire_codec.comparing.result import (
    BEHIND,
    CHANGING,
    DIFFERS,
    EQUAL,
    EQUAL_EXCEPT,
    MISSING,
    RowDifference,
    TableComparison,
)
from pgwire_codec.comparing.row_differences import (
    KEY,
    NET,
    Balance,
    Differences,
    KeyChoice,
    SideRows,
)
from pgwire_codec.comparing.target_table import TargetTable
from pgwire_codec.lake.comparison import Mask
from pgwire_codec.lake.row_hashes import Hashes

_DEFAULT_HINT: Final = (
    "The value of a new column's DEFAULT is not in the log: update these rows on the server to "
    "send it."
)
_BEHIND_HINT: Final = "Run the capture and the mirror, and compare again."
_CHANGING_HINT: Final = "Compare again when fewer rows change."


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows of a table in one snapshot of the server, beside those of a version of the target."""

    lsn: int  # LSN of the snapshot
    target: TargetTable
    columns: ComparedColumns
    parts: Sequence[SideRows]  # the rows of both sides
    balance: Balance
    uncompared: Mapping[str, str]  # columns that cannot be compared, with the reasons
    differences: Differences | None = None

    @property
    def is_empty(self) -> bool:
        """True if the table has no rows, and no target."""
        return self.target.version is None and not self.balance.server_rows

    @property
    def differs(self) -> bool:
        """True if rows differ."""
        return bool(self.balance.different.any())

    @property
    def size(self) -> int:
        """Bytes of the rows, estimated."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Suspects:
    """Keys that differed in every reading, and those of them that the log explained."""

    keys: Hashes
    explained: Mask


class TableCheck:
    """Rows of a table that differ, until they are settled; up to ``max_rows`` of them are shown."""

    def __init__(self, table: str, max_rows: int) -> None:
        self.table = table
        self.result: TableComparison | None = None
        #: The target has to reach this commit LSN before a new reading can settle more.
        self.wanted_lsn = 0
        self._max_rows = max_rows
        self._suspects: _Suspects | None = None
        self._last: Reading | None = None
        self._unsettled = 0

    @property
    def others(self) -> tuple[str, ...]:
        """Commits of other programs that changed the target's rows."""
        return () if self._last is None else self._last.target.others

    def agree(self, reading: Reading) -> None:
        """Record a reading without differences. Without a target, the table is not equal yet."""
        self._last = reading
        self._unsettled = 0
        if reading.target.version is not None:
            self._finish(EQUAL)

    def final_keys(self, changed: ChangedRows, *, is_quiet: bool) -> KeyChoice:
        """Return the keys whose rows differ for good, if they differ in the next reading.

        ``changed`` are the rows that the log changes between the target's LSN and the snapshot. A
        row that differed in every reading and is not among them differs for good. If a transaction
        was writing, its commit may have been in the target and not yet in the snapshot: then this
        must be so in two readings.
        """
        suspects = self._suspects
        if suspects is None:
            return KeyChoice(None, changed.keys) if is_quiet else KeyChoice()
        among = suspects.keys if is_quiet else suspects.keys[~suspects.explained]
        return KeyChoice(among, changed.keys)

    def judge(self, reading: Reading, changed: ChangedRows, final: KeyChoice) -> None:
        """Judge the rows of a reading that differ; ``final`` is of :meth:`final_keys`."""
        assert reading.differences is not None
        self._last = reading
        keys = reading.differences.keys
        if self._suspects is not None:
            keys = np.intersect1d(keys, self._suspects.keys, assume_unique=True)
        self._unsettled = len(keys)
        differing = int(np.count_nonzero(final.mask(keys)))
        if not len(keys):
            self._finish(EQUAL)
        elif differing:
            self._differs(reading.differences.chosen, differing)
        else:
            self._suspects = _Suspects(keys, changed.explain(keys))
            self.wanted_lsn = changed.last_lsn

    def give_up(self, reading: Reading | None = None) -> None:
        """Finish without a verdict, after a reading if the log did not reach its LSN."""
        last = self._last = reading or self._last
        if last is None:  # the server altered or truncated it during each snapshot
            self.result = TableComparison(self.table, CHANGING, hint=_CHANGING_HINT)
            return
        if last.differences is None:
            self._finish(MISSING)
            return
        self._unsettled = len(last.differences.keys)
        is_behind = reading is not None or last.target.applied < self.wanted_lsn
        self._finish(
            BEHIND if is_behind else CHANGING,
            differences=_shown(last.differences.rows, last.columns, self._max_rows),
            hint=_BEHIND_HINT if is_behind else _CHANGING_HINT,
        )

    def _differs(self, rows: pa.Table, differing: int) -> None:
        assert self._last is not None
        shown = _shown(rows, self._last.columns, self._max_rows)
        is_null = [other is None for row in shown for _, other in row.columns.values()]
        hint = _DEFAULT_HINT if is_null and all(is_null) else None
        self._unsettled -= differing
        self._finish(DIFFERS, differing=differing, differences=shown, hint=hint)

    def _finish(self, state: str, **values: Any) -> None:
        last = self._last
        assert last is not None
        if last.target.version is None:
            state = MISSING
        elif state == EQUAL and last.uncompared:
            state = f"{EQUAL_EXCEPT}{', '.join(last.uncompared)}"
        self.result = TableComparison(
            self.table,
            state,
            lsn=last.lsn,
            target_lsn=last.target.applied,
            version=last.target.version,
            server_rows=last.balance.server_rows,
            target_rows=last.balance.target_rows,
            unsettled=self._unsettled,
            ignored=tuple(
                name
                for name in last.target.columns
                if name not in last.columns.types and name not in last.uncompared
            ),
            uncompared=last.uncompared,
            **values,
        )


def _shown(rows: pa.Table, columns: ComparedColumns, count: int) -> tuple[RowDifference, ...]:
    """Return the first rows that differ, which are in the order of their keys."""
    by_key: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for row in rows.to_pylist():
        values = {name: row[number] for name, number in columns.numbers.items()}
        by_key.setdefault(row[KEY], []).append((row[NET], values))
    return tuple(_difference(same_key, columns) for same_key in list(by_key.values())[:count])


def _difference(rows: list[tuple[int, dict[str, Any]]], columns: ComparedColumns) -> RowDifference:
    """Return the difference of the rows of a key, each with how many more the server has."""
    server = sum(net for net, _ in rows if net > 0)
    target = -sum(net for net, _ in rows if net < 0)
    different = {}
    if server == target == 1:
        one, other = (values for _, values in sorted(rows, key=lambda row: -row[0]))
        # NaN is unequal to itself.
        different = {
            name: (one[name], other[name]) for name in one if repr(one[name]) != repr(other[name])
        }
    (_, first) = max(rows, key=lambda row: row[0])
    return RowDifference({name: first[name] for name in columns.keys}, server, target, different)
