"""Endpoint: an HTTP server of a process's metrics for Prometheus, its health and readiness."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from pgwire_codec.errors import missing_extra
from pgwire_codec.metrics.health import Health
from pgwire_codec.metrics.http_server import HttpServer, Start, parse_address, plain_text

_MOST_VALUES: Final = 1_000_000  # of an instrument; OpenTelemetry drops those after 2,000


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
        parse_address(address)  # an error that needs no library
        self.meter_provider, self._page = _load_exporter()
        self._server = HttpServer(address)
        self.port = self._server.port
        self._collecting = threading.Lock()  # the exporter mixes pages that are made at once
        self._health: Health | None = None

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.__exit__(*exception)
        self.meter_provider.shutdown()

    def serve(self, health: Health) -> None:
        """Begin to answer requests, with this health."""
        self._health = health
        self._server.serve(self._answer)

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
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
        return plain_text(start, "404 Not Found", "/metrics, /healthz, /readyz")


def _state(start: Start, problem: str | None) -> list[bytes]:
    if problem is None:
        return plain_text(start, "200 OK", "ok")
    return plain_text(start, "503 Service Unavailable", problem)


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
