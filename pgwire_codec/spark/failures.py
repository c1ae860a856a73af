"""Errors of this package in the text of Spark's, which contains the stacks of all processes."""

from __future__ import annotations

import re
from typing import Final

from pgwire_codec.errors import PgwireError, TableError

_OURS: Final = re.compile(r"pgwire_codec\.errors\.\w+: (.*)")


def failure_of(text: str) -> PgwireError:
    """Return the error for the text of one that Spark raised."""
    lines = [line for line in text.splitlines() if line.strip()]
    return error_in(text) or PgwireError(lines[0] if lines else "the query failed")


def error_in(text: str) -> TableError | None:
    """Return the error of this package in the text of one that Spark raised; None without one."""
    found = _OURS.findall(text)
    return error_of(found[-1]) if found else None


def error_of(text: str) -> TableError:
    """Return an error with the primary text and the hint of the text of another one."""
    primary, _, hint = text.partition(" — hint: ")
    return TableError(primary, hint=hint or None)
