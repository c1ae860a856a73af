"""Lake: the place of a mirror's tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from pgwire_codec.errors import OptionError
from pgwire_codec.format import parse_duration
from pgwire_codec.lake.folder import open_folder
from pgwire_codec.lake.status import STATUS, StatusTable
from pgwire_codec.lake.system_table import SystemTable
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.delta_log import commit_path as delta_commit
from pgwire_codec.lake.tables.iceberg import IcebergTarget
from pgwire_codec.lake.tables.iceberg_catalog import CatalogTable, check_session
from pgwire_codec.lake.tables.parquet import ParquetTarget
from pgwire_codec.lake.tables.parquet import commit_path as parquet_commit
from pgwire_codec.lake.tables.target import WRITE_MODES, Target, WriteMode
from pgwire_codec.log.dead_letters import DEAD_LETTERS
from pgwire_codec.log.environment import environment_options
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name, quote_spark_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATUS_NAME: Final = "_mirror"  # name of the status table, or of its namespace

#: Name of the table of dead letters; for Iceberg, it is in the namespace of the status table.
LETTERS_NAME: Final = "_dead_letters"

#: Name of the stream of changes in the commits of the tables.
_APP_ID: Final = "pgwire_codec"

_STATUS_LOSS: Final = "Tables that are set aside are tried again then."
_LETTERS_LOSS: Final = "The dead letters are lost, and the log may still have their changes."

#: Seconds for which old versions of a table can be read, by default: an hour.
KEPT_SECONDS: Final = 3600.0

# Formats of targets.
DELTA: Final = "delta"  # in a folder
ICEBERG: Final = "iceberg"  # in a catalog
PARQUET: Final = "parquet"  # in a folder, and histories only


@dataclass(frozen=True)
class Lake:
    """Folder or catalog of a mirror's tables."""

    format: str  # delta, iceberg or parquet
    location: str  # path or URI of the folder; for Iceberg, the catalog and its namespaces
    #: As for ``deltalake.DeltaTable``.
    storage_options: Mapping[str, str] = field(default_factory=dict)
    spark: SparkSession | None = None  # session that has the catalog
    write_mode: WriteMode = "merge-on-read"  # how rows of new tables are deleted
    kept_seconds: float = KEPT_SECONDS  # for which old versions of new tables can be read
    _opened: dict[str, Target] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def parse(
        cls,
        target: str,
        storage_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        write_mode: WriteMode = "merge-on-read",
        keep: str | float = KEPT_SECONDS,
    ) -> Lake:
        """Return the lake of a target; see :func:`parse_target`."""
        if write_mode not in WRITE_MODES:
            raise OptionError(
                f"write_mode must be one of {', '.join(WRITE_MODES)}, not {write_mode!r}"
            )
        kind, location = parse_target(target)
        if kind == ICEBERG and spark is None:
            raise OptionError(
                f"{target} is in a catalog of Spark", hint="Use the Spark runner: --runner spark."
            )
        if kind == ICEBERG:
            check_session(spark)
            CatalogTable([*location.split("."), STATUS_NAME]).check_catalog(spark)
        place = location if kind == ICEBERG else location.rstrip("/")
        options = environment_options() | dict(storage_options or {})
        options = options if "://" in place else {}
        return cls(kind, place, options, spark, write_mode, parse_duration(keep, "keep"))

    @property
    def is_remote(self) -> bool:
        """True if its tables are in a catalog, or in a store by URI."""
        return self.format == ICEBERG or "://" in self.location

    @property
    def has_histories_only(self) -> bool:
        """True if its tables cannot be merged into."""
        return self.format == PARQUET

    def path(self, relation: Relation) -> str:
        """Return the location of a table; for Iceberg its name in the catalog, as in SQL.

        Characters of its names that are not ASCII letters, digits or one of ``_-.`` are encoded as
        in a URL, but with ``~`` in place of ``%``; so is a first ``_`` or ``.``, and for Iceberg
        each ``.``, which separates namespaces.
        """
        names = (relation.namespace or "pg_catalog", relation.name)
        return self._path(*map(_segment, names))

    def open(self, relation: Relation) -> Target:
        """Return a table, which need not exist, with its newest state."""
        path = self.path(relation)
        if path in self._opened:
            self._opened[path].refresh()
        else:
            source = qualified_name(relation.namespace or "pg_catalog", relation.name)
            self._opened[path] = self._open(path, source=source)
        return self._opened[path]

    def is_at(self, relation: Relation, version: int) -> bool:
        """Return whether a version of a table is its newest one; a folder's is not read for it."""
        if self.format == ICEBERG:
            return self.open(relation).version == version
        folder = open_folder(self.path(relation), self.storage_options)
        path = delta_commit if self.format == DELTA else parquet_commit
        return folder.exists(path(version)) and not folder.exists(path(version + 1))

    def forget(self, relation: Relation) -> None:
        """Open a table again the next time, for example after an error."""
        self._opened.pop(self.path(relation), None)

    def status(self) -> StatusTable:
        """Return the status table, which need not exist."""
        return StatusTable(self._own("status", STATUS_NAME, STATUS, _STATUS_LOSS))

    def dead_letters(self) -> SystemTable:
        """Return the table of dead letters, which need not exist."""
        return self._own("dead_letters", LETTERS_NAME, DEAD_LETTERS, _LETTERS_LOSS)

    def _own(self, name: str, path: str, schema: pa.Schema, loss: str) -> SystemTable:
        """Return a table of the mirror's own; ``loss`` is what is lost with it."""
        # In a catalog, only namespaces have tables.
        place = self._path(*((STATUS_NAME, name) if self.format == ICEBERG else (path,)))
        what = "table" if self.format == ICEBERG else "folder"
        hint = (
            f"Stop the mirror, and remove the {what} {place}: the mirror creates it again. {loss}"
        )
        return SystemTable(place, partial(self._open, place, is_small=True), schema, hint)

    def _open(self, path: str, *, is_small: bool = False, source: str | None = None) -> Target:
        if self.format == ICEBERG:
            assert self.spark is not None, "the lake is parsed"
            return IcebergTarget(
                self.spark, path, _APP_ID, source, self.write_mode, self.kept_seconds
            )
        if self.format == PARQUET:
            return ParquetTarget(path, _APP_ID, self.storage_options, by_date=not is_small)
        return DeltaTarget(path, _APP_ID, self.storage_options, self.write_mode, self.kept_seconds)

    def _path(self, *names: str) -> str:
        if self.format != ICEBERG:
            return "/".join([self.location, *names])
        encoded = (name.replace(".", "~2E") for name in names)
        return ".".join(map(quote_spark_identifier, [*self.location.split("."), *encoded]))


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
