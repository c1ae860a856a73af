"""The systemd units: their commands run, notify the service manager, and end as it expects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwire_codec import log
from pgwire_codec.cli import PERMANENT, RETRY, USAGE
from tests.cli.test_metrics import answers, free_port
from tests.support.deployment import (
    Notified,
    command_of_unit,
    environment_file,
    libpq_variables,
    started,
    stopped,
    unit,
)
from tests.support.lakehouse import delta_rows
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

pytest.importorskip("psycopg2")
pytest.importorskip("prometheus_client")

NAMES = ("capture", "mirror")
EXAMPLE = "/var/lib"  # systemd's %S


@pytest.fixture(params=[False, True], ids=["file", "abstract"])
def notified(request: pytest.FixtureRequest) -> Iterator[Notified]:
    with Notified(is_abstract=request.param) as receiver:
        yield receiver


def variables(made: Database, state: Path, receiver: Notified) -> dict[str, str]:
    """The variables of the example for a database, as systemd sets them for its units."""
    example = {
        name: value.replace(EXAMPLE, str(state)) for name, value in environment_file().items()
    }
    ports = {name: f"127.0.0.1:{free_port()}" for name in ("CAPTURE_METRICS", "MIRROR_METRICS")}
    return {
        **example,
        **libpq_variables(made),
        **ports,
        "PUBLICATION": made.publication,
        "NOTIFY_SOCKET": receiver.address,
        "WATCHDOG_USEC": "100000",
    }


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.slow
def test_capture(table: Database, tmp_path: Path, notified: Notified) -> None:
    made = table
    made.execute("INSERT INTO t VALUES (1, 'a')")
    given = variables(made, tmp_path, notified)
    arguments = command_of_unit("capture", given, tmp_path)
    with started(arguments, given | {"SLOT": "not used"}, tmp_path) as process:
        notified.until("READY=1", process)
        notified.until("STATUS=streaming: ", process)
        for _ in range(3):
            notified.until("WATCHDOG=1", process)
        assert answers(port(given["CAPTURE_METRICS"]), "/healthz", 200)
        folder = tmp_path / "pgwire-codec" / "shop" / "log"
        made.execute("INSERT INTO t VALUES (2, 'b')")
        assert wait_until(lambda: read_keys(folder) == [1, 2])
        assert stopped(process) == (0, "")
    received = notified.rest()
    assert received.count("READY=1") == received.count("STOPPING=1") == 1
    assert received.index("READY=1") < received.index("STOPPING=1")
    made.query("SELECT pg_drop_replication_slot('reader')")


def read_keys(folder: Path) -> list[int]:
    return [key for each in log.Log(folder).read("public.t") for key in each.new["k"].to_pylist()]


@pytest.mark.slow
def test_a_server_that_is_down(table: Database, tmp_path: Path, notified: Notified) -> None:
    """The unit is started, and its status has the reason for which it waits."""
    given = variables(table, tmp_path, notified) | {"PGPORT": "1"}
    with started(command_of_unit("capture", given, tmp_path), given, tmp_path) as process:
        status = notified.until("STATUS=waiting: ", process)
        assert "No such file or directory" in status
        assert "\n" not in status
        notified.until("READY=1", process)
        notified.until("WATCHDOG=1", process)
        assert stopped(process) == (0, "")
    assert "STOPPING=1" in notified.rest()


@pytest.mark.slow
def test_an_error_that_has_to_be_fixed(table: Database, tmp_path: Path) -> None:
    """The start fails: the unit was never ready, and is not started again."""
    with Notified() as receiver:
        given = variables(table, tmp_path, receiver) | {"PUBLICATION": "missing"}
        with started(command_of_unit("capture", given, tmp_path), given, tmp_path) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == PERMANENT, errors
        assert "READY=1" not in receiver.rest()
        assert any(text.startswith("STATUS=connecting") for text in receiver.received)


@pytest.mark.slow
def test_a_socket_that_nobody_reads(table: Database, tmp_path: Path) -> None:
    """It is on stderr once, and the capture goes on."""
    with Notified() as receiver:
        given = variables(table, tmp_path, receiver)
    arguments = command_of_unit("capture", given, tmp_path)
    with started(arguments, given, tmp_path) as process:
        assert wait_until(lambda: answers(port(given["CAPTURE_METRICS"]), "/readyz", 200), 60)
        status, errors = stopped(process)
    assert status == 0
    text = f"could not notify {given['NOTIFY_SOCKET']}: No such file or directory"
    assert errors.splitlines() == [text]
    table.query("SELECT pg_drop_replication_slot('reader')")


@pytest.mark.slow
def test_mirror(table: Database, tmp_path: Path) -> None:
    """The mirror's unit reads what the capture's wrote, and waits until it has."""
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    made = table
    made.execute("INSERT INTO t VALUES (1, 'a')")
    with Notified() as receiver, Notified() as of_capture:
        given = variables(made, tmp_path, receiver)
        mirror = command_of_unit("mirror", given, tmp_path)
        with started(mirror, given, tmp_path) as process:
            _, errors = process.communicate(timeout=60)
        assert process.returncode == RETRY, errors
        assert receiver.received == []
        capturing = given | {"NOTIFY_SOCKET": of_capture.address}
        arguments = command_of_unit("capture", given, tmp_path)
        with started(arguments, capturing, tmp_path) as capture:
            of_capture.until("STATUS=streaming", capture)
            with started(mirror, given, tmp_path) as process:
                receiver.until("READY=1", process, 300)
                status = receiver.until("STATUS=", process, 300)
                assert status.startswith("STATUS=applied micro-batch 0, up to ")
                assert status.endswith(" to 1 table")
                receiver.until("WATCHDOG=1", process)
                receiver.until("WATCHDOG=1", process)
                assert answers(port(given["MIRROR_METRICS"]), "/healthz", 200)
                returned = stopped(process)
                assert returned[0] == 0, returned[1]
            assert stopped(capture) == (0, "")
        assert receiver.rest().count("STOPPING=1") == 1
    rows = delta_rows(tmp_path / "pgwire-codec/shop/lake/public/t").to_pylist()
    assert rows == [{"k": 1, "v": "a"}]
    made.query("SELECT pg_drop_replication_slot('reader')")


@pytest.mark.parametrize("name", NAMES)
def test_restarts_by_exit_status(name: str) -> None:
    settings = unit(name)
    assert settings["Type"] == "notify"
    assert settings["Restart"] == "on-failure"
    if name == "mirror":  # a signal to Java would end the micro-batch
        assert settings["KillMode"] == "mixed"
    assert {int(status) for status in settings["RestartPreventExitStatus"].split()} == {
        USAGE,
        PERMANENT,
    }
