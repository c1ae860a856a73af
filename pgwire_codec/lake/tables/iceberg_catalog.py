"""Tables of a session's Iceberg catalogs, as Java objects of Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.protocol.quoting import quote_spark_identifier

_CATALOG: Final = "spark.sql.catalog."

#: Errors of Iceberg, and of Java, whose cause may pass by itself.
_TRANSIENT: Final = frozenset({
    "CommitFailedException", "CommitStateUnknownException", "RESTException", "RuntimeIOException",
    "ServiceFailureException", "ServiceUnavailableException", "UncheckedIOException",
})  # fmt: skip


class CatalogTable:
    """Name of a table in a catalog of Spark: the catalog, its namespaces, and the table."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = list(parts)
        self.sql = ".".join(map(quote_spark_identifier, parts))

    @classmethod
    def parse(cls, spark: Any, name: str) -> CatalogTable:
        """Return the table with a name as in SQL, ``CATALOG.NAMESPACE.TABLE``.

        Raises ``OptionError`` in a session that cannot write it.
        """
        check_session(spark)
        parser = spark._jsparkSession.sessionState().sqlParser()
        parts = parser.parseMultipartIdentifier(name)
        table = cls([parts.apply(place) for place in range(parts.length())])
        table.check_catalog(spark)
        return table

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
            place = util.catalogAndIdentifier(spark._jsparkSession, self.sql)
            catalog, identifier = place.catalog(), place.identifier()
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
            raise self._not_of_iceberg() from error

    def builder(self, spark: Any, schema: Any, properties: Mapping[str, str]) -> Any:
        """Create the namespaces; return Iceberg's builder of the table, with its schema."""
        util = spark._jvm.org.apache.iceberg.spark.Spark3Util
        for end in range(2, len(self._parts)):
            namespace = ".".join(map(quote_spark_identifier, self._parts[:end]))
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        with _active(spark):
            place = util.catalogAndIdentifier(spark._jsparkSession, self.sql)
            catalog = place.catalog()
            try:
                catalog = catalog.icebergCatalog()
            except Exception as error:
                raise self._not_of_iceberg() from error
            builder = catalog.buildTable(
                util.identifierToTableIdentifier(place.identifier()), schema
            )
        for name, value in properties.items():
            builder.withProperty(name, value)
        return builder

    def _not_of_iceberg(self) -> TableError:
        return TableError(f"{self.sql} is not an Iceberg table", hint="Use a catalog of Iceberg.")


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


def java_class(error: Exception) -> str | None:
    """Return the name of the class of Java's error, without its package; None for another one."""
    cause = _java_error(error)
    return None if cause is None else str(cause.getClass().getSimpleName())


def _java_error(error: Exception) -> Any:
    # PySpark has errors of its own for some classes of Java.
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


@contextmanager
def java_errors(name: str) -> Iterator[None]:
    """Raise errors of Java as ``TableError`` about a table, without a stack in their text."""
    try:
        yield
    except Exception as error:
        if java_class(error) is None:
            raise
        raise table_error(name, error) from error


def table_error(name: str, error: Exception) -> TableError:
    """Return the error of a table after an error of Java."""
    cause = _java_error(error)
    text = str(cause.getMessage() or cause.getClass().getName())
    return TableError(
        f"{name}: {text.splitlines()[0]}", is_transient=java_class(error) in _TRANSIENT
    )
