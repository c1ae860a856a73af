"""A Spark of this machine, for commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyspark

from pgwire_codec.spark.java import ensure_java
from pgwire_codec.spark.sinks.delta_spark import EXTENSION
from pgwire_codec.spark.source import PgoutputDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of a session that has Delta.
_DELTA: Final = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

_DELTA_RELEASE: Final = "4.4.0"

#: Settings by one of which a user names Delta's jars.
_JARS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")

_SETTINGS: Final = {
    "spark.app.name": "pgwire_codec",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def delta_packages() -> str:
    """Return the name of Delta's jars, as Maven has them, for this release of Spark."""
    release = ".".join(pyspark.__version__.split(".")[:2])
    return f"io.delta:delta-spark_{release}_2.13:{_DELTA_RELEASE}"


@contextmanager
def local_spark(settings: Mapping[str, str], *, delta: bool = False) -> Iterator[SparkSession]:
    """Start a quiet Spark on all cores of this machine, which listens on loopback only.

    Parameters
    ----------
    settings : mapping of str to str
        Settings that replace the default ones.
    delta : bool
        Whether the session has Delta. Its jars are fetched from Maven, unless the settings name
        jars.
    """
    from pyspark.sql import SparkSession

    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = dict(_SETTINGS)
    if delta:
        chosen |= _DELTA
        if not any(name in settings for name in _JARS):
            chosen["spark.jars.packages"] = delta_packages()
    merged: dict[str, Any] = chosen | dict(settings)
    builder = SparkSession.builder.master("local[*]").config(map=merged)
    session = builder.getOrCreate()
    # In an editable installation, Spark does not find it by itself.
    session.dataSource.register(PgoutputDataSource)
    try:
        yield session
    finally:
        session.stop()
