"""A proxy in front of a server, on loopback, that stalls, cuts or resets, or adds frames."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from tests.support.servers import Database

_COPY_BOTH = b"W"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Proxy:
    """Forwards connections to a server's Unix socket.

    Attributes
    ----------
    frozen : threading.Event
        While it is set nothing is forwarded, in either direction; new connections are accepted.
    cutting : threading.Event
        While it is set a connection is closed in the middle of the next data.
    frames : list of bytes
        Frames that are sent before the server's own once a replication stream begins.
    """

    def __init__(self, path: str) -> None:
        self.frozen = threading.Event()
        self.cutting = threading.Event()
        self.frames: list[bytes] = []
        self._path = path
        self._resets = 0
        self._stopping = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def reset(self) -> None:
        """Reset the present connections; what they have not forwarded is lost."""
        self._resets += 1

    def stop(self) -> None:
        self._stopping = True
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopping:
            client, _ = self._listener.accept()
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as ready:
            try:
                server.connect(self._path)
            except OSError:  # no server is there: the client's connection is closed
                return
            resets = self._resets
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            pending = b""  # of the server's messages, the part of one
            while not self._stopping:
                if resets != self._resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    return
                for key, _ in ready.select(0.05):
                    if self.frozen.is_set():
                        self._pause(resets)
                        break
                    source, target = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    try:
                        data = source.recv(1 << 16)
                        if self.cutting.is_set():
                            target.sendall(data[: len(data) // 2])
                            return
                        if data and source is server and self.frames:
                            data, pending = self._with_frames(pending + data)
                        target.sendall(data)
                    except OSError:
                        return
                    if not data and not pending:
                        return

    def _pause(self, resets: int) -> None:
        while self.frozen.is_set() and resets == self._resets and not self._stopping:
            threading.Event().wait(0.02)

    def _with_frames(self, data: bytes) -> tuple[bytes, bytes]:
        """Return whole messages, with frames after CopyBothResponse, and the incomplete rest."""
        done = b""
        while len(data) >= 5:
            length = 1 + struct.unpack_from(">I", data, 1)[0]
            if len(data) < length:
                break
            done += data[:length]
            if data[:1] == _COPY_BOTH:
                done += b"".join(
                    struct.pack(">cI", b"d", 4 + len(frame)) + frame for frame in self.frames
                )
            data = data[length:]
        return done, data


@contextmanager
def proxied(made: Database) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of a database's server, and the DSN that goes through it."""
    [(folders, port)] = made.query(
        "SELECT current_setting('unix_socket_directories'), current_setting('port')"
    )
    proxy = Proxy(f"{folders.split(',')[0]}/.s.PGSQL.{port}")
    try:
        yield (
            proxy,
            (
                f"host=127.0.0.1 port={proxy.port} user=postgres dbname={quote(made.name)}"
                " sslmode=disable gssencmode=disable"
            ),
        )
    finally:
        proxy.stop()
