"""Jars of lakehouse formats, which Maven fetches, for the releases of Spark that have them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

import pytest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Newest releases of Delta that Maven has, by the release of Spark.
DELTA: Final = {
    "4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
}

#: Newest releases of Iceberg's Spark runtime, by the release of Spark.
ICEBERG: Final = {"4.1": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)}

#: Writers of tables, as the tests name them: a mirror without Spark, or the format of one with it,
#: or of merge_into.
ENGINES: Final = ("local", "delta", "iceberg", "parquet")

#: The cheapest first.
_CHEAP: Final = ("local", "delta")

#: Those of mirrors that need Spark.
_ON_SPARK: Final = ("delta", "iceberg", "parquet")


def jar(artifact: str) -> Path:
    """Return an artifact from the local Maven repository; Maven fetches it if need be.

    Skips the test without Maven.
    """
    group, name, version, *rest = artifact.split(":")
    classifier = f"-{rest[1]}" if rest else ""
    folder = Path.home() / ".m2" / "repository" / group.replace(".", "/") / name / version
    path = folder / f"{name}-{version}{classifier}.jar"
    if not path.exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip(f"needs {path.name}, or mvn to fetch it")
        fetch = [maven, "-q", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        done = subprocess.run(fetch, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return path


def has(artifacts: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a lakehouse's jars can be had for this Spark."""
    return (
        find_spec("pyspark") is not None
        and _release() in artifacts
        and shutil.which("mvn") is not None
    )


def mark_engines(items: Iterable[pytest.Item]) -> None:
    """Mark what asks more than one engine the same as thorough, with all of them but one.

    The one is another from test to test: mostly the cheapest.
    """
    scenarios: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        parameters: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
        texts = {name: each for name, each in parameters.items() if isinstance(each, str)}
        engine = next((each for each in texts.values() if each in ENGINES), None)
        if engine in _ON_SPARK and {"made", "shop"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group(f"spark-{crc32(item.path.name.encode()) % 2}"))
        if engine is not None and not item.get_closest_marker("thorough"):
            others = item.nodeid.replace(engine, "")
            scenarios.setdefault(others, {})[engine] = item
    lacking = {
        "delta": not has(DELTA),
        "iceberg": not has(ICEBERG),
        "parquet": find_spec("pyspark") is None,
    }
    for scenario, by_engine in scenarios.items():
        usable = [each for each in by_engine if not lacking.get(each)]
        chosen = [each for each in _CHEAP if each in usable][:1] * 9 + usable
        kept = chosen[crc32(scenario.encode()) % len(chosen)] if chosen else None
        for engine, item in by_engine.items():
            if engine != kept and engine in usable:
                item.add_marker(pytest.mark.thorough)


def usable_engine(name: str) -> str:
    """Return the name of an engine; skip the test if it cannot be had."""
    pytest.importorskip("deltalake")
    if name == "iceberg" and not has(ICEBERG):
        pytest.skip("needs Iceberg's Spark runtime, which Maven fetches for Spark 4.1")
    return name


def usable_format(name: str) -> str:
    """Return the name of a mirror's runner or format; skip the test if it cannot be had."""
    pytest.importorskip("deltalake")
    if name == "delta" and not has(DELTA):
        pytest.skip("needs Delta's jars to read, which Maven fetches for Spark 4.1 and 4.2")
    return usable_engine(name)


def lakehouse_settings() -> dict[str, str]:
    """Return the settings of a session with the lakehouses that this Spark has jars of."""
    artifacts = [each for jars in (DELTA, ICEBERG) if has(jars) for each in jars[_release()]]
    if not artifacts:
        return {}
    jars = ":".join(str(jar(each)) for each in artifacts)
    settings = {"spark.driver.extraClassPath": jars}
    if has(DELTA):
        from pgwire_codec.spark.local import DELTA_SETTINGS  # needs Spark 4

        # Of 50, for a large table's files.
        settings |= DELTA_SETTINGS | {"spark.databricks.delta.snapshotPartitions": "1"}
    return settings


def delta_rows(path: Path | str, version: int | None = None) -> pa.Table:
    """Return the rows of a Delta table, which may have deletion vectors."""
    import deltalake
    import pyarrow as pa

    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path), version))
    rows = pa.table(query.execute("SELECT * FROM t").read_all())
    # PyArrow does not sort views.
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kinds = [pa.field(each.name, plain.get(each.type, each.type)) for each in rows.schema]
    return rows.cast(pa.schema(kinds))


def iceberg_catalog(spark: SparkSession, warehouse: Path) -> str:
    """Return the name of a session's Iceberg catalog of tables in a folder."""
    name = f"lake_{hashlib.sha256(str(warehouse).encode()).hexdigest()[:8]}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(warehouse),
    }
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}{setting}", value)
    return name


def iceberg_table(spark: SparkSession, table: str) -> pa.Table:
    """Return the rows that a table of a catalog has now."""
    spark.sql(f"REFRESH TABLE {table}")
    return spark.table(table).toArrow()


def iceberg_snapshots(spark: SparkSession, table: str) -> list[int]:
    """Return the snapshots that a table of a catalog has had, oldest first."""
    spark.sql(f"REFRESH TABLE {table}")
    history = spark.sql(f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at")
    return [row[0] for row in history.collect()]


def _release() -> str:
    return ".".join(version("pyspark").split(".")[:2])
