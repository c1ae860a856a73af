"""Sections that are tables: of tables, of large and of open transactions, of problems."""

from __future__ import annotations

from typing import Final

from pgwire_codec.log import TableCount
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.report.charts import table_bar
from pgwire_codec.report.findings import Findings, LargeTransaction
from pgwire_codec.report.markup import Markup, element, join
from pgwire_codec.report.parts import OPERATIONS, changes_of, legend, table, table_name
from pgwire_codec.report.words import duration, many, moment, number, share, size

_MOST_TABLES: Final = 100
_MOST_NAMES: Final = 3


def tables_section(findings: Findings) -> Markup:
    """Show changes and bytes of each table."""
    told = sum(map(changes_of, findings.statistics.sent))
    committed = sum(map(changes_of, (*findings.tables, *findings.snapshot)))
    rest = told - committed
    return element(
        "section",
        element("h2", "Tables"),
        element(
            "p",
            "Committed changes, each once."
            + (
                f" The log tells {many(rest, 'more change')}: rolled back, told a second time, set "
                "aside, or of a transaction that is still open."
                if rest > 0
                else ""
            ),
            class_="note",
        ),
        legend() if findings.tables else None,
        _counts(findings.tables, "Changes by table and operation, most bytes first"),
    )


def snapshot_section(findings: Findings) -> Markup | None:
    """Show the rows that the log begins with."""
    if not findings.snapshot:
        return None
    rows = [
        element(
            "tr",
            element("th", table_name(each.table), scope="row"),
            element("td", number(each.inserts), class_="number"),
            element("td", size(each.bytes), class_="number"),
        )
        for each in sorted(findings.snapshot, key=lambda each: (-each.bytes, each.table))
    ]
    return element(
        "section",
        element("h2", "Snapshot"),
        element(
            "p",
            "Tables as they were when the slot was created. These rows are no changes, and counted "
            "nowhere else on this page.",
            class_="note",
        ),
        table("Rows by table", ["Table", "Rows", "Bytes"], rows, numbers=(1, 2)),
    )


def largest_section(findings: Findings) -> Markup:
    """Show the transactions with most bytes."""
    found = findings.largest
    title = element("h2", "Largest transactions")
    if not found:
        return element("section", title, element("p", "There are none.", class_="note"))
    whole = sum(each.bytes for each in findings.tables)
    rows = [_large(each, found[0].bytes, whole) for each in found]
    return element(
        "section",
        title,
        table(
            f"The {len(found)} with most bytes of changes" if len(found) > 1 else "The only one",
            ["Commit time, UTC", "", "Bytes", "Share", "Changes", "Lag", "Tables", "xid", "LSN"],
            rows,
            numbers=(2, 3, 4, 5, 7),
        ),
    )


def open_section(findings: Findings) -> Markup | None:
    """Show transactions that had neither committed nor rolled back at the log's end."""
    found = findings.statistics.open
    if not found:
        return None
    rows = [
        element(
            "tr",
            element("th", number(each.xid), scope="row"),
            element("td", each.kind),
            element("td", each.gid),
            element("td", number(each.changes), class_="number"),
            element("td", number(each.first_ordinal), class_="number"),
        )
        for each in found
    ]
    return element(
        "section",
        element("h2", "Open transactions"),
        element(
            "p",
            "Begun, and neither committed nor rolled back where the log ends.",
            class_="note",
        ),
        table(
            "Open transactions",
            ["xid", "Kind", "Prepared as", "Changes so far", "From ordinal"],
            rows,
            numbers=(3, 4),
        ),
    )


def problems_section(findings: Findings) -> Markup:
    """Show what does not decode."""
    problems = findings.problems
    title = element("h2", "Errors")
    bad, odd = sum(problems.bad.values()), sum(problems.odd.values())
    if not bad and not odd:
        words = "Every message decodes, and follows the others as the protocol wants."
        return element("section", title, element("p", words, class_="verdict good"))
    codes = [
        f"{number(count)} {code}"
        for counts in (problems.bad, problems.odd)
        for code, count in sorted(counts.items(), key=lambda each: -each[1])
    ]
    rows = [
        element(
            "tr",
            element(
                "td", "earlier" if each.ordinal is None else number(each.ordinal), class_="number"
            ),
            element("td", each.code, class_="code"),
            element("td", each.text),
            element("td", "decoded all the same" if each.is_odd else "set aside"),
        )
        for each in problems.first
    ]
    verdict = (
        f"{many(bad, 'message does', 'messages do')} not decode"
        if bad
        else f"Every message decodes; {many(odd, 'is', 'are')} odd"
    )
    return element(
        "section",
        title,
        element("p", verdict, class_=f"verdict {'bad' if bad else 'good'}"),
        element("p", f"By code: {'; '.join(codes)}.", class_="note"),
        table(
            f"The first {len(rows)} of {number(bad + odd)}" if bad + odd > len(rows) else "All",
            ["Ordinal", "Code", "What is wrong", "What became of it"],
            rows,
            numbers=(0,),
        ),
    )


def _counts(counts: tuple[TableCount, ...], caption: str) -> Markup:
    if not counts:
        return element("p", "No changes.", class_="note")
    ordered = sorted(counts, key=lambda each: (-each.bytes, each.table))
    most = max(map(changes_of, counts))
    rows = [_count_row(each, most) for each in ordered[:_MOST_TABLES]]
    if len(ordered) > _MOST_TABLES:
        rest = ordered[_MOST_TABLES:]
        rows.append(_count_row(_total(rest, many(len(rest), "more table")), most))
    total = _total(ordered, "All tables")
    foot = element("tr", element("th", total.table, scope="row"), element("td"), *_numbers(total))
    words = [word.capitalize() for _, _, word in OPERATIONS]
    return table(caption, ["Table", "", *words, "Bytes"], rows, numbers=(2, 3, 4, 5, 6), foot=foot)


def _count_row(count: TableCount, most: int) -> Markup:
    numbers = (count.inserts, count.updates, count.deletes, count.truncates)
    bar = table_bar(
        [
            (kind, 100 * value / most)
            for (_, kind, _), value in zip(OPERATIONS, numbers, strict=True)
        ],
        many(changes_of(count), "change"),
    )
    return element(
        "tr",
        element("th", table_name(count.table), scope="row"),
        element("td", bar, class_="wide"),
        *_numbers(count),
    )


def _numbers(count: TableCount) -> list[Markup]:
    values = (count.inserts, count.updates, count.deletes, count.truncates)
    cells = [
        element("td", number(value), class_="number" if value else "number nothing")
        for value in values
    ]
    return [*cells, element("td", size(count.bytes), class_="number", title=number(count.bytes))]


def _total(counts: list[TableCount], name: str) -> TableCount:
    return TableCount(
        name,
        sum(each.inserts for each in counts),
        sum(each.updates for each in counts),
        sum(each.deletes for each in counts),
        sum(each.truncates for each in counts),
        sum(each.bytes for each in counts),
    )


def _large(each: LargeTransaction, most: int, whole: int) -> Markup:
    names = [join(table_name(name)) for name in each.tables[:_MOST_NAMES]]
    listed = join(*(part for name in names for part in (", ", name)))[2:]
    more = len(each.tables) - _MOST_NAMES
    about = [
        f"prepared as {each.gid}" if each.gid is not None else None,
        f"from {each.origin}" if each.origin is not None else None,
    ]
    return element(
        "tr",
        element("td", moment(each.commit_time), class_="time"),
        element(
            "td",
            table_bar([("plain", 100 * each.bytes / max(most, 1))], size(each.bytes)),
            class_="narrow",
        ),
        element("td", size(each.bytes), class_="number", title=number(each.bytes)),
        element("td", share(each.bytes, whole), class_="number"),
        element("td", number(each.changes), class_="number"),
        element("td", "?" if each.lag is None else duration(each.lag), class_="number"),
        element(
            "td",
            Markup(listed),
            f" and {more} more" if more > 0 else None,
            *(element("div", words, class_="note") for words in about if words),
            class_="names",
        ),
        element("td", each.xid, class_="number"),
        element("td", format_lsn(each.commit_lsn), class_="code"),
    )
