"""Quoting of names, strings and properties in Spark's SQL."""

from __future__ import annotations

from collections.abc import Mapping


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """Return a string as a literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def properties_of(properties: Mapping[str, str]) -> str:
    """Return properties as the list of ``TBLPROPERTIES``."""
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
