"""The endpoint: its address, its pages, and how it answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgwire_codec.errors import OptionError, PgwireError
from pgwire_codec.metrics import http_server
from pgwire_codec.metrics.endpoint import Endpoint
from pgwire_codec.metrics.http_server import parse_address
from tests.support.metric_pages import Served


class State:
    """Health that a test sets."""

    failure: str | None = None
    unreadiness: str | None = None


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint("127.0.0.1:0") as made:
        yield made


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9187", "127.0.0.1", 9187), ("[::1]:80", "::1", 80), ("db.local:1", "db.local", 1)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "9187", ":9187", "host", "host:", "host:x", "host:65536"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(OptionError, match=r"invalid address '.*' — hint: Use HOST:PORT"):
        parse_address(text)


def test_an_address_in_use(endpoint: Endpoint) -> None:
    with pytest.raises(PgwireError, match=r"cannot listen on 127.0.0.1:\d+: Address already") as e:
        Endpoint(f"127.0.0.1:{endpoint.port}")
    assert e.value.is_transient


def test_an_unknown_host() -> None:
    with pytest.raises(PgwireError, match=r"cannot listen on nowhere\.invalid:1:") as raised:
        Endpoint("nowhere.invalid:1")
    assert not raised.value.is_transient


def test_health_and_readiness(endpoint: Endpoint) -> None:
    state = State()
    endpoint.serve(state)
    served = Served(endpoint.port)
    assert served.get("/healthz") == served.get("/readyz") == (200, "ok\n")
    state.unreadiness = "snapshot"
    assert served.get("/healthz") == (200, "ok\n")
    assert served.get("/readyz") == (503, "snapshot\n")
    state.failure = "no progress for 61 s"
    assert served.get("/healthz") == (503, "no progress for 61 s\n")
    assert served.get("/") == (404, "/metrics, /healthz, /readyz\n")


def test_the_page_in_both_formats(endpoint: Endpoint) -> None:
    counter = endpoint.meter_provider.get_meter("test").create_counter("some.count", "By", "Some.")
    counter.add(3)
    endpoint.serve(State())
    served = Served(endpoint.port)
    assert served.page().samples == [("some_count_bytes_total", {}, 3.0)]
    text = served.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
    [family] = text_string_to_metric_families(text)
    assert (family.name, family.unit, family.documentation) == (
        "some_count_bytes",
        "bytes",
        "Some.",
    )


def test_pages_at_once_are_whole(endpoint: Endpoint) -> None:
    """The exporter collects into a queue that all requests share."""
    meter = endpoint.meter_provider.get_meter("test")
    for number in range(50):
        meter.create_counter(f"count{number}").add(1)
    endpoint.serve(State())
    sizes: list[int] = []

    def fetch() -> None:
        sizes.extend(len(Served(endpoint.port).page().samples) for _ in range(10))

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [50] * 80


def test_more_values_than_open_telemetry_keeps_by_default(endpoint: Endpoint) -> None:
    from opentelemetry.metrics import Observation

    values = [Observation(1, {"table": f"t{number}"}) for number in range(5000)]
    meter = endpoint.meter_provider.get_meter("test")
    meter.create_observable_gauge("some.tables", [lambda _: values])
    endpoint.serve(State())
    assert len(Served(endpoint.port).page().samples) == 5000


@pytest.mark.slow
def test_a_client_that_sends_nothing_blocks_nobody(endpoint: Endpoint) -> None:
    endpoint.serve(State())
    with ExitStack() as idle:
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", endpoint.port))
            idle.enter_context(closing(connection))
        assert Served(endpoint.port).get("/healthz")[0] == 200


def test_slow_clients_are_cut(monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> None:
    """One that sends a byte now and then is never silent, and has an end all the same."""
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.05)
    endpoint.serve(State())
    with socket.create_connection(("127.0.0.1", endpoint.port)) as connection:
        connection.settimeout(10)
        connection.sendall(b"GET /healthz")
        assert connection.recv(1) == b""


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A further client takes the connection of the one that has held it for longest."""
    monkeypatch.setattr(http_server, "_MOST_CONNECTIONS", 3)
    with Endpoint("127.0.0.1:0") as endpoint, ExitStack() as idle:
        endpoint.serve(State())
        clients = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(9)]
        for connection in clients:
            idle.enter_context(closing(connection))
            connection.settimeout(10)
        for connection in clients[:6]:
            assert connection.recv(1) == b""
        assert Served(endpoint.port).get("/healthz")[0] == 200
        assert clients[6].recv(1) == b""
        serving = [each for each in threading.enumerate() if "process_request" in each.name]
        assert len(serving) <= 3


def test_failures_are_logged_in_a_line(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, endpoint: Endpoint
) -> None:
    class Failing(State):
        @property
        def failure(self) -> str | None:  # type: ignore[override]
            raise ValueError("no such\x1b[2J table")

    endpoint.serve(Failing())
    assert Served(endpoint.port).get("/healthz") == (500, "failed: see the process's log\n")
    [record] = caplog.records
    assert record.getMessage() == (r"could not answer /healthz: ValueError('no such\x1b[2J table')")
    assert capfd.readouterr() == ("", "")


def test_a_client_that_takes_nothing_prints_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server._Handler, "timeout", 0.05)
    with http_server.HttpServer("127.0.0.1:0") as server:
        server.serve(lambda _, start: http_server.plain_text(start, "200 OK", "x" * (1 << 25)))
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while any("process_request" in each.name for each in threading.enumerate()):
                pass
    assert capfd.readouterr() == ("", "")


def test_the_end_frees_the_address() -> None:
    with Endpoint("127.0.0.1:0") as endpoint:
        endpoint.serve(State())
        assert Served(endpoint.port).get("/healthz")[0] == 200
    with Endpoint(f"127.0.0.1:{endpoint.port}"):  # not served
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", endpoint.port))
