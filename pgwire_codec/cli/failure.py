"""Failures of a command that are not errors of the package."""

from __future__ import annotations

import errno

import click

from pgwire_codec.cli.exit_codes import NEEDS_SOMEBODY, TRY_AGAIN


class Failure(click.ClickException):
    """An error that ends a command with a line on stderr and an exit status.

    Parameters
    ----------
    message : str
    exit_code : int
    """

    def __init__(self, message: str, exit_code: int = NEEDS_SOMEBODY) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click has one a class


def cannot_write(path: object, error: OSError) -> Failure:
    """Return the failure for a file that cannot be written."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    reason = error.strerror or str(error)
    return Failure(f"cannot write {path}: {reason}", TRY_AGAIN if is_full else NEEDS_SOMEBODY)
