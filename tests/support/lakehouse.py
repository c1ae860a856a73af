"""Jars of lakehouse formats, which Maven fetches, for the releases of Spark that have them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

#: Newest releases of Delta that Maven has, by the release of Spark.
DELTA: Final = {
    "4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
}

#: Settings of a session that has Delta's jars.
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # of 50, for a large table's files
}


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


def delta_settings() -> dict[str, str]:
    """Return the settings of a session with Delta; none without Delta for this Spark, or Maven."""
    import pyspark

    artifacts = DELTA.get(".".join(pyspark.__version__.split(".")[:2]), ())
    if not artifacts or shutil.which("mvn") is None:
        return {}
    jars = ":".join(str(jar(each)) for each in artifacts)
    return {"spark.driver.extraClassPath": jars, **DELTA_SETTINGS}
