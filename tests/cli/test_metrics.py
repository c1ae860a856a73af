"""The option ``--metrics``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest

from pgwire_codec.cli.app import app
from tests.support.commands import run
from tests.support.log_captures import slots
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

pytest.importorskip("prometheus_client")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def answers(port: int, path: str, status: int) -> bool:
    from tests.support.metric_pages import Served

    try:
        return Served(port).get(path)[0] == status
    except OSError:  # not listening yet
        return False


@pytest.mark.slow
def test_capture_serves_its_metrics(table: Database, tmp_path: Path) -> None:
    from pgwire_codec.metrics import instruments as i
    from tests.support.metric_pages import Served

    made, port = table, free_port()
    arguments = [
        *("capture", "--dsn", made.dsn, "--slot", made.slot, "--publication", made.publication),
        *("--log", str(tmp_path / "log"), "--metrics", f"127.0.0.1:{port}"),
    ]
    command = [sys.executable, "-c", "from pgwire_codec.cli import main; main()", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        try:
            assert wait_until(lambda: answers(port, "/readyz", 200), 60)
            assert answers(port, "/healthz", 200)
            made.execute("INSERT INTO t VALUES (1, 'a')")
            assert wait_until(lambda: Served(port).page().get(i.TRANSACTIONS) == 1)
            page = Served(port).page()
            assert page.get(i.STATE, state="streaming") == 1
            assert wait_until(lambda: Served(port).page().get(i.SLOT_ACTIVE) == 1)
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_mirror_serves_its_metrics(tmp_path: Path) -> None:
    """A table that was set aside before is on the page from the start."""
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    from pgwire_codec.lake.lakehouse import Lake
    from pgwire_codec.lake.status import SET_ASIDE, TableStatus
    from pgwire_codec.metrics import instruments as i
    from tests.cli.test_mirror import ROOT, command
    from tests.support import build
    from tests.support.metric_pages import Served
    from tests.support.mirrors import ID, Writer, relation

    writer, port = Writer(tmp_path), free_port()
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    aside = TableStatus("public.t9", 9, state=SET_ASIDE, error="wrong")
    assert Lake.parse(str(tmp_path / "lake")).status().write([aside])
    with subprocess.Popen(
        command(tmp_path, "--every", "1 second", "--metrics", f"127.0.0.1:{port}"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert wait_until(lambda: answers(port, "/readyz", 503), 60)  # before Spark
            assert wait_until(lambda: answers(port, "/readyz", 200), 120)
            served = Served(port)
            assert served.page()[i.MIRROR_ACTIVE] == 1
            assert wait_until(lambda: served.page().get(i.TABLE_LSN, table="public.t1") == 10, 60)
            page = served.page()
            assert page.get(i.TABLE_STATE, table="public.t9", state="set aside") == 1
            assert page.get(i.TABLE_CHANGES, table="public.t1") == 1
            assert page[i.MIRROR_BATCHES] == 1
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


@pytest.mark.slow
def test_an_address_in_use_ends_it_before_it_begins(table: Database, tmp_path: Path) -> None:
    made = table
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = run(
            *("capture", "--dsn", made.dsn, "--slot", "new", "--publication", "p"),
            *("--log", tmp_path / "log", "--create-slot", "--idle-seconds", 1),
            *("--metrics", address),
        )
    assert result.exit_code == 3
    assert f"Error: cannot listen on {address}: Address already in use\nhint: Use" in result.stderr
    assert slots(made) == [made.slot]
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("command", ["capture", "mirror"])
def test_an_invalid_address(command: str, tmp_path: Path) -> None:
    given = {
        "capture": ["--slot", "s", "--publication", "p", "--log", str(tmp_path / "log")],
        "mirror": [],
    }
    if command == "mirror":
        pytest.importorskip("pyspark")
        (tmp_path / "log").mkdir()
        from tests.support import build
        from tests.support.mirrors import ID, Writer, relation

        writer = Writer(tmp_path)
        writer.commit(relation(1, ID), build.insert(1, "1"))
        writer.flush()
        given["mirror"] = [
            *("--log", str(tmp_path / "log"), "--to", f"delta:{tmp_path}/lake"),
            *("--checkpoint", str(tmp_path / "checkpoint")),
        ]
    result = run(command, *given[command], "--metrics", "9187")
    assert result.exit_code == 2, result.output
    assert "Error: invalid address '9187'\nhint: Use HOST:PORT, as 127.0.0.1:9187" in result.stderr


def test_commands_that_run_for_long_have_it() -> None:
    context = click.Context(app)
    commands = {name: app.get_command(context, name) for name in app.list_commands(context)}
    having = {
        name
        for name, command in commands.items()
        if command is not None and any("--metrics" in option.opts for option in command.params)
    }
    assert having == {"capture", "mirror"}
