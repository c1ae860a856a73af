"""TableCheck: the comparison of one table, over as many snapshots as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.spark.comparing.compared_columns import KEY, ComparedColumns
from pgwire_codec.spark.comparing.log_changes import ChangedRows
from pgwire_codec.spark.comparing.result import (
    BEHIND,
    CHANGING,
    DIFFERS,
    EQUAL,
    EQUAL_EXCEPT,
    MISSING,
    RowDifference,
    TableComparison,
)
from pgwire_codec.spark.comparing.row_differences import NET, VALUES, Counted
from pgwire_codec.spark.comparing.target_rows import TargetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXPLAINED: Final = "explained"

_DEFAULT_HINT: Final = (
    "The value of a new column's DEFAULT is not in the log: update these rows on the server to "
    "send it."
)
_BEHIND_HINT: Final = "Run the capture and the mirror, and compare again."
_CHANGING_HINT: Final = "Compare again when fewer rows change."


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows of a table in one snapshot of the server, beside those of a version of the target.

    Attributes
    ----------
    lsn : int
        LSN of the snapshot.
    is_quiet : bool
        Whether no transaction was writing at the snapshot.
    target : TargetTable
    columns : ComparedColumns
    counted : Counted
        Its rows that differ are kept, and were read.
    uncompared : mapping of str to str
        Columns that cannot be compared, with the reasons.
    """

    lsn: int
    is_quiet: bool
    target: TargetTable
    columns: ComparedColumns
    counted: Counted
    uncompared: Mapping[str, str]

    @property
    def is_empty(self) -> bool:
        """True if the table has no rows, and no target."""
        return self.target.version is None and not self.counted.server_rows


class TableCheck:
    """Rows of a table that differ, until they are settled.

    Parameters
    ----------
    table : str
        ``schema.table``.
    max_rows : int
        Number of rows that are shown.
    """

    def __init__(self, table: str, max_rows: int) -> None:
        self.table = table
        self.result: TableComparison | None = None
        #: The target has to reach this commit LSN before a new reading can settle more.
        self.wanted_lsn = 0
        self._max_rows = max_rows
        self._suspects: DataFrame | None = None
        self._last: Reading | None = None
        self._unsettled = 0

    def differs(self, reading: Reading) -> bool:
        """Record a reading; return whether the log has to explain rows of it.

        A table without rows is not equal as long as it has no target.
        """
        if self._last is not None and self._last.counted.differing is not None:
            self._last.counted.differing.unpersist()
        self._last = reading
        if reading.counted.differing is not None:
            return True
        self._unsettled = 0
        if reading.target.version is not None:
            self._finish(EQUAL)
        return False

    def judge(self, changed: ChangedRows | None) -> None:
        """Judge the rows of the last reading that differ.

        ``changed`` are the rows that the log changes between the target's LSN and the snapshot. A
        row that differed in every reading and is not among them differs for good. If a transaction
        was writing, its commit may have been in the target and not yet in the snapshot: then this
        must be so in two readings.
        """
        assert self._last is not None
        rows = self._split(self._last.counted.differing, changed)
        if self._suspects is not None:
            rows = rows.join(self._suspects.withColumnRenamed(_EXPLAINED, "before"), KEY)
        counts = _keys_of(rows).groupBy(_EXPLAINED).count().collect()
        self._unsettled = sum(each["count"] for each in counts)
        if not self._unsettled:
            self._finish(EQUAL)
            return
        final = None
        if self._last.is_quiet:
            final = rows.where(f"NOT {_EXPLAINED}")
        elif self._suspects is not None:
            final = rows.where(f"NOT {_EXPLAINED} AND NOT before")
        differing = 0 if final is None else _keys_of(final).count()
        if final is not None and differing:
            self._differs(final, differing)
            return
        suspects = _keys_of(rows).persist()
        suspects.count()
        if self._suspects is not None:
            self._suspects.unpersist()
        self._suspects = suspects
        self.wanted_lsn = 0 if changed is None else changed.last_lsn or 0

    def give_up(self, *, is_complete: bool) -> None:
        """Finish without a verdict. ``is_complete``: the log reached the LSN of the snapshot."""
        last = self._last
        if last is None:  # the server altered or truncated it during each snapshot
            self.result = TableComparison(self.table, CHANGING, hint=_CHANGING_HINT)
            return
        rows = last.counted.differing
        if rows is None:
            self._finish(MISSING)
            return
        self._unsettled = rows.select(KEY).distinct().count()
        is_behind = not is_complete or last.target.applied < self.wanted_lsn
        self._finish(
            BEHIND if is_behind else CHANGING,
            differences=_shown(rows, last.columns, self._max_rows),
            hint=_BEHIND_HINT if is_behind else _CHANGING_HINT,
        )

    def release(self) -> None:
        """Release the rows that Spark keeps."""
        kept = [self._suspects, None if self._last is None else self._last.counted.differing]
        for rows in kept:
            if rows is not None:
                rows.unpersist()

    def _split(self, differing: Any, changed: ChangedRows | None) -> DataFrame:
        """Return the rows that differ, with whether the log explains it."""
        from pyspark.sql import functions

        if changed is None:
            found = differing.withColumn(_EXPLAINED, functions.lit(False))
        elif changed.keys is None:
            found = differing.withColumn(_EXPLAINED, functions.lit(True))
        else:
            keys = changed.keys.withColumn(_EXPLAINED, functions.lit(True))
            found = differing.join(keys, KEY, "left").fillna(False, [_EXPLAINED])
        rows: DataFrame = found
        return rows

    def _differs(self, rows: DataFrame, differing: int) -> None:
        assert self._last is not None
        shown = _shown(rows, self._last.columns, self._max_rows)
        is_null = [other is None for each in shown for _, other in each.columns.values()]
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
            server_rows=last.counted.server_rows,
            target_rows=last.counted.target_rows,
            unsettled=self._unsettled,
            ignored=tuple(
                name
                for name in last.target.columns
                if name not in last.columns.types and name not in last.uncompared
            ),
            uncompared=last.uncompared,
        )
        self.result = replace(self.result, **values)


def _keys_of(rows: DataFrame) -> DataFrame:
    return rows.select(KEY, _EXPLAINED).distinct()


def _shown(rows: DataFrame, columns: ComparedColumns, count: int) -> tuple[RowDifference, ...]:
    """Return some of the rows that differ, in the order of their keys."""
    from pyspark.sql import functions

    values = functions.col(VALUES)
    order = [values.getField(columns.numbers[name]) for name in columns.keys]
    some = rows.orderBy(*order, KEY).select(KEY, NET, VALUES).limit(2 * count).toArrow()
    of_key: dict[int, list[Mapping[str, Any]]] = {}
    for each in some.to_pylist():
        of_key.setdefault(each[KEY], []).append(each)
    return tuple(_difference(each, columns) for each in list(of_key.values())[:count])


def _difference(rows: list[Mapping[str, Any]], columns: ComparedColumns) -> RowDifference:
    """Return the difference of the rows of a key."""
    names = {number: name for name, number in columns.numbers.items()}
    sides = [
        [
            ({names[number]: value for number, value in each[VALUES].items()}, abs(each[NET]))
            for each in rows
            if (each[NET] > 0) == is_server
        ]
        for is_server in (True, False)
    ]
    server, target = (sum(copies for _, copies in side) for side in sides)
    first = (sides[0] or sides[1])[0][0]
    different = {}
    if server == target == 1:
        one, other = (side[0][0] for side in sides)
        # NaN is unequal to itself.
        different = {
            name: (one[name], other[name]) for name in one if repr(one[name]) != repr(other[name])
        }
    row = {name: first[name] for name in columns.keys}
    return RowDifference(row, server, target, different)
