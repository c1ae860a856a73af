"""AdmittingStreamReader: the stream's reader with Spark's limits, from Spark 4.2 on."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from pgwire_codec.log import LogPosition
from pgwire_codec.log.positions import position_within
from pgwire_codec.spark.stream_reader import PgoutputStreamReader, from_offset, to_offset


class AdmittingStreamReader(PgoutputStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Limits micro-batches to a number of bytes, and available-now queries to what was there."""

    _target: LogPosition | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (the names are Spark's)
        most = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._refreshed().end

    def latestOffset(  # type: ignore[override]  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        log = self._refreshed()
        end = log.end if self._target is None else self._target
        if isinstance(limit, ReadMaxBytes):
            end = position_within(log, from_offset(start), end, limit.max_bytes)
        return self._next_offset(log, start, end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_offset(self._refreshed().end)
