"""The page: its frame, and which sections come in which order."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.report.findings import LAG_BOUNDS, Findings
from pgwire_codec.report.markup import Markup, element, join
from pgwire_codec.report.over_time import lag_section, time_section
from pgwire_codec.report.parts import changes_of
from pgwire_codec.report.schema import schema_section
from pgwire_codec.report.style import STYLE
from pgwire_codec.report.tables import (
    largest_section,
    open_section,
    problems_section,
    snapshot_section,
    tables_section,
)
from pgwire_codec.report.words import duration, many, moment, number, share, size

#: The page runs nothing and fetches nothing, whatever names are in it.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def render(findings: Findings) -> str:
    """Give the report as one HTML page that stands by itself."""
    source = findings.statistics.source
    title = f"{source.database} · {source.slot}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title}: a pgwire-codec report"),
        element("style", Markup(STYLE)),
    )
    body = element(
        "body",
        element(
            "header",
            element("div", "pgwire-codec report", class_="made"),
            element("h1", title),
            element("p", _summary(findings)),
        ),
        element(
            "main",
            _tiles(findings),
            time_section(findings),
            tables_section(findings),
            largest_section(findings),
            lag_section(findings),
            schema_section(findings),
            problems_section(findings),
            snapshot_section(findings),
            open_section(findings),
            _log_section(findings),
        ),
        element("footer", f"Made by pgwire-codec {version('pgwire-codec')} from {findings.name}"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _summary(findings: Findings) -> Markup:
    line = findings.time_line
    if not findings.transactions:
        return join("No transaction has committed in this log yet.")
    changes = sum(map(changes_of, findings.tables))
    return join(
        element("b", many(findings.transactions, "transaction")),
        " made ",
        element("b", many(changes, "change")),
        " to ",
        element("b", many(len(findings.tables), "table")),
        f", committed from {moment(line.first)} to {moment(line.last)} UTC.",
    )


def _tiles(findings: Findings) -> Markup:
    statistics, line, lags = findings.statistics, findings.time_line, findings.lags
    sizes = sum(each.bytes for each in findings.tables)
    changes = sum(map(changes_of, findings.tables))
    bad, odd = sum(findings.problems.bad.values()), sum(findings.problems.odd.values())
    tiles = [
        _tile("Transactions", number(findings.transactions), _rate(findings)),
        _tile("Changes", number(changes), f"in {many(len(findings.tables), 'table')}"),
        _tile("Bytes", size(sizes), f"{size(statistics.bytes)} of files"),
    ]
    if len(line):
        tiles.append(_tile("Time", duration(line.last - line.first), "first to last commit"))
    if lags.known:
        share_known = 0
        for bound, count in zip(LAG_BOUNDS, lags.counts, strict=False):
            share_known += count
            if share_known >= 0.95 * lags.known:
                words = f"{share(share_known, lags.known)} of transactions"
                tiles.append(_tile("Sent within", duration(bound), words))
                break
        else:
            tiles.append(_tile("Longest lag", duration(lags.worst or 0), "commit to sending"))
    changed = len({each.table for each in findings.schema.first})
    more = f"of {many(changed, 'table')}" if changed else "of tables' shapes"
    tiles.append(_tile("Schema changes", number(findings.schema.count), more))
    more = f"{number(odd)} odd" if odd else "every message decodes" if not bad else "set aside"
    tiles.append(_tile("Errors", number(bad), more, kind="bad" if bad else "good"))
    return element("dl", *tiles, class_="tiles")


def _tile(name: str, value: str, more: str, kind: str | None = None) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", value, class_="value"),
        element("dd", more, class_="more"),
        class_=kind,
    )


def _rate(findings: Findings) -> str:
    span = findings.time_line.last - findings.time_line.first
    if not span:
        return "at one time" if findings.transactions else "none yet"
    a_second = findings.transactions * 1_000_000 / span
    for seconds, unit in ((1, "a second"), (60, "a minute")):
        if a_second * seconds >= 1:
            return f"{a_second * seconds:,.1f} {unit}"
    return f"{a_second * 3600:,.1f} an hour"


def _log_section(findings: Findings) -> Markup:
    found = findings.statistics
    source = found.source
    options = ", ".join(f"{name} {value}" for name, value in source.plugin_options.items())
    snapshot = (
        f", {number(found.snapshot_segments)} of a snapshot" if found.snapshot_segments else ""
    )
    facts = {
        "Slot": f"{source.slot} of database {source.database}",
        "Server": f"PostgreSQL {source.server_version // 10000}.{source.server_version % 10000}, "
        f"system {source.system_identifier}, timeline {source.timeline}",
        "Output plugin": options or "no options",
        "Segments": f"{many(found.segments, 'segment')} in {many(found.sessions, 'session')}"
        f"{snapshot}; {size(found.bytes)} of files",
        "Messages": f"{number(found.messages)}, {size(found.message_bytes)}; ordinals from "
        f"{number(found.begin.ordinal)} to before {number(found.end.ordinal)}",
        "Readable": f"commits after {format_lsn(found.begin.lsn)}, "
        f"up to {format_lsn(found.end.lsn)}",
        "Confirmed": f"up to {format_lsn(found.confirm_lsn)}" if found.confirm_lsn else "nothing",
    }
    if found.first_time is not None and found.last_time is not None:
        first, last = (int(time.astype("int64")) for time in (found.first_time, found.last_time))
        facts["Sent"] = f"from {moment(first)} to {moment(last)} UTC, by the server's clock"
    if findings.logical_messages:
        facts["Logical messages"] = number(findings.logical_messages)
    rows = [join(element("dt", name), element("dd", fact)) for name, fact in facts.items()]
    return element("section", element("h2", "The log"), element("dl", *rows, class_="facts"))
