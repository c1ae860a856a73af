"""Measurements of the mirror on Spark, with the CPU seconds of Java and of Python's workers."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import lake_data
from benchmarks.lake_cost import Cost, measured, tree_cpu
from benchmarks.lake_local import MEASURED, SCATTERED, UPDATES, Turns, check, typical, windows
from benchmarks.machine import BOTH_COMPILERS
from benchmarks.peers.programs import NotMeasuredError, build
from pgwire_codec.errors import OptionError
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgwire_codec.lake.mirror_options import MirroredBatch

SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "4g"}

FORMATS = ("delta", "parquet", "iceberg")

POSTGRESQL = (
    "org.postgresql:postgresql:42.7.8",
    "com.kohlschutter.junixsocket:junixsocket-common:2.10.1",  # the server has a Unix socket only
    "com.kohlschutter.junixsocket:junixsocket-native-common:2.10.1",
)

_WAIT = 120.0  # seconds for a turn
_REPOSITORY = Path.home() / ".m2" / "repository"


@dataclass(frozen=True)
class SparkCosts:
    """The start of a session, its first mirror, and one more of the same changes."""

    start: Cost
    cold: Cost
    warm: Cost


def mirror_twice(place: Path, form: str) -> SparkCosts:
    """Measure two mirrors of a format up to the end of the log, in one session.

    Raises ``NotMeasuredError`` without PySpark or the format's jars.
    """
    with session(format_settings(place, form)) as (spark, start):
        return SparkCosts(
            start,
            cold=_mirror_once(spark, place, form, "first"),
            warm=_mirror_once(spark, place, form, "second"),
        )


def turns(place: Path, rows: int, count: int) -> list[Turns]:
    """Measure turns of a few updates each, from the written log to the end of a micro-batch."""
    from pgwire_codec.spark import mirror

    changes = lake_data.Changes(rows)
    lake_data.write(place / "log", [changes.begin()])
    done: queue.Queue[MirroredBatch] = queue.Queue()
    costs = []
    with session(format_settings(place, "delta")) as (spark, _):
        target = f"delta:{place / 'spark'}"
        running = mirror(spark, place / "log", target, report=done.put).start()
        _await(done, place / "log")
        for _ in range(count):
            lake_data.write(place / "log", [changes.add(SCATTERED, UPDATES)])
            costs.append(measured(partial(_await, done, place / "log"), tree_cpu))
        running.stop()
        running.awaitTermination()
        check(Lake.parse(target, None, spark).status().read())
    return [
        Turns(last - MEASURED + 1, last, typical(costs[last - MEASURED : last]), 0, 0)
        for last in windows(count)
    ]


def _await(done: queue.Queue[MirroredBatch], log: Path) -> None:
    end = Log(log).end.lsn
    while done.get(timeout=_WAIT).until < end:
        pass


def format_settings(place: Path, form: str) -> dict[str, str]:
    """Return the settings of a session for a format's mirror; jars are fetched by Maven."""
    if form != "iceberg":
        return {}
    check_spark()
    from pgwire_codec.spark.local import iceberg_packages

    catalog = "spark.sql.catalog.lake"
    return {
        "spark.driver.extraClassPath": class_path(_artifact(iceberg_packages)),
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(place / "iceberg"),
    }


def delta_settings(*artifacts: str) -> dict[str, str]:
    """Return the settings of a session with Delta's jars, and others."""
    check_spark()
    from pgwire_codec.spark.local import DELTA_SETTINGS, delta_packages

    delta = _artifact(delta_packages)
    storage = f"io.delta:delta-storage:{delta.rpartition(':')[2]}"
    jars = {"spark.driver.extraClassPath": class_path(delta, storage, *artifacts)}
    return DELTA_SETTINGS | BOTH_COMPILERS | jars


def class_path(*artifacts: str) -> str:
    """Return jars of the local Maven repository, which Maven fetches if need be."""
    paths = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        folder = _REPOSITORY / group.replace(".", "/") / name / version
        if not (folder / f"{name}-{version}.jar").exists():
            goal = ["dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
            build("mvn", "-q", "-B", *goal, at=".")
        paths.append(str(folder / f"{name}-{version}.jar"))
    return ":".join(paths)


def _artifact(packages: Callable[[], str]) -> str:
    try:
        return packages()
    except OptionError as error:
        raise NotMeasuredError(str(error)) from error


def check_spark() -> None:
    """Raise ``NotMeasuredError`` without PySpark."""
    if find_spec("pyspark") is None:
        raise NotMeasuredError("PySpark is not installed")


@contextmanager
def session(settings: dict[str, str]) -> Iterator[tuple[SparkSession, Cost]]:
    """Start Spark; yield the session and the cost of its start."""
    check_spark()
    from pgwire_codec.spark.local import local_spark

    with ExitStack() as stack:
        started: list[SparkSession] = []

        def start() -> None:
            started.append(stack.enter_context(local_spark(SETTINGS | settings)))

        cost = measured(start, tree_cpu)
        yield started[0], cost


def _mirror_once(spark: SparkSession, place: Path, form: str, which: str) -> Cost:
    from pgwire_codec.spark import mirror

    target = f"iceberg:lake.{which}" if form == "iceberg" else f"{form}:{place / form / which}"
    running = mirror(spark, place / "log", target, once=True)
    cost = measured(running.run, tree_cpu)
    check(Lake.parse(target, None, spark).status().read())
    return cost
