"""A Spark of this machine, for commands."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import pyspark

from pgwire_codec.errors import OptionError
from pgwire_codec.spark.java import ensure_java
from pgwire_codec.spark.java_archive import archive_options
from pgwire_codec.spark.source import PgoutputDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Settings of a session that has Delta.
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

_DELTA_RELEASE: Final = "4.4.0"

#: Newest release of Iceberg's Spark runtime, for the releases of Spark that have one.
_ICEBERG_RELEASES: Final = {"4.1": "1.12.0"}

#: Settings by one of which a user names the jars.
_JARS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")

_SETTINGS: Final = {
    "spark.app.name": "pgwire_codec",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    # A merge has about 60 classes of generated code: by default, Spark keeps 100 of all.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

#: Java's second compiler costs more than it saves: rows do not pass through Java. By default, the
#: first one alone has too little room for the code that Spark generates.
_COMPILES: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

#: Java returns what its native code freed, each minute. By default, glibc keeps it: 64 MB of a
#: mirror after half an hour. Only from Java 17.0.9 on.
_RETURNS_FREED: Final = "-XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=60000"


def delta_packages() -> str:
    """Return the name of Delta's jars, as Maven has them, for this release of Spark."""
    return f"io.delta:delta-spark_{_release()}_2.13:{_DELTA_RELEASE}"


def iceberg_packages() -> str:
    """Return the name of Iceberg's Spark runtime, as Maven has it, for this release of Spark.

    Raises ``OptionError`` for a release without one.
    """
    release = _release()
    if release not in _ICEBERG_RELEASES:
        raise OptionError(
            f"Iceberg has no runtime for Spark {release}",
            hint=f"Install pyspark of the release {', '.join(_ICEBERG_RELEASES)}. Or name a "
            "runtime of yours, as --conf spark.jars=FILE.",
        )
    runtime = f"iceberg-spark-runtime-{release}_2.13"
    return f"org.apache.iceberg:{runtime}:{_ICEBERG_RELEASES[release]}"


@contextmanager
def local_spark(
    settings: Mapping[str, str], lakehouse: Literal["delta", "iceberg"] | None = None
) -> Iterator[SparkSession]:
    """Start a quiet Spark on all cores of this machine, which listens on loopback only.

    Java's standard output is the standard error of this process. Java runs in a session of its own:
    a signal to the group of this process, as a terminal sends it, does not end Java, which ends
    with this process.

    ``settings`` replace the default ones. The jars of ``lakehouse`` are fetched from Maven, unless
    the settings name jars. Raises ``OptionError`` if it has none for this release of Spark.
    """
    from pyspark.sql import SparkSession

    of_lakehouse: dict[str, str] = {}
    if lakehouse == "delta":
        # Tasks that read the state of a table after each commit: 50 by default, for huge tables.
        partitions = str(os.cpu_count() or 1)
        of_lakehouse = {**DELTA_SETTINGS, "spark.databricks.delta.snapshotPartitions": partitions}
    if lakehouse is not None and not any(name in settings for name in _JARS):
        of_lakehouse["spark.jars.packages"] = _PACKAGES[lakehouse]()
    with local_context(of_lakehouse | dict(settings)):
        with _output_to_stderr():
            session = SparkSession.builder.getOrCreate()
        # In an editable installation, Spark does not find it by itself.
        session.dataSource.register(PgoutputDataSource)
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def local_context(settings: Mapping[str, str]) -> Iterator[SparkContext]:
    """Start the Spark of :func:`local_spark` without a session, which takes as long to start."""
    chosen: dict[str, Any] = _SETTINGS | dict(settings)
    chosen.setdefault("spark.master", "local[*]")
    options = [_COMPILES, archive_options(ensure_java(), settings)]
    if platform.libc_ver()[0] == "glibc":
        options.append(_RETURNS_FREED)
    chosen.setdefault("spark.driver.defaultJavaOptions", " ".join(options))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _output_to_stderr():
        context = _start_java(chosen)
    try:
        yield context
    finally:
        context.stop()


def _start_java(settings: Mapping[str, str]) -> SparkContext:
    """Return the context of this process's Java, which is started with one unless it runs."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if SparkContext._gateway is not None:
        return SparkContext.getOrCreate(conf)
    launch: Any = launch_gateway
    return SparkContext(conf=conf, gateway=launch(conf, {"start_new_session": True}))


@contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Have processes that start in the context write their standard output to standard error.

    The command's own stays as it is, such as JSON lines. Delta's ``VACUUM`` prints to Java's.
    """
    if sys.stdout is None or sys.stderr is None:  # the process was started with one of them closed
        yield
        return
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def _release() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])


_PACKAGES: Final = {"delta": delta_packages, "iceberg": iceberg_packages}
