"""Lake: the place of a mirror's tables, and the program that writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pgwire_codec.errors import OptionError
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name
from pgwire_codec.spark.mirroring.lake_table import LakeTable, lake_table
from pgwire_codec.spark.mirroring.status import KnownStatus, StatusTable
from pgwire_codec.spark.sinks.delta_spark import EXTENSION
from pgwire_codec.spark.sinks.iceberg_catalog import CatalogTable, check_session
from pgwire_codec.spark.sinks.merge import open_target
from pgwire_codec.spark.sinks.parquet import ParquetHistory
from pgwire_codec.spark.sinks.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgwire_codec.spark.sinks.target import Target

#: Name of the status table, or of its namespace.
STATUS: Final = "_mirror"

#: Name of the table of dead letters; for Iceberg, it is in the namespace of the status table.
LETTERS: Final = "_dead_letters"

#: Name of the stream of changes in the commits of the tables.
_APP_ID: Final = "pgwire_codec"

#: Format of targets in a folder.
DELTA: Final = "delta"

#: Format of targets in a catalog, and the engine that writes them.
ICEBERG: Final = "iceberg"

#: Format of targets in a folder that have histories only, and the engine that writes them.
PARQUET: Final = "parquet"


@dataclass(frozen=True, slots=True)
class Lake:
    """Folder or catalog of a mirror's tables.

    Attributes
    ----------
    location : str
        Path or URI of the folder; for Iceberg, the catalog and its namespaces.
    engine : {"delta-rs", "delta-spark", "iceberg", "parquet"}
        As for :func:`merge_into`; or that of Parquet files.
    storage_options : mapping
        As for :func:`merge_into`.
    """

    location: str
    engine: str
    storage_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        target: str,
        engine: str | None,
        storage_options: Mapping[str, str] | None,
    ) -> Lake:
        """Return the lake of a target; see :func:`parse_target`.

        Without an engine, it is delta-spark in a session that has Delta, and otherwise delta-rs.
        """
        kind, location = parse_target(target)
        if kind == ICEBERG:
            if engine not in (None, ICEBERG):
                raise OptionError(f"engine {engine!r} does not write {target}")
            check_session(spark)
            CatalogTable([*location.split("."), STATUS]).check_catalog(spark)
            return cls(location, ICEBERG, dict(storage_options or {}))
        if kind == PARQUET:
            if engine not in (None, PARQUET):
                raise OptionError(f"engine {engine!r} does not write {target}")
            if storage_options:
                raise OptionError(
                    "storage_options are for delta-rs",
                    hint="For Parquet files, configure Hadoop's file systems in the session.",
                )
            return cls(location.rstrip("/"), PARQUET)
        if engine is None:
            has_delta = EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "")
            engine = "delta-spark" if has_delta and not storage_options else "delta-rs"
        return cls(location.rstrip("/"), engine, dict(storage_options or {}))

    @property
    def has_histories_only(self) -> bool:
        """True if its tables cannot be merged into."""
        return self.engine == PARQUET

    def path(self, relation: Relation) -> str:
        """Return the location of a table; for Iceberg its name in the catalog, as in SQL.

        Characters of its names that are not ASCII letters, digits or one of ``_-.`` are encoded as
        in a URL, but with ``~`` in place of ``%``; so is a first ``_`` or ``.``, and for Iceberg
        each ``.``, which separates namespaces.
        """
        names = (relation.namespace or "pg_catalog", relation.name)
        return self._path(*map(_segment, names))

    def open(self, spark: SparkSession, relation: Relation) -> Target:
        """Return a table, which need not exist. ``spark`` is the session of its changes."""
        if self.engine == PARQUET:
            return ParquetHistory(spark, self.path(relation))
        source = qualified_name(relation.namespace or "pg_catalog", relation.name)
        return open_target(
            spark, self.engine, self.path(relation), _APP_ID, self.storage_options or None, source
        )

    def status(self, spark: SparkSession, known: KnownStatus | None = None) -> StatusTable:
        """Return the status table, which need not exist; rows that are known are not read."""
        return StatusTable(self._own(spark, "status", STATUS), known)

    def dead_letters(self, spark: SparkSession) -> LakeTable:
        """Return the table of dead letters, which need not exist."""
        return self._own(spark, "dead_letters", LETTERS)

    def _own(self, spark: SparkSession, name: str, path: str) -> LakeTable:
        """Return a table of the mirror's own."""
        # In a catalog, only namespaces have tables.
        names = (STATUS, name) if self.engine == ICEBERG else (path,)
        return lake_table(spark, self._path(*names), self.engine, self.storage_options)

    def _path(self, *names: str) -> str:
        if self.engine != ICEBERG:
            return "/".join([self.location, *names])
        encoded = (name.replace(".", "~2E") for name in names)
        return ".".join(map(quoted, [*self.location.split("."), *encoded]))


def parse_target(target: str) -> tuple[str, str]:
    """Return the format and the location of a target.

    It is ``delta:LOCATION``, a location alone, ``parquet:LOCATION``, or ``iceberg:CATALOG`` with or
    without namespaces.
    """
    kind, separator, location = target.partition(":")
    if not separator or location.startswith("//"):
        kind, location = DELTA, target
    is_name = kind == ICEBERG and all(re.fullmatch(r"[\w-]+", part) for part in location.split("."))
    if not is_name and (kind not in (DELTA, PARQUET) or not location):
        raise OptionError(
            f"unsupported target {target!r}",
            hint="Use delta:LOCATION or parquet:LOCATION, where LOCATION is a path or a URI of a "
            "folder. Or use iceberg:CATALOG or iceberg:CATALOG.NAMESPACE, where CATALOG is one of "
            "Spark's.",
        )
    return kind, location


def _segment(name: str) -> str:
    # Not %, because delta-rs decodes it.
    encoded = quote(name, safe="").replace("~", "%7E").replace("%", "~")
    # Spark hides files whose names begin so, and the status table has such a name.
    return f"~{ord(encoded[0]):02X}{encoded[1:]}" if encoded[:1] in (".", "_") else encoded
