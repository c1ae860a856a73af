"""Names in Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return f"`{name.replace('`', '``')}`"
