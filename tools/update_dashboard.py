"""Write deploy/grafana/dashboard.json from the instruments of captures and mirrors.

Run it after a change to the instruments or to the panels below::

    python tools/update_dashboard.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pgwire_codec.metrics import instruments as i
from pgwire_codec.metrics.instruments import Instrument

DASHBOARD: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "dashboard.json"

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_HEIGHTS: Final = {"stat": 4, "timeseries": 8, "state-timeline": 8}

#: Grafana's names of the units of instruments, and of their rates.
_UNITS: Final = {"By": "bytes", "s": "s"}
_RATES: Final = {"By": "Bps"}


class Query(NamedTuple):
    """A query of PromQL, with the labels by which its series are named."""

    text: str
    legend: str


class Panel(NamedTuple):
    """A panel; ``unit`` is one of Grafana's, and ``alarm`` the value from which on it is red."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    description: str
    kind: Literal["stat", "timeseries", "state-timeline"] = "timeseries"
    width: int = 8
    alarm: float | None = None


def _selected(instrument: Instrument, suffix: str = "", *matchers: str) -> str:
    """Return the selector of an instrument for the slots or targets that are chosen."""
    variable = instrument.attributes[0]
    inside = ",".join([f'{variable}=~"${variable}"', *matchers])
    return f"{instrument.prometheus_name}{suffix}{{{inside}}}"


def _legend(instrument: Instrument, *more: str) -> str:
    return " ".join([*(f"{{{{{name}}}}}" for name in instrument.attributes), *more])


def _of(*instruments: Instrument, title: str, **options: Any) -> Panel:
    """Return a panel of the values of gauges, or of the rates of counters, of one unit."""
    first = instruments[0]
    queries, is_rate = [], first.kind == "counter"
    for each in instruments:
        text = _selected(each)
        more = [each.name.split(".", 2)[2].replace(".", " ")] if len(instruments) > 1 else []
        queries.append(
            Query(f"rate({text}[$__rate_interval])" if is_rate else text, _legend(each, *more))
        )
    unit = _RATES.get(first.unit, "cps") if is_rate else _UNITS.get(first.unit, "short")
    described = " ".join(dict.fromkeys(each.description for each in instruments))
    return Panel(title, unit, tuple(queries), described, **options)


def _events(instrument: Instrument, title: str, **options: Any) -> Panel:
    """Return a panel of the events that a counter has counted.

    A series by code begins with its first event, which ``increase`` does not count: its panel has
    the events since the start of the process.
    """
    selected = _selected(instrument)
    is_by_code = "code" in instrument.attributes
    query = Query(
        selected if is_by_code else f"increase({selected}[$__rate_interval])", _legend(instrument)
    )
    name = f"{title} since the start" if is_by_code else title
    return Panel(name, "short", (query,), instrument.description, **options)


def _states(instrument: Instrument, title: str, **options: Any) -> Panel:
    """Return a panel of the present state of each slot or table."""
    *series, label = instrument.attributes
    legend = " ".join(f"{{{{{name}}}}}" for name in series) + f": {{{{{label}}}}}"
    query = Query(f"{_selected(instrument)} == 1", legend)
    return Panel(title, "short", (query,), instrument.description, "state-timeline", **options)


def _durations(instrument: Instrument, title: str) -> Panel:
    """Return a panel of the median and the 99th percentile of a histogram."""
    rates = f"rate({_selected(instrument, '_bucket')}[$__rate_interval])"
    queries = tuple(
        Query(
            f"histogram_quantile({share}, sum by ({i.SLOT}, le) ({rates}))",
            _legend(instrument, name),
        )
        for share, name in ((0.5, "median"), (0.99, "p99"))
    )
    return Panel(title, "s", queries, instrument.description)


def _behind(first: Instrument, last: Instrument, title: str) -> Panel:
    """Return a panel of the distance between two LSNs of a slot or target, in bytes of WAL."""
    key = first.attributes[0]
    group = f" on ({key}) group_right" if len(last.attributes) > 1 else ""
    query = Query(f"{_selected(first)} -{group} {_selected(last)}", _legend(last))
    description = f"WAL between two LSNs. First: {first.description} Second: {last.description}"
    return Panel(title, "bytes", (query,), description)


_STREAMING: Final = f'{i.STATE.attributes[-1]}="streaming"'
_OTHER: Final = f'{i.TABLE_STATE.attributes[-1]}!~"ok|gone"'

PANELS: Final[dict[str, tuple[Panel, ...]]] = {
    "At a glance": (
        Panel(
            "Captures that stream",
            "short",
            (Query(f"sum({_selected(i.STATE, '', _STREAMING)})", "streaming"),),
            i.STATE.description,
            "stat",
            width=4,
        ),
        Panel(
            "Lag of captures",
            "s",
            (Query(f"max({_selected(i.LAG_SECONDS)})", "longest"),),
            i.LAG_SECONDS.description,
            "stat",
            width=4,
            alarm=300,
        ),
        Panel(
            "WAL kept for slots",
            "bytes",
            (Query(f"max({_selected(i.SLOT_RETAINED)})", "most"),),
            i.SLOT_RETAINED.description,
            "stat",
            width=4,
            alarm=20e9,
        ),
        Panel(
            "Mirrors that run",
            "short",
            (Query(f"sum({_selected(i.MIRROR_ACTIVE)})", "running"),),
            i.MIRROR_ACTIVE.description,
            "stat",
            width=4,
        ),
        Panel(
            "Lag of tables",
            "s",
            (Query(f"max({_selected(i.TABLE_LAG_SECONDS)})", "longest"),),
            i.TABLE_LAG_SECONDS.description,
            "stat",
            width=4,
            alarm=900,
        ),
        Panel(
            "Tables that are not ok",
            "short",
            (Query(f"sum({_selected(i.TABLE_STATE, '', _OTHER)})", "tables"),),
            i.TABLE_STATE.description,
            "stat",
            width=4,
            alarm=1,
        ),
    ),
    "Captures": (
        _states(i.STATE, "State", width=24),
        _of(i.LAG_SECONDS, title="Lag"),
        _of(i.LAG_BYTES, title="Lag in WAL"),
        _behind(i.RECEIVED_LSN, i.CONFIRMED_LSN, "Received and not confirmed"),
        _of(i.TRANSACTIONS, title="Transactions"),
        _of(i.MESSAGES, title="Messages"),
        _of(i.MESSAGE_BYTES, i.LOG_BYTES, title="Bytes"),
        _durations(i.FLUSH_DURATION, "Flush"),
        _durations(i.SYNC_DURATION, "Fsync"),
        _of(i.STALL_SECONDS, title="Stall"),
        _events(i.ERRORS, "Errors"),
        _events(i.NOTICES, "Notices"),
        _events(i.RECONNECTS, "Reconnects"),
        _of(i.SNAPSHOT_ROWS, title="Rows of the snapshot"),
        _of(i.SNAPSHOT_TABLES, title="Tables of the snapshot"),
        _events(i.LOG_SEGMENTS, "Segments begun"),
    ),
    "Slots": (
        _states(i.SLOT_WAL_STATUS, "WAL status", width=16),
        _of(i.SLOT_ACTIVE, title="Active"),
        _of(i.SLOT_RETAINED, title="WAL kept"),
        _of(i.SLOT_SAFE_WAL_SIZE, title="WAL until the slot may be lost"),
        _of(i.MONITOR_AGE, title="Age of these readings", width=4),
        _events(i.MONITOR_ERRORS, "Failed readings", width=4),
    ),
    "Mirrors": (
        _of(i.MIRROR_ACTIVE, title="Active", width=4),
        _of(i.MIRROR_BATCHES, title="Micro-batches", width=4),
        _behind(i.LOG_LSN, i.MIRROR_LSN, "WAL that the tables lack"),
        _of(i.LOG_AGE, title="Age of the log's end", width=4),
        _events(i.LOG_ERRORS, "Failed readings of the log", width=4),
    ),
    "Tables": (
        _states(i.TABLE_STATE, "State", width=24),
        _of(i.TABLE_LAG_SECONDS, title="Lag"),
        _of(i.TABLE_LAG_BYTES, title="Lag in WAL"),
        _behind(i.LOG_LSN, i.TABLE_LSN, "WAL of all tables after the table's LSN"),
        _of(i.TABLE_CHANGES, title="Changes"),
        _of(i.TABLE_DEAD_LETTERS, title="Dead letters"),
        _events(i.TABLE_ERRORS, "Set aside"),
    ),
}


def dashboard() -> str:
    """Return the dashboard as JSON."""
    made = {
        "uid": "pgwire-codec",
        "title": "pgwire-codec",
        "description": "Captures of PostgreSQL's changes, and their mirrors in a lakehouse.",
        "tags": ["postgresql", "replication"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    members = (f"{json.dumps(name)}: {_lines(value)}" for name, value in made.items())
    return "{\n" + ",\n".join(members) + "\n}\n"


def _lines(value: object) -> str:
    """Return JSON with a line for each item of an array."""
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n]"


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    for instrument in (i.STATE, i.MIRROR_ACTIVE):
        name = instrument.attributes[0]
        query = f"label_values({instrument.prometheus_name}, {name})"
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    numbers, y = count(1), 0
    for title, panels in PANELS.items():
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {
            "id": next(numbers),
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        y += 1
        x = 0
        for panel in panels:
            height = _HEIGHTS[panel.kind]
            yield _panel(panel, next(numbers), {"x": x, "y": y, "w": panel.width, "h": height})
            x += panel.width
            if x == _COLUMNS:
                x, y = 0, y + height
        assert x == 0, f"the last line of {title} is full"


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    defaults["color"] = {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": list(_targets(panel.queries)),
    }


def _targets(queries: Iterable[Query]) -> Iterator[dict[str, Any]]:
    for letter, query in zip("ABCD", queries, strict=False):
        yield {
            "refId": letter,
            "datasource": _SOURCE,
            "expr": query.text,
            "legendFormat": query.legend,
        }


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
    },
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "state-timeline": {
        "mergeValues": True,
        "showValue": "never",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    },
}


if __name__ == "__main__":
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
