"""The systemd unit: its command runs, notifies the service manager, and ends as it expects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwire_codec import log
from pgwire_codec.cli import PERMANENT, USAGE
from tests.cli.test_metrics import answers, free_port
from tests.support.deployment import DEPLOY, Notified, command_of_unit, started, stopped, unit
from tests.support.lakehouse import delta_rows
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

pytest.importorskip("psycopg2")
pytest.importorskip("prometheus_client")

DSN = "host=localhost dbname=shop user=reader passfile=/etc/pgwire-codec/shop.pgpass"


@pytest.fixture(params=[False, True], ids=["file", "abstract"])
def notified(request: pytest.FixtureRequest) -> Iterator[Notified]:
    with Notified(is_abstract=request.param) as receiver:
        yield receiver


def configure(made: Database, folder: Path, **replaced: str) -> int:
    """Write the example's file for a database; return the port of its metrics."""
    port = free_port()
    text = (DEPLOY / "systemd" / "shop.toml").read_text(encoding="utf-8")
    changes = {
        DSN: made.dsn,
        '"shop"\n': f'"{made.publication}"\n',
        "/var/lib": f"{folder}/lib",
        ":9187": f":{port}",
        **replaced,
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (folder / "pgwire-codec").mkdir()
    (folder / "pgwire-codec" / "shop.toml").write_text(text, encoding="utf-8")
    return port


def variables(receiver: Notified) -> dict[str, str]:
    """Return the variables that systemd sets."""
    return {"NOTIFY_SOCKET": receiver.address, "WATCHDOG_USEC": "100000"}


@pytest.mark.slow
def test_capture_and_mirror(table: Database, tmp_path: Path, notified: Notified) -> None:
    pytest.importorskip("deltalake")
    made = table
    made.execute("INSERT INTO t VALUES (1, 'a')")
    port = configure(made, tmp_path)
    with started(command_of_unit(tmp_path), variables(notified), tmp_path) as process:
        notified.until("READY=1", process)
        notified.until("STATUS=capture: streaming: ", process)
        for _ in range(3):
            notified.until("WATCHDOG=1", process)
        applied = "mirror: applied micro-batch 0, up to "
        assert wait_until(lambda: any(applied in text for text in notified.received), 60)
        assert answers(port, "/healthz", 200)
        assert answers(port, "/readyz", 200)
        state = tmp_path / "lib" / "pgwire-codec" / "shop"
        made.execute("INSERT INTO t VALUES (2, 'b')")
        assert wait_until(lambda: read_keys(state / "log") == [1, 2])
        status, errors = stopped(process)
        assert status == 0, errors
    received = notified.rest()
    assert received.count("READY=1") == received.count("STOPPING=1") == 1
    assert received.index("READY=1") < received.index("STOPPING=1")
    assert {"k": 1, "v": "a"} in delta_rows(state / "lake" / "public" / "t").to_pylist()
    made.query("SELECT pg_drop_replication_slot('reader')")


def read_keys(folder: Path) -> list[int]:
    return [key for each in log.Log(folder).read("public.t") for key in each.new["k"].to_pylist()]


@pytest.mark.slow
def test_a_server_that_is_down(table: Database, tmp_path: Path) -> None:
    """The unit is started, and its status has the reason for which it waits."""
    configure(table, tmp_path, **{table.dsn: "host=/nowhere"})
    with Notified() as receiver:
        given = variables(receiver)
        with started(command_of_unit(tmp_path), given, tmp_path) as process:
            status = receiver.until("STATUS=capture: waiting: ", process)
            assert "No such file or directory" in status
            assert "\n" not in status
            receiver.until("READY=1", process)
            receiver.until("WATCHDOG=1", process)
            status, errors = stopped(process)
            assert status == 0, errors
        assert "STOPPING=1" in receiver.rest()


@pytest.mark.slow
def test_an_error_that_has_to_be_fixed(table: Database, tmp_path: Path) -> None:
    """The start fails: the unit was never ready, and is not started again."""
    configure(table, tmp_path, **{f'"{table.publication}"\n': '"missing"\n'})
    with Notified() as receiver:
        given = variables(receiver)
        with started(command_of_unit(tmp_path), given, tmp_path) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == PERMANENT, errors
        assert "READY=1" not in receiver.rest()
        assert any(text.startswith("STATUS=capture: connecting") for text in receiver.received)


@pytest.mark.slow
def test_a_socket_that_nobody_reads(table: Database, tmp_path: Path) -> None:
    """It is on stderr once, and the capture goes on."""
    port = configure(table, tmp_path)
    with Notified() as receiver:
        given = variables(receiver)
    with started(command_of_unit(tmp_path), given, tmp_path) as process:
        assert wait_until(lambda: answers(port, "/readyz", 200), 60)
        status, errors = stopped(process)
    assert status == 0
    text = f"could not notify {given['NOTIFY_SOCKET']}: No such file or directory"
    assert errors.splitlines().count(text) == 1
    table.query("SELECT pg_drop_replication_slot('reader')")


def test_restarts_by_exit_status() -> None:
    settings = unit()
    assert settings["Type"] == "notify"
    assert settings["Restart"] == "on-failure"
    assert settings["KillMode"] == "mixed"  # the processes are stopped by the first one
    assert {int(status) for status in settings["RestartPreventExitStatus"].split()} == {
        USAGE,
        PERMANENT,
    }
