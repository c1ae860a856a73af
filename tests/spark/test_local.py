"""The Spark of a machine that commands start."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lakehouse import lakehouse_settings, usable_format

ROOT = Path(__file__).parents[2]

_ARGUMENTS = """
from pgwire_codec.spark.local import local_spark
with local_spark({"spark.driver.extraJavaOptions": "-Dgiven=1"}) as spark:
    factory = spark._jvm.java.lang.management.ManagementFactory
    print(*factory.getRuntimeMXBean().getInputArguments())
"""

_OUTPUT = """
import json, sys
from pgwire_codec.spark.local import local_spark
settings, vacuumed = json.loads(sys.argv[1])
print("before")
with local_spark(settings) as spark:
    spark._jvm.java.lang.System.out.println("of Java")
    if vacuumed is not None:
        spark.range(1).write.format("delta").save(vacuumed)
        spark.sql(f"VACUUM delta.`{vacuumed}`").collect()
    print("after")
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the option is for glibc's malloc")
def test_java_returns_freed_memory() -> None:
    """Also if a user has options for it."""
    pytest.importorskip("pyspark")
    command = [sys.executable, "-c", _ARGUMENTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"-XX:TrimNativeHeapInterval=60000", "-Dgiven=1"} <= set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "delta"])
def test_output_of_java(engine: str | None, tmp_path: Path) -> None:
    """It is not among a command's own lines, such as JSON."""
    pytest.importorskip("pyspark")
    settings, vacuumed = {}, None
    if engine is not None:
        usable_format(engine)
        settings, vacuumed = lakehouse_settings(), str(tmp_path / "table")
    command = [sys.executable, "-c", _OUTPUT, json.dumps([settings, vacuumed])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["before", "after"]
    lines = done.stderr.splitlines()
    assert "of Java" in lines
    assert engine is None or any(line.startswith("Deleted 0 files") for line in lines)
