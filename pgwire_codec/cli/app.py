"""The command group ``pgwire-codec``."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from pgwire_codec.cli.error_group import ErrorGroup
from pgwire_codec.cli.memory import allocator_of_command

#: Commands and their short help. A command's module, of its name, is imported when it is called.
_COMMANDS: Final = {
    "capture": "Capture a replication slot of a running server into a durable log.",
    "check": "Check that a server is ready for a capture.",
    "compare": "Compare the tables of a mirror with those of the server, with Spark or without it.",
    "demo": "Mirror a small shop's tables into Delta, and compare them with the server.",
    "init": "Check a server, and write the file of a capture and a mirror of it.",
    "inspect": "Show the messages of a capture.",
    "log": "Inspect and maintain a log: a directory of captured messages, or its URI.",
    "mirror": "Keep the tables of a log as Delta or Iceberg tables, with Spark or without it.",
    "report": "Show a log on one HTML page.",
    "resume": "Have a mirror resume a table that failed.",
    "run": "Capture and mirror one database, with the options of a file.",
    "status": "Show the slot, the log and the tables of a file.",
    "verify": "Read all files that the tables of a mirror need, and check them.",
}


class NotImported(click.Command):
    """Name and help of a command, until it is called."""


class _App(ErrorGroup):
    """The commands, each of which is imported when it is called."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if isinstance(self.commands.get(cmd_name), NotImported):
            with allocator_of_command():
                module = import_module(f"pgwire_codec.cli.{cmd_name}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        click.Group(commands=self.commands).format_commands(ctx, formatter)


@click.group(cls=_App, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pgwire-codec", prog_name="pgwire-codec")
def app() -> None:
    """Capture and decode PostgreSQL's logical replication stream (pgoutput)."""


for _name, _help in _COMMANDS.items():
    app.add_command(NotImported(_name, help=_help))
