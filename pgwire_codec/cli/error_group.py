"""ErrorGroup: commands whose errors are lines, with the options of the command that was called."""

from __future__ import annotations

from typing import Any

import click

from pgwire_codec.cli import PERMANENT
from pgwire_codec.cli.failure import Failure, exit_code_of
from pgwire_codec.errors import PgwireError
from pgwire_codec.format import printable


class ErrorGroup(click.Group):
    """Command group that shows this package's errors without a traceback, and hints below them.

    The exit status shows whether a retry can help, see :mod:`pgwire_codec.cli`. Names of
    tables and slots in an error can contain any character, and are escaped.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PgwireError as error:
            command = self.commands.get(ctx.invoked_subcommand or "")
            primary = _line(error.primary, command)
            hint = None if error.hint is None else _line(error.hint, command)
            raise Failure(primary, exit_code_of(error), hint=hint) from error
        except click.UsageError:
            raise
        except click.ClickException as error:
            status, hint = PERMANENT, None
            if isinstance(error, Failure):
                status = error.exit_code
                hint = None if error.hint is None else printable(error.hint)
            raise Failure(printable(error.message), status, hint=hint) from error


def _line(text: str, command: click.Command | None) -> str:
    """Return an error's text or hint as one line, with the command's options."""
    from pgwire_codec.cli.arguments import name_options

    return printable(name_options(" ".join(text.split()), command))
