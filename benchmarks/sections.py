"""Pages with a part of several benchmarks: each has its section."""

from __future__ import annotations

import re
from pathlib import Path


def write(page: Path, heading: str | None, text: str) -> None:
    """Replace the section with a heading, or the part before all sections; leave the others.

    Parameters
    ----------
    page : Path
        The page, which need not exist.
    heading : str or None
        Heading of the section, without ``##``; None: the part before all sections.
    text : str
        Content, without the heading.
    """
    before = page.read_text("utf-8") if page.exists() else ""
    first, *others = re.split(r"(?m)^(?=## )", before)
    found = {part.partition("\n")[0].removeprefix("## "): part for part in others}
    if heading is None:
        first = text
    else:
        found[heading] = f"## {heading}\n\n{text}"
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = (part.rstrip() + "\n" for part in (first, *found.values()) if part.strip())
    page.write_text("\n".join(parts), "utf-8")


def write_all(page: Path, text: str) -> None:
    """Replace the sections of a text, and the part before them; leave the page's others."""
    first, *others = re.split(r"(?m)^(?=## )", text)
    write(page, None, first)
    for part in others:
        heading, _, content = part.partition("\n")
        write(page, heading.removeprefix("## "), content.lstrip("\n"))
