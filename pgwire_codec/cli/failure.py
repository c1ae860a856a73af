"""Failures of a command, and the exit statuses of errors."""

from __future__ import annotations

import errno

import click

from pgwire_codec.cli import PERMANENT, RETRY, USAGE
from pgwire_codec.errors import OptionError, PgwireError


class Failure(click.ClickException):
    """An error that ends a command with a line on stderr, a line for its hint, and an exit status.

    Parameters
    ----------
    message : str
    exit_code : int
    hint : str or None
    """

    def __init__(
        self, message: str, exit_code: int = PERMANENT, *, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it as a class variable

    def format_message(self) -> str:
        """Return the message, and the hint on a line of its own."""
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


def exit_code_of(error: PgwireError) -> int:
    """Return the exit status for an error of this package."""
    if isinstance(error, OptionError):
        return USAGE
    return RETRY if error.is_transient else PERMANENT


def cannot_write(path: object, error: OSError) -> Failure:
    """Return the failure for a file that cannot be written."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    reason = error.strerror or str(error)
    return Failure(f"could not write {path}: {reason}", RETRY if is_full else PERMANENT)
