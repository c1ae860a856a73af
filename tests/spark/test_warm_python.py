"""The Python that forks for each start of Spark's behaves as one that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only"),
]

PROGRAM = """\
import json, os, sys, time
if sys.argv[1:] == ["wait"]:
    print(os.getpid(), flush=True)
    time.sleep(600)
if sys.argv[1:] == ["raise"]:
    raise ValueError("raised")
json.dump([sys.argv[1:], os.environ.get("GIVEN"), os.getcwd(), sys.stdin.read()], sys.stdout)
print("done", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


pytest.importorskip("pyspark")
pytest.importorskip("deltalake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_arguments_environment_folder_and_descriptors(python: str, folder: Path) -> None:
    run = subprocess.run(
        [python, "-m", "program", "7", "x y"],
        cwd=folder,
        env={**os.environ, "GIVEN": "é"},
        input="read",
        capture_output=True,
        text=True,
    )
    assert run.returncode == 7
    assert run.stderr == "done\n"
    assert json.loads(run.stdout) == [["7", "x y"], "é", str(folder), "read"]


def test_an_exception(python: str, folder: Path) -> None:
    run = subprocess.run(
        [python, "-m", "program", "raise"], cwd=folder, capture_output=True, text=True
    )
    assert run.returncode == 1
    assert run.stderr.endswith("ValueError: raised\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_ends_with_the_one_that_asked(
    python: str, folder: Path, number: signal.Signals
) -> None:
    command = [python, "-m", "program", "wait"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as asked:
        assert asked.stdout is not None
        process = psutil.Process(int(asked.stdout.readline()))
        asked.send_signal(number)
        process.wait(10)
    assert asked.returncode == (128 + number if number == signal.SIGTERM else -number)


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "from tests.support.warm_python import warm_python\n"
        "with warm_python() as program:\n"
        "    print(program, flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, **pipes) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        [server] = psutil.Process(owner.pid).children()
        owner.kill()
        server.wait(30)
