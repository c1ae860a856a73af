"""Lake: the place of a mirror's tables, and the program that writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pgwire_codec.errors import OptionError
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.mirroring.status import StatusTable, status_table
from pgwire_codec.spark.sinks.delta_spark import EXTENSION
from pgwire_codec.spark.sinks.merge import open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgwire_codec.spark.sinks.target import Target

#: Name of the status table.
STATUS: Final = "_mirror"

#: Name of the stream of changes in the commits of the tables.
_APP_ID: Final = "pgwire_codec"

_FORMAT: Final = "delta"


@dataclass(frozen=True, slots=True)
class Lake:
    """Folder of a mirror's tables.

    Attributes
    ----------
    location : str
        Path or URI.
    engine : {"delta-rs", "delta-spark"}
        As for :func:`merge_into`.
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
        location = parse_target(target)
        if engine is None:
            has_delta = EXTENSION in (spark.conf.get("spark.sql.extensions", "") or "")
            engine = "delta-spark" if has_delta and not storage_options else "delta-rs"
        return cls(location.rstrip("/"), engine, dict(storage_options or {}))

    def path(self, relation: Relation) -> str:
        """Return the location of a table.

        Characters of its names that are not ASCII letters, digits or one of ``_-.`` are encoded as
        in a URL, but with ``~`` in place of ``%``; so is a first ``_`` or ``.``.
        """
        names = (relation.namespace or "pg_catalog", relation.name)
        return "/".join([self.location, *map(_segment, names)])

    def open(self, spark: SparkSession, relation: Relation) -> Target:
        """Return a table, which need not exist. ``spark`` is the session of its changes."""
        return open_target(
            spark, self.engine, self.path(relation), _APP_ID, self.storage_options or None
        )

    def status(self, spark: SparkSession) -> StatusTable:
        """Return the status table, which need not exist."""
        path = f"{self.location}/{STATUS}"
        return status_table(spark, path, self.engine, self.storage_options)


def parse_target(target: str) -> str:
    """Return the location of a target ``delta:LOCATION``, or of a location alone."""
    kind, separator, location = target.partition(":")
    if not separator or location.startswith("//"):
        kind, location = _FORMAT, target
    if kind != _FORMAT or not location:
        raise OptionError(
            f"unsupported target {target!r}",
            hint="Use delta:LOCATION, where LOCATION is a path or a URI of a folder.",
        )
    return location


def _segment(name: str) -> str:
    # Not %, because delta-rs decodes it.
    encoded = quote(name, safe="").replace("~", "%7E").replace("%", "~")
    # Spark hides files whose names begin so, and the status table has such a name.
    return f"~{ord(encoded[0]):02X}{encoded[1:]}" if encoded[:1] in (".", "_") else encoded
