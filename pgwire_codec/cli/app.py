"""The command group ``pgwire-codec``, and the errors of its commands."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from pgwire_codec.cli import PERMANENT
from pgwire_codec.cli.failure import Failure, exit_code_of
from pgwire_codec.cli.memory import allocator_of_command
from pgwire_codec.errors import PgwireError
from pgwire_codec.format import printable

#: Commands and their short help. A command's module, of its name, is imported when it is called.
_COMMANDS: Final = {
    "bench": "Measure the decoder on this machine, in about a minute.",
    "capture": "Capture a replication slot of a running server into a durable log.",
    "check": "Check that a server is ready for a capture.",
    "compare": "Compare the tables of a mirror with those of the server.",
    "demo": "Mirror a small shop's tables into Delta, and compare them with the server.",
    "inspect": "Show the messages of a capture.",
    "log": "Inspect and maintain a log: a directory of captured messages, or its URI.",
    "mirror": "Keep the tables of a log as Delta or Iceberg tables, with Spark on this machine.",
    "report": "Show a log on one HTML page.",
}


class NotImported(click.Command):
    """Name and help of a command, until it is called."""


class _Group(click.Group):
    """Command group that shows this package's errors without a traceback, and hints below them.

    The exit status shows whether a retry can help, see :mod:`pgwire_codec.cli`. Names of
    tables and slots in an error can contain any character, and are escaped.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if isinstance(self.commands.get(cmd_name), NotImported):
            with allocator_of_command():
                module = import_module(f"pgwire_codec.cli.{cmd_name}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        click.Group(commands=self.commands).format_commands(ctx, formatter)

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


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pgwire-codec", prog_name="pgwire-codec")
def app() -> None:
    """Capture and decode PostgreSQL's logical replication stream (pgoutput)."""


for _name, _help in _COMMANDS.items():
    app.add_command(NotImported(_name, help=_help))
