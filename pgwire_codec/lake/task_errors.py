"""Errors of other programs as errors of this package, and which of them may pass."""

from __future__ import annotations

import errno
from typing import Final

from pgwire_codec.errors import PgwireError, TableError
from pgwire_codec.lake.damage import DamagedFileError
from pgwire_codec.lake.tables.target import CommitConflict

#: Numbers of errors of a file system that do not pass by themselves.
_LASTING: Final = frozenset({
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR,
    errno.ELOOP, errno.EINVAL, errno.EEXIST, errno.ENOTEMPTY,
})  # fmt: skip

#: Errors of obstore that do not pass by themselves.
_LASTING_OF_STORE: Final = frozenset({
    "InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError", "AlreadyExistsError",
})  # fmt: skip


def error_of(error: Exception, place: str) -> PgwireError:
    """Return the error of a table, or that of a full disk, which concerns all tables.

    ``place`` was to be written or read.
    """
    if isinstance(error, PgwireError):
        return error
    if isinstance(error, FileNotFoundError):
        return DamagedFileError(f"a file is missing: {error.filename or error}", place, True)
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return PgwireError(
                f"cannot write {error.filename or place}: {error.strerror}",
                hint="Free some space, and start again. Changes that were applied are safe.",
                is_transient=True,
            )
        if error.errno in _LASTING:
            return TableError(f"{place}: {error}", hint="Remove the cause, and resume the table.")
        return _passing(error, place)
    kind = type(error)
    if kind.__module__.startswith("obstore") and kind.__name__ not in _LASTING_OF_STORE:
        return _passing(error, place)
    return TableError(
        f"{place}: {kind.__name__}: {error}",
        hint="Resume the table, if you know the cause and have removed it. Otherwise, report the "
        "error with the lines of the log around it.",
    )


def _passing(error: Exception, place: str) -> TableError:
    return TableError(
        f"{place}: {type(error).__name__}: {error}",
        hint="The table is tried again by itself. If the error stays, look at its disk, its store, "
        "and the permissions there.",
        is_transient=True,
    )


def ends_all(error: Exception) -> bool:
    """Return whether an error concerns all tables, and may pass."""
    return (
        isinstance(error, PgwireError)
        and error.is_transient
        and not isinstance(error, (TableError, CommitConflict))
    )


def may_pass(error: Exception) -> bool:
    """Return whether an error of a table may pass by itself."""
    return (
        isinstance(error, (TableError, CommitConflict))
        and error.is_transient
        and not isinstance(error, DamagedFileError)
    )
