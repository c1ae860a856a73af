"""Instruments: their names, their readings, and the alerts of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

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


def alerts() -> list[Any]:
    yaml = pytest.importorskip("yaml")
    [block] = [block for block in PAGE.blocks if block.language == "yaml"]
    [group] = yaml.safe_load(block.code)["groups"]
    rules: list[Any] = group["rules"]
    return rules


def test_alerts_are_queries_of_metrics_that_exist() -> None:
    promql = pytest.importorskip("promql_parser")
    known = {each.prometheus_name for each in INSTRUMENTS}
    known |= {f"{each.prometheus_name}_bucket" for each in HISTOGRAMS}
    used: set[str] = set()
    for rule in alerts():
        promql.parse(rule["expr"])
        used |= set(re.findall(r"\bpgwire_codec_\w+", rule["expr"]))
    assert len(used) > 10
    assert used <= known
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql.parse("sum by (slot (x)")


def test_every_alert_has_its_remedy() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", PAGE.text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {rule["alert"] for rule in alerts()}


def test_labels_of_alerts_are_attributes() -> None:
    labels = {name for each in INSTRUMENTS for name in each.attributes} | {"job", "le"}
    for rule in alerts():
        for used in re.findall(r"(?:by|on) \(([\w, ]+)\)", rule["expr"]):
            assert set(used.split(", ")) <= labels
        for matched in re.findall(r"\{(\w+)=", rule["expr"]):
            assert matched in labels


def test_docs_have_no_other_names() -> None:
    known = {each.prometheus_name for each in INSTRUMENTS}
    text = Path(PAGE.path).read_text("utf-8")
    found = set(re.findall(r"`(pgwire_codec_\w+)`", text))
    assert found <= known
