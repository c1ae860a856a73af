"""Notifications: what a process reports to its service manager, received in its place."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST_BYTES = 4096  # of a datagram, as systemd reads it


class Notifications:
    """Socket for the datagrams of :class:`~pgwire_codec.cli.service_manager.ServiceManager`.

    A context manager.

    Attributes
    ----------
    address : str
        Value of ``NOTIFY_SOCKET``.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="pgwire_codec_")  # only for this user
        self._path = Path(self._folder) / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        self._socket.setblocking(False)
        self.address = str(self._path)

    def __enter__(self) -> Notifications:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()
        # A cleaner of the temporary files may have been here.
        with suppress(OSError):
            self._path.unlink()
            Path(self._folder).rmdir()

    def fileno(self) -> int:
        """Return the descriptor, which is readable when something has arrived."""
        return self._socket.fileno()

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield the names and values that have arrived."""
        with suppress(BlockingIOError):
            while datagram := self._socket.recv(_MOST_BYTES):
                for line in datagram.decode("utf-8", "replace").splitlines():
                    name, _, value = line.partition("=")
                    yield name, value
