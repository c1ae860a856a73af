"""The alert rules and the dashboard: their queries are of the instruments, and of all of them."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from pgwire_codec.metrics.instruments import INSTRUMENTS
from tests.support.deployment import DEPLOY, ROOT
from tests.support.docs import PAGES, Page

PAGE = Page(PAGES / "howto" / "metrics.md")
#: Attributes of each metric, by its name in Prometheus.
LABELS = {each.prometheus_name: set(each.attributes) for each in INSTRUMENTS} | {
    f"{each.prometheus_name}_bucket": {*each.attributes, "le"}
    for each in INSTRUMENTS
    if each.kind == "histogram"
}
#: Labels that Prometheus adds.
ADDED = {"job", "instance"}
#: Values of Grafana's variables.
VARIABLES = {"$__rate_interval": "1m", "$slot": "reader", "$target": "delta:/lake"}


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    yaml = pytest.importorskip("yaml")
    text = (DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    [group] = yaml.safe_load(text)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    text = (DEPLOY / "grafana" / "dashboard.json").read_text(encoding="utf-8")
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def targets() -> Iterator[dict[str, Any]]:
    """Yield the queries of the dashboard's panels."""
    for panel in dashboard()["panels"]:
        yield from panel.get("targets", ())


def names(query: str) -> set[str]:
    """Return the metrics of a query."""
    return set(re.findall(r"\bpgwire_codec_\w+", query))


def labels(query: str) -> set[str]:
    """Return the labels of the series of a query: those of all its metrics, and Prometheus's."""
    return set().union(ADDED, *(LABELS[name] for name in names(query)))


def check_query(query: str) -> None:
    """Check that a query can be parsed, and has metrics and labels that exist."""
    promql = pytest.importorskip("promql_parser")
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    promql.parse(query)
    assert names(query) <= set(LABELS)
    for name, matchers in re.findall(r"\b(pgwire_codec_\w+)\{(.*?)\}", query):
        assert set(re.findall(r"(\w+)[=!]", matchers)) <= LABELS[name], query
    for grouped in re.findall(r"\b(?:by|on) \(([\w, ]+)\)", query):
        assert set(grouped.split(", ")) <= labels(query), query


def test_queries_of_alerts() -> None:
    rules = alerts()
    for rule in rules:
        check_query(rule["expr"])
        used = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert set(used) <= labels(rule["expr"])
        assert rule["labels"]["severity"] in ("warning", "critical")
    assert len(set().union(*(names(rule["expr"]) for rule in rules))) > 10


@pytest.mark.parametrize(
    "query",
    [
        "sum by (slot (pgwire_codec_capture_state)",
        "pgwire_codec_capture_status",
        "pgwire_codec_capture_state{target='a'}",
        "sum by (table) (pgwire_codec_capture_state)",
    ],
)
def test_invalid_queries_are_recognized(query: str) -> None:
    with pytest.raises((ValueError, AssertionError)):
        check_query(query)


def test_every_alert_has_its_remedy() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", PAGE.text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {rule["alert"] for rule in alerts()}


def test_queries_of_the_dashboard() -> None:
    for target in targets():
        check_query(target["expr"])
        used = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        assert set(used) <= labels(target["expr"]), target
    for variable in dashboard()["templating"]["list"][1:]:
        [(name, label)] = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert label in LABELS[name]
        assert label == variable["name"]
        assert f"${label}" in VARIABLES


def test_every_instrument_is_in_a_panel() -> None:
    used = set().union(*(names(target["expr"]) for target in targets()))
    assert {name.removesuffix("_bucket") for name in used} == {
        each.prometheus_name for each in INSTRUMENTS
    }


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        assert max(x for x, _ in covered) < 24
        cells |= covered


def update_dashboard() -> ModuleType:
    """Import the script that writes the dashboard."""
    path = ROOT / "tools" / "update_dashboard.py"
    spec = importlib.util.spec_from_file_location("update_dashboard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_dashboard_is_that_of_the_instruments() -> None:
    tool = update_dashboard()
    assert tool.DASHBOARD.read_text("utf-8") == tool.dashboard(), "run tools/update_dashboard.py"


def read_by_grafana(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return a dashboard after its way through Grafana's schema, which drops what it lacks."""
    model = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    made: dict[str, Any] = json.loads(
        encoder.JSONEncoder().encode(model.Dashboard.from_json(parsed))
    )
    return made


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths of values that another document lacks or has changed."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            each
            for name, value in before.items()
            for each in lost(value, after.get(name), f"{path}/{name}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [each for place, (a, b) in pairs for each in lost(a, b, f"{path}/{place}")]
    return [] if before == after else [path]


def test_the_dashboard_has_grafanas_schema() -> None:
    parsed = dashboard()
    assert lost(parsed, read_by_grafana(parsed)) == []
    # A member that the schema lacks is recognized, in panels of each kind and in their queries.
    for panel in {each["type"]: each for each in parsed["panels"]}.values():
        for part in (panel, panel.get("options"), *panel.get("targets", ())):
            if part is not None:
                part["nonsense"] = 1
    found = lost(parsed, read_by_grafana(parsed))
    kinds = {each["type"] for each in parsed["panels"]}
    assert len(found) >= 3 * len(kinds) - 2
    assert all(path.endswith("/nonsense") for path in found)
