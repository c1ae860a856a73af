"""FilteringReader: a reader with a range from the filters of the query, from Spark 4.1 on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from pgwire_codec.log import Log
from pgwire_codec.spark.partitions import PgoutputReader

_COMPARISONS = (
    EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual,
)  # fmt: skip


class FilteringReader(PgoutputReader):
    """Reads only transactions that the filters on commit LSN and commit time may accept.

    Spark applies all filters again: rows are the same as without this.
    """

    _is_empty = False

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's)
        options, columns = self._options, self._rows.commit_columns
        first, last = _range(filters, columns.lsn, int)
        # LSNs before the log's begin, which pruning moves, may be filtered by, but not read.
        after = None if first is None else max(first - 1, Log(options.path).begin.lsn)
        starting, ending = _range(filters, columns.time, datetime)
        self._options = options = replace(
            options,
            starting_lsn=_latest(options.starting_lsn, after),
            ending_lsn=_earliest(options.ending_lsn, None if last is None else max(last, 0)),
            starting_time=_latest(options.starting_time, starting),
            ending_time=_earliest(options.ending_time, ending),
        )
        self._is_empty = _is_empty(options.starting_lsn, options.ending_lsn) or _is_empty(
            options.starting_time, options.ending_time
        )
        return filters

    def partitions(self) -> list[InputPartition]:
        return [] if self._is_empty else super().partitions()


def _range(filters: list[Filter], column: tuple[str, ...], kind: type) -> tuple[Any, Any]:
    """Return the first and the last value that filters on a column may accept; None: no limit."""
    first = last = None
    for each in filters:
        if not isinstance(each, _COMPARISONS) or each.attribute != column:
            continue
        values = each.value if isinstance(each, In) else (each.value,)
        if not values or not all(isinstance(value, kind) for value in values):
            continue
        if not isinstance(each, (LessThan, LessThanOrEqual)):
            first = _latest(first, min(values))
        if not isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            last = _earliest(last, max(values))
    return first, last


def _latest(*limits: Any) -> Any:
    return max((each for each in limits if each is not None), default=None)


def _earliest(*limits: Any) -> Any:
    return min((each for each in limits if each is not None), default=None)


def _is_empty(first: Any, last: Any) -> bool:
    return first is not None and last is not None and last < first
