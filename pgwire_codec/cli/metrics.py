"""The option ``--metrics``: an endpoint of a command's metrics and health."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pgwire_codec.cli.service_manager import ServiceManager

if TYPE_CHECKING:
    from pgwire_codec.capture import LogCapture
    from pgwire_codec.capture.lag import LagMeter
    from pgwire_codec.cli.supervisor import Supervisor
    from pgwire_codec.metrics import MirrorWatch


def metrics_option() -> Callable[[Any], Any]:
    """Return the option, for a command that runs for long."""
    return click.option(
        "--metrics",
        "address",
        metavar="HOST:PORT",
        help="Serve /metrics for Prometheus, /healthz and /readyz, as on 127.0.0.1:9187.",
    )


@contextmanager
def capture_endpoint(address: str | None, running: LogCapture, meter: LagMeter) -> Iterator[None]:
    """Serve the metrics of a capture inside of the context, if there is an address."""
    if address is None:
        yield
        return
    from pgwire_codec.metrics import CaptureMetrics
    from pgwire_codec.metrics.endpoint import Endpoint

    with (
        Endpoint(address) as endpoint,
        CaptureMetrics(endpoint.meter_provider).watch(running, meter) as watch,
    ):
        endpoint.serve(watch)
        ServiceManager().metrics_port(endpoint.port)
        yield


@contextmanager
def mirror_endpoint(address: str | None, log: str, target: str) -> Iterator[MirrorWatch | None]:
    """Serve the metrics of a mirror inside of the context, if there is an address."""
    if address is None:
        yield None
        return
    from pgwire_codec.metrics import MirrorMetrics
    from pgwire_codec.metrics.endpoint import Endpoint

    with (
        Endpoint(address) as endpoint,
        MirrorMetrics(endpoint.meter_provider).watch(log, target) as watch,
    ):
        endpoint.serve(watch)
        ServiceManager().metrics_port(endpoint.port)
        yield watch


@contextmanager
def joined_endpoint(address: str | None, supervisor: Supervisor) -> Iterator[None]:
    """Serve the metrics of supervised processes inside of the context, if there is an address."""
    if address is None:
        yield
        return
    from pgwire_codec.metrics.http_server import HttpServer
    from pgwire_codec.metrics.joined_pages import JoinedPages

    with HttpServer(address) as server:
        server.serve(JoinedPages(lambda: supervisor.metrics_ports))
        yield
