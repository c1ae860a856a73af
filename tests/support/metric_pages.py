"""Captures and mirrors whose metrics are served, and the pages that are served."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pgwire_codec.capture import LogCapture
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.metrics import CaptureMetrics
from pgwire_codec.metrics.instruments import Instrument
from tests.support.servers import Database


@dataclass
class Page:
    """Samples of a page by name, each with its labels."""

    samples: list[tuple[str, dict[str, str], float]]

    def get(self, of: Instrument | str, **labels: str) -> float | None:
        """Return the only value with these labels, or None."""
        name = of if isinstance(of, str) else of.prometheus_name
        found = [
            value
            for each, has, value in self.samples
            if each == name and labels.items() <= has.items()
        ]
        assert len(found) < 2, (name, labels, found)
        return found[0] if found else None

    def __getitem__(self, of: Instrument) -> float:
        value = self.get(of)
        assert value is not None, of.name
        return value

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.samples}


@dataclass
class Served:
    """An endpoint that answers on a port."""

    port: int

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and text of an answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def page(self) -> Page:
        """Return the page, parsed by Prometheus's own client."""
        from prometheus_client.parser import text_string_to_metric_families

        status, text = self.get("/metrics")
        assert status == 200, text
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families)
        return Page([(s.name, s.labels, s.value) for family in families for s in family.samples])


@contextmanager
def served(capture: LogCapture, made: Database) -> Iterator[Served]:
    """Serve the metrics of a capture; its server is asked often."""
    from pgwire_codec.metrics.endpoint import Endpoint

    with ExitStack() as entered:
        endpoint = entered.enter_context(Endpoint("127.0.0.1:0"))
        meter = entered.enter_context(LagMeter(made.dsn, capture.slot, interval=0.05))
        metrics: Any = CaptureMetrics(endpoint.meter_provider)
        endpoint.serve(entered.enter_context(metrics.watch(capture, meter)))
        yield Served(endpoint.port)
