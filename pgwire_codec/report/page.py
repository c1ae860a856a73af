"""The report as one HTML page, rendered from ``templates/`` and ``style.css``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pgwire_codec import format as formats
from pgwire_codec.lake.status import SET_ASIDE
from pgwire_codec.log import TableCount
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.report.charts import table_bar
from pgwire_codec.report.findings import (
    LAG_BOUNDS,
    Findings,
    LakeFindings,
    LakeTable,
    Problems,
    changes_of,
)
from pgwire_codec.report.time_charts import OPERATIONS, time_charts

_PACKAGE: Final = "pgwire_codec.report"
_MAX_TABLES: Final = 100
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_FILTERS: Final[dict[str, Any]] = {
    "number": formats.format_number,
    "count_of": formats.format_count,
    "size": formats.format_size,
    "duration": formats.format_duration,
    "timestamp": formats.format_timestamp,
    "share": formats.format_share,
    "lsn": format_lsn,
    "changes_of": changes_of,
}


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the large figures at the top; ``kind`` is a class of the style sheet."""

    name: str
    value: str
    note: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class LagRow:
    """Transactions with a lag up to a bound, and those up to here."""

    name: str
    count: int
    sum: int


def render(findings: Findings) -> str:
    """Return the report as one HTML page that needs no other file."""
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            findings=findings,
            statistics=findings.statistics,
            source=findings.statistics.source,
            line=findings.time_line,
            lags=findings.lags,
            schema=findings.schema,
            problems=findings.problems,
            lake=findings.lake,
            not_mirrored=_not_mirrored(findings),
            troubled=_troubled(findings.lake),
            charts=time_charts(findings),
            tiles=list(_tiles(findings)),
            tables=_largest_tables(findings.tables),
            total=_total(findings.tables, "All tables"),
            snapshot=_by_size(findings.snapshot),
            lag_rows=list(_lag_rows(findings)),
            codes=list(_codes(findings.problems)),
            version=version("pgwire-codec"),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS | {"operation_counts": _operation_counts}
    environment.globals |= {
        "style": Markup((files(_PACKAGE) / "style.css").read_text("utf-8")),
        "operations": OPERATIONS,
        "share_bar": _share_bar,
        "operations_bar": _operations_bar,
    }
    return environment


def _without_control_characters(value: Any) -> Any:
    """Escape the control characters of a text, but for tabs and line ends."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return _CONTROL.sub(lambda found: formats.printable(found[0]), value)


def _tiles(findings: Findings) -> Iterator[Tile]:
    number, size = formats.format_number, formats.format_size
    line, lags = findings.time_line, findings.lags
    tables = formats.format_count(len(findings.tables), "table")
    yield Tile("Transactions", number(findings.transactions), _rate(findings))
    yield Tile("Changes", number(findings.changes), f"in {tables}")
    yield Tile("Bytes", size(findings.bytes), f"{size(findings.statistics.bytes)} of files")
    if len(line):
        span = formats.format_duration(line.last - line.first)
        yield Tile("Time", span, "first to last commit")
    if lags.known:
        yield _lag_tile(findings)
    if findings.lake is not None:
        yield _lake_tile(findings.lake)
    changed = formats.format_count(len(findings.schema.tables), "table")
    note = f"of {changed}" if findings.schema.count else "of table definitions"
    yield Tile("Schema changes", number(findings.schema.count), note)
    errors = sum(findings.problems.errors.values())
    warnings = sum(findings.problems.warnings.values())
    note = "every message decodes" if not errors else "of decoding"
    if warnings:
        note = formats.format_count(warnings, "warning")
    yield Tile("Errors", number(errors), note, "bad" if errors else "good")


def _lake_tile(lake: LakeFindings) -> Tile:
    """Return the number of tables that are complete, or of those that are set aside."""
    aside = sum(each.state == SET_ASIDE for each in lake.tables)
    tables = formats.format_count(len(lake.tables), "table")
    if aside:
        return Tile("Lake", f"{formats.format_number(aside)} set aside", f"of {tables}", "bad")
    complete = sum(each.is_complete for each in lake.tables)
    kind = "good" if complete == len(lake.tables) else ""
    return Tile("Lake", formats.format_number(complete), f"of {tables} up to date", kind)


def _not_mirrored(findings: Findings) -> list[str]:
    """Return the tables with changes in the log that the lake does not have."""
    if findings.lake is None:
        return []
    mirrored = {each.table for each in findings.lake.tables}
    logged = {each.table for each in (*findings.tables, *findings.snapshot)}
    return sorted(logged - mirrored)


def _troubled(lake: LakeFindings | None) -> list[LakeTable]:
    """Return the tables with an error, or without values of some columns."""
    tables = () if lake is None else lake.tables
    return [each for each in tables if each.error is not None or each.incomplete]


def _lag_tile(findings: Findings) -> Tile:
    """Return the bound that nearly all lags are within, or the longest lag."""
    lags, sum_ = findings.lags, 0
    for bound, count in zip(LAG_BOUNDS, lags.counts, strict=False):
        sum_ += count
        if sum_ >= 0.95 * lags.known:
            share = formats.format_share(sum_, lags.known)
            return Tile("Sent within", formats.format_duration(bound), f"{share} of transactions")
    return Tile("Longest lag", formats.format_duration(lags.worst or 0), "commit to sending")


def _rate(findings: Findings) -> str:
    span = findings.time_line.last - findings.time_line.first
    if not span:
        return "at one time" if findings.transactions else "none yet"
    per_second = findings.transactions * 1_000_000 / span
    for seconds, unit in ((1, "a second"), (60, "a minute")):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:,.1f} {unit}"
    return f"{per_second * 3600:,.1f} an hour"


def _lag_rows(findings: Findings) -> Iterator[LagRow]:
    names = [f"up to {formats.format_duration(bound)}" for bound in LAG_BOUNDS]
    sum_ = 0
    for name, count in zip([*names, "longer"], findings.lags.counts, strict=True):
        sum_ += count
        if count:
            yield LagRow(name, count, sum_)


def _codes(problems: Problems) -> Iterator[str]:
    for counts in (problems.errors, problems.warnings):
        for code, count in sorted(counts.items(), key=lambda each: -each[1]):
            yield f"{formats.format_number(count)} {code}"


def _by_size(counts: Iterable[TableCount]) -> list[TableCount]:
    return sorted(counts, key=lambda each: (-each.bytes, each.table))


def _largest_tables(counts: Iterable[TableCount]) -> list[TableCount]:
    """Return the tables with the most bytes, and the sum of those that are not shown."""
    ordered = _by_size(counts)
    rest = ordered[_MAX_TABLES:]
    more = [_total(rest, formats.format_count(len(rest), "more table"))] if rest else []
    return ordered[:_MAX_TABLES] + more


def _total(counts: Iterable[TableCount], name: str) -> TableCount:
    rows = [(*_operation_counts(each), each.bytes) for each in counts]
    return TableCount(name, *map(sum, zip(*rows, strict=True)))


def _operation_counts(count: TableCount) -> tuple[int, ...]:
    return count.inserts, count.updates, count.deletes, count.truncates


def _operations_bar(count: TableCount, largest: int) -> Markup:
    parts = [
        (kind, 100 * value / largest)
        for (_, kind, _), value in zip(OPERATIONS, _operation_counts(count), strict=True)
    ]
    return table_bar(parts, formats.format_count(changes_of(count), "change"))


def _share_bar(kind: str, value: int, largest: int, label: str) -> Markup:
    return table_bar([(kind, 100 * value / max(largest, 1))], label)
