"""Source of a mirror's streaming query: offsets of a log, without rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from pgwire_codec.log import Log
from pgwire_codec.spark.offsets import to_offset

#: Name of the format.
FORMAT: Final = "pgwire_codec_mirror"


class MirrorTrigger(DataSource):
    """Micro-batches without rows, up to the end of a log. Tables have positions of their own."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "nothing bigint"

    def streamReader(self, schema: object) -> MirrorTriggerReader:  # noqa: N802  (Spark's)
        return MirrorTriggerReader(self.options["path"])


class MirrorTriggerReader(DataSourceStreamReader):
    """Offsets of a log; see :class:`MirrorTrigger`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._log: Log | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_log": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_offset(self._refreshed().begin)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_offset(self._refreshed().end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())

    def _refreshed(self) -> Log:
        if self._log is None:
            self._log = Log(self._path)
        else:
            self._log.refresh()
        return self._log
