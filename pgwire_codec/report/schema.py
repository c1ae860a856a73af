"""The section of schema changes: a time line with a lane a table, and what changed."""

from __future__ import annotations

from typing import Final

from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.report.charts import Window, time_ticks
from pgwire_codec.report.findings import Findings, SchemaChange
from pgwire_codec.report.markup import Markup, element
from pgwire_codec.report.over_time import padded
from pgwire_codec.report.parts import table, table_name
from pgwire_codec.report.words import many, moment, number

_LANES: Final = 12
_SIGNS: Final = {"+": "added", "-": "removed", "~": "changed"}


def schema_section(findings: Findings) -> Markup:
    """Show when tables changed their shape."""
    schema = findings.schema
    title = element("h2", "Schema changes")
    if not schema.count:
        words = "No table changed its shape."
        return element("section", title, element("p", words, class_="note"))
    shown = (
        ""
        if schema.count == len(schema.first)
        else f" The first {number(len(schema.first))} are shown."
    )
    rows = [
        element(
            "tr",
            element("td", moment(each.time), class_="time"),
            element("th", table_name(each.table), scope="row"),
            element("td", _details(each)),
            element("td", format_lsn(each.commit_lsn), class_="code"),
        )
        for each in schema.first
    ]
    return element(
        "section",
        title,
        element(
            "p",
            f"{many(schema.count, 'change')}, each told with the first row that came in the new "
            f"shape.{shown}",
            class_="note",
        ),
        _lanes(findings),
        table(
            "What changed",
            ["Commit time, UTC", "Table", "What changed", "Commit LSN"],
            rows,
        ),
    )


def _details(change: SchemaChange) -> Markup:
    items = [
        element(
            "li",
            element("span", sign.replace("-", "−"), class_=f"sign {_SIGNS[sign]}"),
            element("bdi", text),
        )
        for sign, text in change.details
    ]
    return element("ul", *items, class_="details")


def _lanes(findings: Findings) -> Markup | None:
    """Show the time line: one lane for each of the tables that changed."""
    schema = findings.schema
    names = list(dict.fromkeys(each.table for each in schema.first))
    if not len(findings.time_line):
        return None
    window, _, _ = padded(findings)
    lanes = []
    for name in names[:_LANES]:
        marks = [_mark(window, schema.first_seen[name], "first seen", "mark first")]
        marks += [
            _mark(window, each.time, "\n".join(f"{sign} {text}" for sign, text in each.details))
            for each in schema.first
            if each.table == name
        ]
        lanes.append(
            element(
                "div",
                element("span", table_name(name), class_="name"),
                element("div", *marks, class_="track"),
                class_="lane",
            )
        )
    more = len(names) - _LANES
    return element(
        "div",
        element(
            "ul",
            element("li", element("span", class_="mark first"), "table first seen"),
            element("li", element("span", class_="mark"), "shape changed"),
            class_="legend",
        ),
        *lanes,
        element(
            "div",
            element("span", class_="name"),
            element("div", time_ticks(window), class_="track times"),
            class_="lane",
            aria_hidden="true",
        ),
        element("p", f"And {many(more, 'table')} more, below.", class_="note")
        if more > 0
        else None,
        class_="lanes",
    )


def _mark(window: Window, time: int, words: str, kind: str = "mark") -> Markup:
    at = min(max(window.place(time), 0.0), 100.0)
    words = f"{moment(time, 'ms')}\n{words}"
    return element(
        "span",
        class_=kind,
        style=f"left:{at:.2f}%",
        title=words,
        role="img",
        aria_label=words,
    )
