"""The files of deploy/, read as systemd and Compose read them, and datagrams for systemd."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pgwire_codec.demo.server import EmbeddedServer
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

#: In place of the installed command.
COMMAND = [sys.executable, "-c", "from pgwire_codec.cli import main; main()"]


def unit() -> dict[str, str]:
    """Return the settings of the unit; the last value of each."""
    text = (DEPLOY / "systemd" / "pgwire-codec@.service").read_text(encoding="utf-8")
    lines = text.replace("\\\n", " ").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))


def command_of_unit(etc: Path) -> list[str]:
    """Return the words of the unit's ExecStart for the instance ``shop``, with another /etc."""
    words = shlex.split(unit()["ExecStart"].replace("%i", "shop").replace("/etc", str(etc)))
    assert words[0] == "/opt/pgwire-codec/bin/pgwire-codec"
    return words[1:]


def service(name: str) -> dict[str, Any]:
    """Return a service of the Compose file."""
    import yaml

    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    found: dict[str, Any] = services[name]
    return found


def prepare(made: Database, folder: Path) -> None:
    """Make a container's folders, and run the SQL as the server's image does."""
    (folder / "data").mkdir()
    (folder / "secrets").mkdir()
    (folder / "secrets" / "password").write_text("correct horse")
    assert isinstance(made.server, EmbeddedServer)
    psql = [made.server.bin_path / "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--no-psqlrc"]
    subprocess.run(
        [*psql, f"--dbname={made.dsn}", f"--file={DEPLOY / 'shop.sql'}"],
        env={"POSTGRES_PASSWORD": "correct horse"},
        check=True,
    )
    made.roles.append("reader")


def instruction(name: str) -> Any:
    """Return the words of an instruction of the Dockerfile that has a JSON array."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    [match] = re.findall(rf"^{name}.*?(\[.*\])$", text, re.MULTILINE)
    return json.loads(match)


def libpq_variables(made: Database) -> dict[str, str]:
    """Return libpq's environment variables for a database."""
    import psycopg2.extensions

    parts = psycopg2.extensions.parse_dsn(made.dsn)
    names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER"}
    return {names[name]: value for name, value in parts.items() if name in names}


class Notified:
    """Receives the datagrams that a process sends to its service manager. A context manager.

    A thread reads them as they arrive: the system keeps ten, and the sender waits.
    """

    def __init__(self, *, is_abstract: bool = False) -> None:
        self._folder = tempfile.mkdtemp(prefix="pgwire_codec_")  # its path has to be short
        self._path = Path(self._folder) / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self._path}" if is_abstract else str(self._path))
        self.address = f"@{self._path}" if is_abstract else str(self._path)
        self.received: list[str] = []
        self._read = 0  # by the test
        self._thread = threading.Thread(target=self._receive)

    def __enter__(self) -> Notified:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        self._path.unlink(missing_ok=True)
        Path(self._folder).rmdir()

    def until(self, start: str, process: subprocess.Popen[str], seconds: float = 60.0) -> str:
        """Return the next datagram that starts so; fail if none comes, or the process ends."""

        def has_come() -> bool:
            return self._read < len(self.received) or process.poll() is not None

        while wait_until(has_come, seconds) and self._read < len(self.received):
            text = self.received[self._read]
            self._read += 1
            if text.startswith(start):
                return text
        process.kill()
        _, errors = process.communicate()
        raise AssertionError(f"no {start} in {self.received}: {errors}")

    def rest(self) -> list[str]:
        """Return all that was received from a process that has ended; nothing more is."""
        self._end()
        return self.received

    def _receive(self) -> None:
        while text := self._socket.recv(4096).decode():
            self.received.append(text)

    def _end(self) -> None:
        """Have the thread read what was sent before, and end it."""
        if self._thread.is_alive():
            self._socket.sendto(b"", self._socket.getsockname())
            self._thread.join()
            self._socket.close()


@contextmanager
def started(
    arguments: list[str], variables: Mapping[str, str], folder: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run the command in an environment of these variables only; kill it at the end."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    # As systemd does: the watchdog is for this process, not for its children.
    shell = ["/bin/sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh"]
    with subprocess.Popen(
        [*shell, *COMMAND, *arguments],
        env=kept | {"PYTHONPATH": str(ROOT)} | dict(variables),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def stopped(process: subprocess.Popen[str]) -> tuple[int, str]:
    """End a process as a service manager does; return its exit status and stderr."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors
