"""Errors of tasks as errors of this package."""

from __future__ import annotations

import errno

from pgwire_codec.errors import PgwireError, TableError


def error_of(error: Exception, place: str) -> PgwireError:
    """Return the error of a table, or that of a full disk, which concerns all tables.

    ``place`` was to be written or read.
    """
    if isinstance(error, PgwireError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        named = error.filename or place
        return PgwireError(
            f"cannot write {named}: {error.strerror}",
            hint="Free some space, and start again. Changes that were applied are safe.",
            is_transient=True,
        )
    return TableError(f"{type(error).__name__}: {error}")


def ends_all(error: Exception) -> bool:
    """Return whether an error concerns all tables, and may pass."""
    return (
        isinstance(error, PgwireError) and error.is_transient and not isinstance(error, TableError)
    )
