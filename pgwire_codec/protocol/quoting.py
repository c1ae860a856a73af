"""Quoting of identifiers and literals in SQL, replication commands and names of tables.

psycopg2 quotes only over a connection, and with escapes (``E'...'``) that replication commands and
configuration files do not accept.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")

#: A part of a qualified name, and what follows it.
_PART: Final = re.compile(r'(?:"((?:[^"]|"")*)"|([^".]+))(\.|$)')

#: A quoted identifier, or one without quotes.
_IDENTIFIER: Final = re.compile(r'"((?:[^"]|"")*)"|([^\s,"]+)')


def quote_identifier(name: str) -> str:
    """Return a name in double quotes."""
    return _quoted(name, '"')


def identifier(name: str) -> str:
    """Return a name as PostgreSQL writes it, in double quotes if it needs them.

    Key words have none, unlike in PostgreSQL: in the name of a table, they need none.
    """
    return name if _PLAIN.fullmatch(name) else quote_identifier(name)


def qualified_name(namespace: str, name: str) -> str:
    """Return ``schema.table``, each part as :func:`identifier` writes it; or ``table`` alone."""
    return f"{identifier(namespace)}.{identifier(name)}" if namespace else identifier(name)


def parse_qualified_name(text: str) -> tuple[str, str] | None:
    """Return schema and table of what :func:`qualified_name` wrote; None for another text.

    A part without quotes is taken as it is.
    """
    parts = []
    place = 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None:
            return None
        quoted, plain, end = part.groups()
        parts.append(plain if quoted is None else quoted.replace('""', '"'))
        place = part.end()
        if end and place == len(text):
            return None
    if len(parts) == 1:
        return "", parts[0]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def split_identifiers(text: str) -> list[str]:
    """Return the names in a list that is separated by commas, as ``SplitIdentifierString`` does."""
    return [
        bare.lower() if bare else quoted.replace('""', '"')
        for quoted, bare in _IDENTIFIER.findall(text)
    ]


def quote_spark_identifier(name: str) -> str:
    """Return a name in backticks, as in Spark's SQL."""
    return _quoted(name, "`")


def quote_literal(value: str) -> str:
    """Return a string in single quotes, whose only escape is the doubled quote."""
    return _quoted(value, "'")


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, 2 * quote) + quote
