"""Quoting of identifiers and literals in SQL and replication commands.

psycopg2 quotes only over a connection, and with escapes (``E'...'``) that replication commands and
configuration files do not accept.
"""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """Return a name in double quotes."""
    return _quoted(name, '"')


def quote_literal(value: str) -> str:
    """Return a string in single quotes, whose only escape is the doubled quote."""
    return _quoted(value, "'")


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, 2 * quote) + quote
