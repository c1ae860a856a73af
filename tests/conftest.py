"""Fixtures that every test file shares, and the settings of the property tests."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zlib import crc32

import hypothesis
import pytest

import pgwire_codec as pgc
from tests.support.implementations import Implementation, implementation
from tests.support.java_archive import OPTIONS
from tests.support.lakehouse import mark_engines
from tests.support.warm_python import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.servers", "tests.support.costs"]

#: Files that need more than the core: they are left out if the package is not installed.
NEEDS = {
    "psycopg2": ["capture/*", "demo/*", "families/test_server.py", "soak/*"],
    "prometheus_client": ["metrics/*"],
    "adbc_driver_postgresql": ["benchmarks/test_benchmarks.py"],
}
MISSING = [package for package in NEEDS if find_spec(package) is None]
collect_ignore_glob = [pattern for package in MISSING for pattern in NEEDS[package]]

# ci: the same examples each time, so that a red build is red again; dev: new ones each time.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

os.environ.setdefault("JDK_JAVA_OPTIONS", OPTIONS)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"


def pytest_report_header() -> list[str]:
    return [
        f"pgwire_codec: {getattr(pgc, 'IMPL', '?')}, python {platform.python_version()}, "
        f"pyarrow {_version('pyarrow')}, pyspark {_version('pyspark')}",
        *(f"without {package}, left out: {', '.join(NEEDS[package])}" for package in MISSING),
    ]


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures: Spark's go into two processes, the codec's run on both."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures and not item.get_closest_marker("xdist_group"):
            # A file's tests stay together, as the data that they share.
            number = crc32(item.path.name.encode()) % 2
            item.add_marker(pytest.mark.xdist_group(f"spark-{number}"))
        if "codec" in fixtures:
            item.add_marker(pytest.mark.both)
    mark_engines(items)


#: If one is requested, the other one is not tested.
IMPLEMENTATIONS = {"python": ["python"], "cython": ["cython"]}.get(
    os.environ.get("PGWIRE_CODEC_IMPL", ""), ["python", "cython"]
)


@pytest.fixture(scope="session", params=IMPLEMENTATIONS)
def codec(request: pytest.FixtureRequest) -> Implementation:
    """Each of the two implementations, for what must be so in whichever is in use."""
    return implementation(request.param)


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """Program that Spark starts as its Python: it forks one that has its imports."""
    with warm_python() as program:
        yield program


@pytest.fixture
def warm(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands that start a Spark of their own: their Python processes are forked."""
    monkeypatch.setenv("PYSPARK_PYTHON", python)


@pytest.fixture(scope="session")
def spark(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark of two cores, started once. Tests that use it are marked slow."""
    if sys.version_info < (3, 11):
        pytest.skip("the extra for Spark needs Python 3.11")
    from pyspark.sql import SparkSession

    from pgwire_codec.spark.java import ensure_java
    from tests.support.lakehouse import lakehouse_settings

    ensure_java()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", python)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("pgwire_codec tests")
            .config("spark.driver.memory", "4g")
            # Rows of a mirror do not pass through the driver.
            .config("spark.driver.maxResultSize", "16m")
            # Java's second compiler costs more than it saves in a session of a few minutes. The
            # first one alone has 48 MB for code, which generated code can fill.
            .config(
                "spark.driver.extraJavaOptions",
                "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
            )
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            # Spark matches mapInArrow's columns by position and checks nothing unless asked.
            .config("spark.sql.execution.arrow.pyspark.validateSchema.enabled", "true")
            .config(map=lakehouse_settings())
            .getOrCreate()
        )
    # Commands that a test starts have an environment without the session's.
    yield session
    session.stop()
