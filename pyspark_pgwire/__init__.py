"""Registration of ``format("pgoutput")``: Spark searches every module named ``pyspark_…``.

Spark does so for any Python data source. So this module imports only PySpark's own class, and never
fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # no PySpark, or one without data sources in Python
    __all__: list[str] = []
else:
    if TYPE_CHECKING:
        from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
        from pyspark.sql.types import StructType

        from pgwire_codec.spark.source import PgoutputDataSource

    __all__ = ["DefaultSource"]

    class DefaultSource(DataSource):
        """Imports :class:`pgwire_codec.spark.PgoutputDataSource` when used, and delegates to it."""

        @classmethod
        def name(cls) -> str:
            return "pgoutput"

        def schema(self) -> StructType:
            return self._source().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._source().reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return self._source().streamReader(schema)

        def _source(self) -> PgoutputDataSource:
            from pgwire_codec.spark.source import PgoutputDataSource

            return PgoutputDataSource(self.options)
