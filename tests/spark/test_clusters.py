"""The source on executors in processes of their own, and on Spark Connect."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import build, spark_logs
from tests.support.build import column

#: Spark Connect listens on one port: what starts it runs in one process, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.xdist_group("connect")]

ROOT = Path(__file__).parent.parent.parent
IDS = list(range(10, 130, 10))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with some segments of two tables."""
    for number in range(1, 3):
        changes = []
        for lsn in IDS[6 * (number - 1) : 6 * number]:
            for oid, name in ((1, "a"), (2, "b")):
                relation = build.relation(oid, column("id", "int4", key=True), name=name)
                row = build.insert(oid, str(lsn))
                changes += build.transaction(relation, row, lsn=lsn + oid)
        spark_logs.write(tmp_path / "log", build.wire(changes), part_bytes=100, flushes=3)
    return tmp_path


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    pytest.importorskip("pyspark.sql.datasource", reason="needs Spark 4")
    from pyspark.find_spark_home import _find_spark_home

    from pgwire_codec.spark.java import ensure_java

    ensure_java()
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": _find_spark_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def check(master: str, folder: Path, environment: dict[str, str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.cluster_job", master, str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    ways = ["batch", "stream", "decode_changes"]
    assert found == dict.fromkeys(ways, IDS)


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "connect"])
def test_a_master_that_spark_starts(folder: Path, environment: dict[str, str], master: str) -> None:
    check(master, folder, environment)


@pytest.fixture
def standalone(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A master and two workers, of one core and 1 GiB each, as processes; the master's address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    workers = ["-c", "1", "-m", "1g", "-d", str(tmp_path / "work"), address]
    commands = [
        ["master.Master", *common, "--port", str(port)],
        *[["worker.Worker", *common, *workers]] * 2,
    ]
    launcher = Path(environment["SPARK_HOME"], "bin/spark-class")
    log = tmp_path / "cluster.log"
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        for name, *arguments in commands:
            process = subprocess.Popen(
                [str(launcher), f"org.apache.spark.deploy.{name}", *arguments],
                env=environment,
                stdout=output,
                stderr=output,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        deadline = time.monotonic() + 120
        while len(re.findall(r"Registering worker 127", log.read_text("utf-8"))) < 2:
            assert time.monotonic() < deadline, log.read_text("utf-8")[-4000:]
            time.sleep(0.2)
        yield address


def test_a_standalone_cluster(folder: Path, environment: dict[str, str], standalone: str) -> None:
    check(standalone, folder, environment)
