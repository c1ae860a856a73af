"""Changes for people: counts of operations as text, and small HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.format import format_count

#: Operations of changes, by the letter of ``_op``.
OPERATIONS: Final = {"I": "insert", "U": "update", "D": "delete", "T": "truncate"}

_MOST_CHARACTERS: Final = 60  # of a value
_MOST_NAMES: Final = 12


def operation_counts(operations: npt.NDArray[np.uint8]) -> dict[str, int]:
    """Return how many changes have each operation, by its letter."""
    return {letter: int((operations == ord(letter)).sum()) for letter in OPERATIONS}


def operations_text(counts: dict[str, int]) -> str:
    """Return ``2 inserts, 1 update``."""
    return ", ".join(format_count(n, OPERATIONS[letter]) for letter, n in counts.items() if n)


def names_text(names: Sequence[str]) -> str:
    """Return names, or the first ones if there are many."""
    more = [f"… ({len(names)})"] if len(names) > _MOST_NAMES else []
    return ", ".join([*names[:_MOST_NAMES], *more])


def html_text(text: str) -> str:
    """Return the HTML of a text."""
    from html import escape  # its table of entities takes a millisecond

    return escape(text)


def special(text: str) -> str:
    """Return the HTML of what is not a value."""
    return f"<i>{html_text(text)}</i>"


def value(text: str) -> str:
    """Return the HTML of a value's text, or of its beginning."""
    more = "…" if len(text) > _MOST_CHARACTERS else ""
    return html_text(text[:_MOST_CHARACTERS]) + more


def html_table(caption: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return an HTML table of cells that are HTML."""
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<table><caption>{html_text(caption)}</caption>"
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    )
