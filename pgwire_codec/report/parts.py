"""What sections have in common: tables, names, the colours of operations."""

from __future__ import annotations

from typing import Final

from pgwire_codec.log import TableCount
from pgwire_codec.report.findings import DELETES, INSERTS, TRUNCATES, UPDATES
from pgwire_codec.report.markup import Markup, element

#: The operations: column, colour, word.
OPERATIONS: Final = (
    (INSERTS, "insert", "inserts"),
    (UPDATES, "update", "updates"),
    (DELETES, "delete", "deletes"),
    (TRUNCATES, "truncate", "truncates"),
)


def table(
    caption: str,
    names: list[str],
    rows: list[Markup],
    *,
    numbers: tuple[int, ...] = (),
    foot: Markup | None = None,
) -> Markup:
    """Give a table in a box of its own, which scrolls where the page is too narrow."""
    heads = [
        element("th", name, scope="col", class_="number" if place in numbers else None)
        for place, name in enumerate(names)
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *heads)),
            element("tbody", *rows),
            None if foot is None else element("tfoot", foot),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def table_name(name: str) -> Markup:
    """Give a name that cannot turn the direction of the text around it."""
    return element("bdi", name)


def legend() -> Markup:
    """Give the colours of the operations."""
    items = [element("li", element("span", class_=kind), word) for _, kind, word in OPERATIONS]
    return element("ul", *items, class_="legend")


def changes_of(count: TableCount) -> int:
    """Give how many changes are counted."""
    return count.inserts + count.updates + count.deletes + count.truncates
