"""Passwords from a command, for those that are valid for minutes: IAM tokens, Vault's."""

from __future__ import annotations

import subprocess
from typing import Final

from pgwire_codec.errors import CaptureError, OptionError

_SECONDS: Final = 30.0  # in which the command must end


class CommandedDsn(str):
    """A connection string whose password is the output of a command.

    Attributes
    ----------
    password_command : str
        Shell command.
    """

    __slots__ = ("password_command",)

    password_command: str


def with_password_command(dsn: str, command: str | None) -> str:
    """Return a connection string whose password a command prints.

    The command runs again for each connection. Neither the string nor the command contains the
    password, so other users of the machine cannot see it in the list of processes.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI, without a password.
    command : str or None
        Command for ``sh``, which has to end within 30 seconds. The first line of its output is the
        password. Its errors go to the standard error. None: ``dsn`` is returned as it is.

    Raises
    ------
    OptionError
        For an empty command.

    Examples
    --------
    >>> dsn = "host=db.example.org dbname=shop user=reader sslmode=verify-full"
    >>> dsn = with_password_command(dsn, "vault read -field=password database/creds/reader")
    >>> LogCapture(dsn, "shop.log", slot="s", publication="p")
    """
    if command is None:
        return dsn
    if not command.strip():
        raise OptionError("the password command is empty")
    found = CommandedDsn(dsn)
    found.password_command = command
    return found


def password_options(dsn: str) -> dict[str, str]:
    """Return the libpq options that the command of a connection string gives: one, or none.

    Raises
    ------
    CaptureError
        When the command fails, prints nothing, or does not end. It is transient: a later attempt
        may succeed.
    """
    if not isinstance(dsn, CommandedDsn):
        return {}
    try:
        done = subprocess.run(
            ["sh", "-c", dsn.password_command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        # Not in the handler: the exception has what the command printed.
        done = None
    if done is None:
        raise _failure(f"did not end within {_SECONDS:.0f} seconds")
    if done.returncode:
        raise _failure(f"ended with status {done.returncode}")
    password = done.stdout.decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
    if not password:
        raise _failure("printed no password")
    return {"password": password}


def _failure(how: str) -> CaptureError:
    return CaptureError(
        f"the password command {how}",
        hint="Run it by hand, as the same user: the first line of its output is the password.",
        is_transient=True,
    )
