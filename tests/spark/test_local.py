"""The Spark of a machine that commands start."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_ARGUMENTS = """
from pgwire_codec.spark.local import local_spark
with local_spark({"spark.driver.extraJavaOptions": "-Dgiven=1"}) as spark:
    factory = spark._jvm.java.lang.management.ManagementFactory
    print(*factory.getRuntimeMXBean().getInputArguments())
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
