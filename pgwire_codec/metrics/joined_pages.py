"""JoinedPages: metrics, health and readiness of several processes of this machine on one port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from pgwire_codec.metrics.http_server import Start, plain_text

_SECONDS: Final = 10.0  # in which a process has to answer
_OK: Final = 200


class JoinedPages:
    """Application of WSGI that answers for the endpoints of processes, whose metrics differ.

    Parameters
    ----------
    ports : callable
        Returns the port of each process on loopback by its name; None if it does not listen.
    """

    def __init__(self, ports: Callable[[], Mapping[str, int | None]]) -> None:
        self._ports = ports

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            pages = (page for _, status, page in self._get(path) if status == _OK)
            return plain_text(start, "200 OK", "".join(pages).rstrip("\n"))
        if path == "/healthz":
            return _state(start, list(self._problems(path)))
        if path == "/readyz":
            missing = [f"{name} does not run" for name, port in self._ports().items() if not port]
            return _state(start, [*missing, *self._problems(path)])
        return plain_text(start, "404 Not Found", "/metrics, /healthz, /readyz")

    def _problems(self, path: str) -> Iterator[str]:
        for name, status, text in self._get(path):
            if status != _OK:
                yield f"{name}: {text.strip()}"

    def _get(self, path: str) -> Iterator[tuple[str, int, str]]:
        """Yield the name, the status and the page of each process that listens."""
        for name, port in self._ports().items():
            if port is None:
                continue
            try:
                with closing(HTTPConnection("127.0.0.1", port, timeout=_SECONDS)) as connection:
                    connection.request("GET", path)
                    response = connection.getresponse()
                    yield name, response.status, response.read().decode()
            except (OSError, HTTPException) as error:
                yield name, 0, f"does not answer: {error}"


def _state(start: Start, problems: list[str]) -> list[bytes]:
    if problems:
        return plain_text(start, "503 Service Unavailable", "; ".join(problems))
    return plain_text(start, "200 OK", "ok")
