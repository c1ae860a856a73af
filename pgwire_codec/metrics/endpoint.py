"""Endpoint: an HTTP server of a process's metrics for Prometheus, its health and readiness."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import version
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from pgwire_codec.errors import OptionError, PgwireError, missing_extra
from pgwire_codec.metrics.health import Health

_REQUEST_SECONDS: Final = 10.0  # in which a client has to send its request
_MOST_VALUES: Final = 1_000_000  # of an instrument; OpenTelemetry drops those after 2,000
_TRANSIENT: Final = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)

_Start = Callable[..., Any]


class Endpoint:
    """HTTP server of ``/metrics``, ``/healthz`` and ``/readyz``. A context manager.

    Making it listens on the address. Requests are answered from :meth:`serve` on, and leaving the
    context ends it.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, with brackets around an IPv6 address.

    Attributes
    ----------
    meter_provider : opentelemetry.sdk.metrics.MeterProvider
        Provider of the instruments whose values ``/metrics`` has.
    port : int

    Raises
    ------
    MissingExtraError
        When the extra ``metrics`` is not installed.
    OptionError
        For text that is not an address.
    PgwireError
        When the address cannot be listened on, as if another process does.
    """

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        self.meter_provider, self._page = _load_exporter()
        self._server = _listen(host, port)
        self._server.set_app(self._answer)
        self.port: int = self._server.server_address[1]
        self._collecting = threading.Lock()  # the exporter mixes pages that are made at once
        self._health: Health | None = None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self.meter_provider.shutdown()

    def serve(self, health: Health) -> None:
        """Begin to answer requests, with this health."""
        self._health = health
        self._thread.start()

    def _answer(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        assert self._health is not None
        path = environ["PATH_INFO"]
        if path == "/metrics":
            with self._collecting:
                answer: Iterable[bytes] = self._page(environ, start)
            return answer
        if path == "/healthz":
            return _state(start, self._health.failure)
        if path == "/readyz":
            return _state(start, self._health.unreadiness)
        return _text(start, "404 Not Found", "/metrics, /healthz, /readyz")


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address. Raises ``OptionError`` if it is invalid."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise OptionError(
            f"invalid address {address!r}", hint="Use HOST:PORT, as 127.0.0.1:9187 or [::1]:9187."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _state(start: _Start, problem: str | None) -> list[bytes]:
    if problem is None:
        return _text(start, "200 OK", "ok")
    return _text(start, "503 Service Unavailable", problem)


def _text(start: _Start, status: str, text: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
    return [f"{text}\n".encode()]


def _load_exporter() -> tuple[Any, Any]:
    """Return a provider of meters, and the WSGI application that exports their values."""
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk import metrics
        from opentelemetry.sdk.resources import Resource
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError as error:
        raise missing_extra(f"metrics need {error.name}", "metrics") from error
    registry = CollectorRegistry()
    limits: Any = {metrics.ObservableGauge: _MOST_VALUES, metrics.ObservableCounter: _MOST_VALUES}
    reader = PrometheusMetricReader(
        disable_target_info=True,
        scope_info_enabled=False,
        registry=registry,
        cardinality_limits=limits,
    )
    resource = Resource.create(
        {"service.name": "pgwire-codec", "service.version": version("pgwire-codec")}
    )
    provider = metrics.MeterProvider([reader], resource, shutdown_on_exit=False)
    return provider, make_wsgi_app(registry)


def _listen(host: str, port: int) -> _Server:
    try:
        return _Server(host, port)
    except OSError as error:
        raise PgwireError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Use another address for the metrics, or end the process that has this one.",
            is_transient=error.errno in _TRANSIENT,
        ) from error


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is Python's)
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        address: Any = found[0][4]
        super().__init__(address[:2], _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without HTTPServer's search for the host's full name
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()
