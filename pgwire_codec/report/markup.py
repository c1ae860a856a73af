"""HTML and SVG in a few words. Text is escaped unless it is markup already."""

from __future__ import annotations

from html import escape
from typing import Final, TypeAlias

_VOID: Final = ("meta", "col")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | int | None"


def element(tag: str, *content: Content, **attributes: str | float | None) -> Markup:
    """Give an element: ``element("p", "a < b", class_="note")``.

    Content that is no :class:`Markup` is escaped, and so are all attributes. Of an attribute's
    name an underscore at the end is dropped, others become hyphens; one that is None is left out.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = join(*content)
    return Markup(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}>{inside}</{tag}>")


def join(*content: Content) -> Markup:
    """Give one piece of markup behind the other; None is nothing."""
    return Markup("".join(map(_markup, content)))


def _markup(content: Content) -> str:
    if content is None:
        return ""
    return content if isinstance(content, Markup) else escape(str(content))
