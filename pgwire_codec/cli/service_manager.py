"""ServiceManager: readiness, status and signs of life for systemd, as in sd_notify(3)."""

from __future__ import annotations

import os
import socket
import time
from typing import Final

import click

from pgwire_codec.format import printable

#: Name of the notification of a port, for ``pgwire-codec run``.
METRICS_PORT: Final = "X_METRICS_PORT"

_MOST_CHARACTERS: Final = 500  # of a status; systemd ignores a datagram above 4096 bytes
_SEND_SECONDS: Final = 5.0  # until a datagram counts as lost, if the manager reads none


class ServiceManager:
    """The service manager of this process: systemd, for a unit with ``Type=notify``.

    Nothing is sent unless ``NOTIFY_SOCKET`` is set. A datagram that cannot be sent does not end the
    process; the error is on stderr, once.
    """

    def __init__(self) -> None:
        path = os.environ.get("NOTIFY_SOCKET", "")
        # An abstract socket, which has no file, is written with an @.
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._interval = _watchdog_interval()
        self._due = 0.0
        self._sent: dict[str, str] = {}
        self._error = ""

    def ready(self) -> None:
        """Report that the start is complete."""
        self._send_change("READY", "1")

    def status(self, text: str) -> None:
        """Report a text for ``systemctl status``."""
        self._send_change("STATUS", printable(" ".join(text.split()))[:_MOST_CHARACTERS])

    def metrics_port(self, port: int) -> None:
        """Report the port of the metrics, which systemd ignores as it does all that has an X_."""
        self._send_change(METRICS_PORT, str(port))

    def stopping(self) -> None:
        """Report that the process is about to end."""
        self._send_change("STOPPING", "1")

    def alive(self) -> None:
        """Reset the watchdog of ``WatchdogSec``, at most twice within that time."""
        if self._interval is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._interval
            self._send("WATCHDOG=1")

    def _send_change(self, name: str, value: str) -> None:
        if self._sent.get(name) != value:
            self._sent[name] = value
            self._send(f"{name}={value}")

    def _send(self, assignment: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
                datagrams.settimeout(_SEND_SECONDS)
                datagrams.sendto(assignment.encode(), self._address)
        except OSError as error:
            text = f"could not notify {os.environ['NOTIFY_SOCKET']}: {error.strerror or error}"
            if text != self._error:
                self._error = text
                click.echo(printable(text), err=True)


def _watchdog_interval() -> float | None:
    """Return half of the unit's ``WatchdogSec``, if it is set for this process."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdigit() or pid != str(os.getpid()):
        return None
    return int(microseconds) / 2e6
