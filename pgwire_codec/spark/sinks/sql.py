"""Quoting of names and strings in Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """Return a string as a literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
