"""``pgwire-codec mirror`` with a local Spark: output, signals and exit statuses."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pgwire_codec.cli.memory import settings_of_workers
from pgwire_codec.lake import mirroring
from pgwire_codec.lake.folder import LocalFolder
from pgwire_codec.log import Log
from pgwire_codec.log.consumers import parse_consumer
from tests.support import build
from tests.support.build import column
from tests.support.commands import SHELL, run
from tests.support.lakehouse import delta_rows
from tests.support.mirrors import ID, Writer, in_order, relation

ROOT = Path(__file__).parents[2]


def command(folder: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-c", "from pgwire_codec.cli import main; main()", "mirror",
        "--log", str(folder / "log"), "--to", f"delta:{folder / 'lake'}",
        "--checkpoint", str(folder / "checkpoint"), "--conf", "spark.sql.shuffle.partitions=2",
        *options,
    ]  # fmt: skip


def mirrored(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """Mirror the log once; return the exit status, the lines and stderr."""
    done = subprocess.run(
        command(folder, "--once", *options), cwd=ROOT, capture_output=True, text=True
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return in_order(delta_rows(folder / "lake" / "public" / table).to_pylist())


@pytest.mark.slow
def test_without_spark(tmp_path: Path) -> None:
    """In this process, which a signal ends after a turn."""
    pytest.importorskip("deltalake")
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    status, [line], errors = mirrored(tmp_path, "--runner", "local")
    assert (status, line["table"], line["state"], errors) == (0, "public.t1", "ok", "")
    read = parse_consumer(f"file:{tmp_path / 'checkpoint' / 'lsn'}").read_lsn()
    assert read == writer.lsn == Log(tmp_path / "log").end.lsn
    writer.commit(build.insert(1, "2"))
    writer.flush()
    with subprocess.Popen(
        command(tmp_path, "--runner", "local", "--every", "1 second"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["changes"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert rows(tmp_path, "t1") == [{"id": 1}, {"id": 2}]


def test_a_table_that_is_tried_again_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until --once gives up: the exit status, and what to do."""
    pytest.importorskip("deltalake")
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"), relation(2, ID), build.insert(2, "1"))
    writer.flush()
    method = LocalFolder.writer

    def fail(self: LocalFolder, path: str) -> Any:
        if self.uri.endswith("t1"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return method(self, path)

    monkeypatch.setattr(LocalFolder, "writer", fail)
    monkeypatch.setattr(mirroring, "_PATIENCE_SECONDS", 0.0)
    result = run("mirror", "--runner", "local", "--log", tmp_path / "log", "--to",
                 f"delta:{tmp_path / 'lake'}", "--once")  # fmt: skip
    assert result.exit_code == 4
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    states = {line["table"]: (line["state"], line["error"]) for line in lines}
    assert states["public.t2"] == ("ok", None)
    assert states["public.t1"][0] == "retrying"
    assert "Input/output error" in states["public.t1"][1]
    assert "Error: 1 table not complete: public.t1" in result.stderr
    assert "hint: Their errors are in the table _mirror of the target." in result.stderr


@pytest.mark.slow
def test_a_value_that_the_column_cannot_hold(tmp_path: Path) -> None:
    """The line has the value, its column and key, and the option for such values."""
    pytest.importorskip("deltalake")
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID, column("due", "date")), build.insert(1, "7", "infinity"))
    writer.flush()
    status, [line], errors = mirrored(tmp_path, "--runner", "local")
    assert (status, line["state"]) == (4, "set aside")
    for fact in ("infinity", "due", "id", "7"):
        assert fact in line["error"]
    assert "--unrepresentable" in line["hint"]
    assert "Error: 1 table set aside: public.t1" in errors
    options = ("--runner", "local", "--resume", "public.t1", "--unrepresentable", "null")
    status, [line], _ = mirrored(tmp_path, *options)
    assert (status, line["state"], line["hint"]) == (0, "ok", None)
    assert rows(tmp_path, "t1") == [{"id": 7, "due": None}]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_tables_are_mirrored_set_aside_and_resumed(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"), relation(2, ID), build.insert(2, "1"))
    writer.flush()
    status, lines, _ = mirrored(tmp_path, "--tables", "public.*")
    assert status == 0
    assert [(each["table"], each["state"], each["changes"]) for each in lines] == [
        ("public.t1", "ok", 1),
        ("public.t2", "ok", 1),
    ]
    assert {(each["batch"], each["until_lsn"], each["commit_lsn"]) for each in lines} == {
        (0, "0/A", "0/A")
    }
    wide = relation(1, ID, column("v"))
    writer.commit(wide, build.insert(1, "2", "v"), relation(2, ID), build.insert(2, "2"))
    writer.flush()
    status, lines, errors = mirrored(tmp_path, "--on-schema-change", "fail")
    assert status == 4
    assert "Error: 1 table set aside: public.t1\nhint: Their errors are in the" in errors
    assert [each["error"] for each in lines] == [
        "the table's columns changed: add column v string",
        None,
    ]
    assert rows(tmp_path, "t2") == [{"id": 1}, {"id": 2}]
    status, lines, errors = mirrored(tmp_path, "--resume", "public.t1")
    assert (status, [each["table"] for each in lines]) == (0, ["public.t1"])
    assert rows(tmp_path, "t1") == [{"id": 1, "v": None}, {"id": 2, "v": "v"}]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_changes_that_are_left_out_and_replayed(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    table = relation(1, ID, column("v", "numeric", typmod=(10 << 16) + 2 + 4))
    writer = Writer(tmp_path)
    writer.commit(table, build.insert(1, "1", "1.50"), build.insert(1, "2", "NaN"))
    writer.commit(b"?")
    writer.commit(build.insert(1, "3", "3.50"))
    writer.flush()
    status, [line], errors = mirrored(tmp_path, "--dead-letters")
    assert (status, line["state"], line["changes"], line["dead_letters"]) == (4, "ok", 2, 1)
    assert "left out: 1 of public.t1, 1 of no known table\nhint: Their errors are in" in errors
    status, lines, errors = mirrored(tmp_path)  # nothing new, and nobody has mended it
    assert (status, lines) == (4, [])
    options = ("--dead-letters", "--unrepresentable", "null", "--replay", "public.t1")
    status, [line], errors = mirrored(tmp_path, *options)
    assert (status, line["dead_letters"]) == (4, 0)
    assert "left out: 1 of no known table" in errors
    assert [row["v"] for row in rows(tmp_path, "t1")][1:] == [None, Decimal("3.50")]
    status, _, errors = mirrored(tmp_path, *options)
    assert status == 4
    assert "table public.t1 has no dead letters\nhint: Tables with dead letters: none." in errors


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_signal_ends_it_after_the_batch(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    with subprocess.Popen(
        command(tmp_path, "--every", "1 second"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["table"] == "public.t1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, process.stderr.read()
    assert rows(tmp_path, "t1") == [{"id": 1}]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "262144"}),
        ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc", "GLIBC_TUNABLES": "glibc.malloc.check=0"}, {}),
    ],
)
def test_workers_return_freed_memory(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], expected: dict[str, str]
) -> None:
    """By variables of Spark's Python workers, unless this process has some."""
    for name in ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    assert settings_of_workers() == {
        f"spark.executorEnv.{name}": value for name, value in expected.items()
    }


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """It ends the command, and sets no table aside: with space, all goes on."""
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    lake = tmp_path / "lake"
    lake.mkdir()
    mount = f"mount -t tmpfs -o size=256k tmpfs {lake}"
    if subprocess.run([*SHELL, mount], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    writer = Writer(tmp_path)
    random = Random(1)
    for key in range(2000):
        wide = build.insert(2, str(key), random.randbytes(200).hex())
        writer.commit(
            relation(1, ID), build.insert(1, str(key)), relation(2, ID, column("v")), wide
        )
    writer.flush()
    script = f"{mount} && {shlex.join(command(tmp_path, '--once'))}; s=$?; ls {lake}; exit $s"
    done = subprocess.run([*SHELL, script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    # The first one can fail, too: the second one fills the disk.
    error = r"Error: cannot write \S+/public/t\d\S*: No space left on device\nhint: Free some space"
    assert re.search(error, done.stderr), done.stderr
    assert done.stdout == "public\n"  # neither a line for a table, nor a status
    status, lines, _ = mirrored(tmp_path)
    assert (status, {each["state"] for each in lines}) == (0, {"ok"})
    assert len(rows(tmp_path, "t2")) == 2000


def test_usage(tmp_path: Path) -> None:
    options = ["--to", f"delta:{tmp_path}", "--checkpoint", tmp_path]
    result = run("mirror", "--log", tmp_path, *options, "--conf", "x")
    assert result.exit_code == 2
    assert "'x' is not NAME=VALUE" in result.stderr
    result = run("mirror", "--log", tmp_path / "none", *options)
    assert result.exit_code == 3
    assert "none is not a log: it has neither" in result.stderr
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    result = run("mirror", "--log", tmp_path / "log", *options, "--every", "5 parsecs")
    assert result.exit_code == 2
    assert "'5 parsecs' is not a time such as '10 seconds'" in result.stderr
    options[1] = "iceberg:/lake"
    result = run("mirror", "--log", tmp_path / "log", *options)
    assert result.exit_code == 2
    assert "unsupported target 'iceberg:/lake'\nhint: Use delta:LOCATION" in result.stderr


def test_spark_without_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", "9.1.0")
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    options = ["--to", "iceberg:lake", "--checkpoint", tmp_path / "checkpoint"]
    result = run("mirror", "--log", tmp_path / "log", *options)
    assert result.exit_code == 2
    assert "Iceberg has no runtime for Spark 9.1\nhint: Install pyspark of the release 4.1" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--mask", "public.t1.id"], "'public.t1.id' is not COLUMN=MASK"),
        (["--mask", "a=drop", "--mask", "a=keep"], "a has two values"),
        (["--mask", "a=sha"], "the mask of a must be drop, hash, constant:TEXT or keep, not 'sha'"),
        (["--mask", "a=hash"], "the mask hash needs a key"),
        (["--mask", "a=hash", "--mask-key-file", "KEY"], "must have at least 16 bytes, not 3"),
    ],
)
def test_masks_that_are_refused(tmp_path: Path, options: list[str], problem: str) -> None:
    """Before Spark starts."""
    pytest.importorskip("pyspark")
    key = tmp_path / "key"
    key.write_bytes(b"abc\n")
    chosen = [str(key) if each == "KEY" else each for each in options]
    log = ["--log", str(tmp_path), "--to", f"delta:{tmp_path}", "--checkpoint", str(tmp_path)]
    result = run("mirror", *log, *chosen)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.split())
