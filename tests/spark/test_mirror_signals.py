"""A mirror's command ends well when its whole process group gets a signal, as a terminal does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, relation

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm")]

pytest.importorskip("deltalake")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_during_a_resume(tmp_path: Path, number: signal.Signals) -> None:
    """The resume ends first: Java goes on."""
    made, writer = MirrorOf(None, tmp_path, "local"), Writer(tmp_path)
    table = relation(1, ID, column("n", "numeric", typmod=(8 << 16 | 2) + 4))
    writer.commit(table, build.insert(1, "1", "NaN"))
    writer.flush()
    made.run()
    assert made.status()["public.t1"]["state"] == "set aside"
    command = [
        sys.executable, "-c", "from pgwire_codec.cli import main; main()", "mirror",
        "--log", made.log, "--to", made.target, "--checkpoint", str(tmp_path / "checkpoint"),
        "--conf", "spark.sql.shuffle.partitions=2", "--unrepresentable", "null",
        "--resume", "public.t1",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("these tables are read from the log: public.t1" in line for line in lines)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert '"state": "ok"' in out
    assert made.rows("public.t1") == [{"id": 1, "n": None}]
