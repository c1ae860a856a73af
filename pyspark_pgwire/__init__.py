"""Where Spark finds ``format("pgoutput")``: it looks at every module named ``pyspark_…``.

It does so for any Python data source, also where this one is not used: so nothing but PySpark's own
class is imported here, and nothing fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # no PySpark, or one without data sources in Python: there is nothing to find
    __all__: list[str] = []
else:
    if TYPE_CHECKING:
        from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
        from pyspark.sql.types import StructType

        from pgwire_codec.spark.source import PgoutputDataSource

    __all__ = ["DefaultSource"]

    class DefaultSource(DataSource):
        """Stands for :class:`pgwire_codec.spark.PgoutputDataSource`, and imports it when used."""

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
