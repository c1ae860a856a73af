"""The supervisor of ``pgwire-codec run``, with small programs in place of the commands."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pgwire_codec.cli import DIFFERENT, PERMANENT, RETRY, USAGE, supervisor
from pgwire_codec.cli.supervisor import Supervisor
from tests.support.deployment import Notified
from tests.support.slot_captures import wait_until

if not hasattr(socket, "AF_UNIX"):
    pytest.skip("systemd's sockets are Unix's", allow_module_level=True)

#: A child whose only argument is its program. `notify` sends to the service manager, and `again`
#: counts the processes of a name. Modules that start slowly are not imported.
PROGRAM = """
import os, sys, time, signal, json, socket
from pathlib import Path
def notify(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
def again(name):
    path = Path(name)
    number = int(path.read_text()) if path.exists() else 0
    path.write_text(str(number + 1))
    return number
exec(json.loads(sys.stdin.readline())[0])
"""

#: Runs until SIGTERM, after which it ends in order.
LASTING = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
notify("READY=1")
while True:
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_PROGRAM", PROGRAM)
    monkeypatch.setattr("pgwire_codec.capture.connection.backoff._FIRST", 0.02)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)


def supervised(
    folder: Path,
    programs: dict[str, str],
    *,
    until: Callable[[], bool] | None = None,
    once: bool = False,
    stop_seconds: float = 20.0,
    silent_seconds: float = 20.0,
) -> int:
    """Run programs; with ``until``, stop them as soon as it is true. Return the exit status."""
    running = Supervisor(
        {name: [program] for name, program in programs.items()},
        folder,
        once=once,
        stop_seconds=stop_seconds,
        silent_seconds=silent_seconds,
    )
    signalled: list[int] = []

    def stop() -> None:
        assert until is not None
        wait_until(until, 20)
        signalled.append(signal.SIGTERM)

    if until is None:
        return running.run(signalled)
    thread = threading.Thread(target=stop)
    thread.start()
    status = running.run(signalled)
    thread.join()
    return status


def starts(folder: Path, name: str) -> int:
    path = folder / name
    return int(path.read_text() or 0) if path.exists() else 0


@pytest.mark.parametrize("status", [0, DIFFERENT, RETRY, 5])
def test_a_process_that_ends_is_started_again(tmp_path: Path, status: int) -> None:
    program = f"if again('capture') < 2: sys.exit({status})\n{LASTING}"
    assert (
        supervised(tmp_path, {"capture": program}, until=lambda: starts(tmp_path, "capture") == 3)
        == 0
    )
    assert starts(tmp_path, "capture") == 3


def test_a_killed_process_is_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"if again('capture') == 0: os.kill(os.getpid(), signal.SIGKILL)\n{LASTING}"
    assert (
        supervised(tmp_path, {"capture": program}, until=lambda: starts(tmp_path, "capture") == 2)
        == 0
    )
    assert "capture ended with signal 9: starting it again in 0." in capfd.readouterr().err


@pytest.mark.parametrize("status", [USAGE, PERMANENT])
def test_a_status_that_a_new_start_does_not_change_ends_all(
    tmp_path: Path, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    stopping = (
        "signal.signal(signal.SIGTERM, lambda *_: (print('stopped', flush=True), sys.exit(0)))"
    )
    programs = {
        "capture": f"{stopping}\nnotify('READY=1')\nPath('begun').touch()\ntime.sleep(60)",
        "mirror": f"while not Path('begun').exists(): time.sleep(0.01)\nsys.exit({status})",
    }
    assert supervised(tmp_path, programs) == status
    output = capfd.readouterr()
    assert output.out == "capture | stopped\n"
    assert f"run     | mirror ended with status {status}, which a new start" in output.err


def test_the_second_one_starts_when_the_first_is_ready(tmp_path: Path) -> None:
    programs = {
        "capture": f"time.sleep(0.3); Path('first').touch(); again('capture')\n{LASTING}",
        "mirror": f"assert Path('first').exists(); again('mirror')\n{LASTING}",
    }
    assert supervised(tmp_path, programs, until=lambda: starts(tmp_path, "mirror") == 1) == 0
    assert (starts(tmp_path, "capture"), starts(tmp_path, "mirror")) == (1, 1)


def test_once_runs_one_after_the_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    programs = {"capture": "print('captured')", "mirror": "print('mirrored')"}
    assert supervised(tmp_path, programs, once=True) == 0
    assert capfd.readouterr().out == "capture | captured\nmirror  | mirrored\n"
    assert supervised(tmp_path, programs | {"capture": "sys.exit(3)"}, once=True) == RETRY
    assert capfd.readouterr().out == ""


def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nagain('capture')\ntime.sleep(60)"
    status = supervised(
        tmp_path,
        {"capture": program},
        until=lambda: starts(tmp_path, "capture") == 1,
        stop_seconds=0.2,
    )
    assert status == RETRY
    assert capfd.readouterr().err.count("capture has not ended for 0.2 s: killing it") == 1


def test_a_process_without_a_sign_of_life_is_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that is alive is not, and neither is one that is not ready yet."""
    alive = "notify('READY=1')\nwhile True: time.sleep(0.05); notify('WATCHDOG=1')"
    programs = {
        "capture": f"notify('READY=1')\nif again('capture') < 1: time.sleep(60)\n{alive}",
        "mirror": f"again('mirror'); time.sleep(1)\n{alive}",
    }
    status = supervised(
        tmp_path, programs, until=lambda: starts(tmp_path, "capture") == 2, silent_seconds=0.5
    )
    assert status == 0  # SIGTERM ends them by the signal itself
    assert "capture shows no sign of life: killing it" in capfd.readouterr().err
    assert starts(tmp_path, "mirror") == 1


def test_lines_have_the_prefix_of_their_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "print('one'); print('two', file=sys.stderr); os.write(1, b'\\xff, no end')"
    assert supervised(tmp_path, {"mirror": program}, once=True) == 0
    output = capfd.readouterr()
    assert output.out == "mirror | one\nmirror | \ufffd, no end\n"
    assert "mirror | two\n" in output.err


def test_arguments_are_not_on_the_command_line(tmp_path: Path) -> None:
    seen = "Path('seen').write_text(' '.join(sys.orig_argv if hasattr(sys, 'orig_argv') else []))"
    assert supervised(tmp_path, {"capture": f"{seen}  # secret"}, once=True) == 0
    assert "secret" not in (tmp_path / "seen").read_text()


def test_a_service_manager_gets_the_notifications_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Notified() as receiver:
        monkeypatch.setenv("NOTIFY_SOCKET", receiver.address)
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        said = "assert 'WATCHDOG_PID' not in os.environ\nnotify('STATUS=streams')"
        programs = {
            "capture": f"{said}\n{LASTING}",
            "mirror": f"notify('STATUS=applied')\n{LASTING}",
        }
        status = supervised(
            tmp_path,
            programs,
            until=lambda: "STATUS=capture: streams; mirror: applied" in receiver.received,
        )
        assert status == 0
        received = receiver.rest()
    assert received.count("READY=1") == received.count("STOPPING=1") == 1
    assert "WATCHDOG=1" in received
