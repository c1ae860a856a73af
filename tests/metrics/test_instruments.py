"""Instruments: their names and their readings."""

from __future__ import annotations

import re
from pathlib import Path

from pgwire_codec.metrics import capture_metrics, mirror_metrics
from pgwire_codec.metrics.instruments import INSTRUMENTS
from tests.support.docs import PAGES, Page

PAGE = Page(PAGES / "howto" / "metrics.md")
HISTOGRAMS = {each for each in INSTRUMENTS if each.kind == "histogram"}


def test_each_has_a_reading() -> None:
    read = {*capture_metrics.READINGS, *mirror_metrics.READINGS}
    assert read | HISTOGRAMS == set(INSTRUMENTS)
    assert not read & HISTOGRAMS


def test_names() -> None:
    """Names are OpenTelemetry's, lower case and unique, also in Prometheus."""
    assert len({each.prometheus_name for each in INSTRUMENTS}) == len(INSTRUMENTS) > 30
    for each in INSTRUMENTS:
        assert re.fullmatch(r"pgwire_codec\.(capture|mirror)(\.[a-z_]+)+", each.name)
        assert each.description.endswith(".")
        assert each.unit in ("", "By", "s") or re.fullmatch(r"\{[a-z]+\}", each.unit)


def test_docs_have_no_other_names() -> None:
    known = {each.prometheus_name for each in INSTRUMENTS}
    text = Path(PAGE.path).read_text("utf-8")
    found = set(re.findall(r"`(pgwire_codec_\w+)`", text))
    assert found <= known
