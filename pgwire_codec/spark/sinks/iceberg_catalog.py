"""Tables of a session's Iceberg catalogs, as Java objects of Iceberg."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.spark.sinks.sql import properties_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_CATALOG: Final = "spark.sql.catalog."


class CatalogTable:
    """Name of a table in a catalog of Spark.

    Parameters
    ----------
    parts : sequence of str
        The catalog, its namespaces, and the table.
    """

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = list(parts)
        self.sql = ".".join(map(quoted, parts))

    @classmethod
    def parse(cls, spark: Any, name: str) -> CatalogTable:
        """Return the table with a name as in SQL, ``CATALOG.NAMESPACE.TABLE``.

        Raises ``OptionError`` in a session that cannot write it.
        """
        check_session(spark)
        parser = spark._jsparkSession.sessionState().sqlParser()
        parts = parser.parseMultipartIdentifier(name)
        found = cls([parts.apply(place) for place in range(parts.length())])
        found.check_catalog(spark)
        return found

    def check_catalog(self, spark: Any) -> None:
        """Raise ``OptionError`` if the name does not begin with a catalog of the session.

        A name without a catalog would be another table in a session with another current one.
        """
        catalog = self._parts[0]
        if len(self._parts) < 2 or spark.conf.get(_CATALOG + catalog, None) is None:
            raise OptionError(
                f"Spark has no catalog {catalog!r}, of the table {self.sql}",
                hint=f"Set {_CATALOG}{catalog} to org.apache.iceberg.spark.SparkCatalog, and its "
                "type: see Iceberg's page about Spark. Name a table CATALOG.NAMESPACE.TABLE.",
            )

    def load(self, spark: Any) -> Any:
        """Return the newest state of the table, and have the session read it; None without one."""
        util = spark._jvm.org.apache.iceberg.spark.Spark3Util
        with _active(spark):
            found = util.catalogAndIdentifier(spark._jsparkSession, self.sql)
            catalog, identifier = found.catalog(), found.identifier()
            # The catalog keeps tables for some seconds, also when another process changes them.
            catalog.invalidateTable(identifier)
            if not catalog.tableExists(identifier):
                return None
            table = catalog.loadTable(identifier)
        try:
            return util.toIcebergTable(table)
        except Exception as error:
            if "is not an Iceberg table" not in str(error):
                raise
            raise TableError(
                f"{self.sql} is not an Iceberg table", hint="Use a catalog of Iceberg."
            ) from error

    def rows_at(self, spark: Any, snapshot: int) -> DataFrame:
        """Return the rows of a snapshot, under the names that their columns have now.

        Columns that were added or dropped after the snapshot are left out.
        """
        from pyspark.sql import functions

        table = self.load(spark)
        util = spark._jvm.org.apache.iceberg.util.SnapshotUtil
        held = util.schemaFor(table, snapshot)
        now = table.schema()
        names = {
            field.name(): now.findField(field.fieldId())
            for field in (held.columns().get(place) for place in range(held.columns().size()))
        }
        rows: DataFrame = spark.sql(f"SELECT * FROM {self.sql} VERSION AS OF {snapshot}")
        return rows.select(
            *(
                functions.col(quoted(name)).alias(field.name())
                for name, field in names.items()
                if field is not None
            )
        )

    def create(self, spark: Any, schema: StructType, properties: Mapping[str, str]) -> None:
        """Create the table, and its namespaces."""
        self.create_namespaces(spark)
        columns = ", ".join(
            f"{quoted(each.name)} {each.dataType.simpleString()}" for each in schema.fields
        )
        spark.sql(
            f"CREATE TABLE {self.sql} ({columns}) USING iceberg "
            f"TBLPROPERTIES ({properties_of(properties)})"
        )

    def create_namespaces(self, spark: Any) -> None:
        for end in range(2, len(self._parts)):
            name = ".".join(map(quoted, self._parts[:end]))
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")


@contextmanager
def _active(spark: Any) -> Iterator[None]:
    """Have Java find the session's settings in this thread, as it does in SQL statements."""
    sessions = type(spark)._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def columns_of(spark: Any, table: Any) -> StructType:
    """Return the columns of an Iceberg table in Spark's types."""
    from pyspark.sql.types import StructType

    converted = spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(table.schema())
    return StructType.fromJson(json.loads(converted.json()))


def check_session(spark: Any) -> None:
    """Raise ``OptionError`` for a session that cannot write Iceberg tables."""
    if not hasattr(spark, "_jsparkSession"):
        raise OptionError(
            "Iceberg tables need a session that is not one of Spark Connect",
            hint="Iceberg's classes read the LSN that a table has, which needs the driver's Java.",
        )
    # py4j takes a name without a class for one of a package.
    if type(spark._jvm.org.apache.iceberg.spark.Spark3Util).__name__ != "JavaClass":
        raise OptionError(
            "the session lacks Iceberg's Spark runtime",
            hint="Start Spark 4.1 with spark.jars.packages="
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0.",
        )
