"""The command group ``pgwire-codec``, and the errors of its commands."""

from __future__ import annotations

from typing import Any

import click

from pgwire_codec.cli import PERMANENT
from pgwire_codec.cli.arguments import name_options
from pgwire_codec.cli.bench import bench
from pgwire_codec.cli.capture import capture
from pgwire_codec.cli.check import check
from pgwire_codec.cli.compare import compare
from pgwire_codec.cli.demo import demo
from pgwire_codec.cli.failure import Failure, exit_code_of
from pgwire_codec.cli.inspect import inspect
from pgwire_codec.cli.log import log
from pgwire_codec.cli.mirror import mirror
from pgwire_codec.cli.report import report
from pgwire_codec.errors import PgwireError
from pgwire_codec.format import printable


class _Group(click.Group):
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
            status = error.exit_code if isinstance(error, Failure) else PERMANENT
            raise Failure(printable(error.message), status) from error


def _line(text: str, command: click.Command | None) -> str:
    """Return an error's text or hint as one line, with the command's options."""
    return printable(name_options(" ".join(text.split()), command))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pgwire-codec", prog_name="pgwire-codec")
def app() -> None:
    """Capture and decode PostgreSQL's logical replication stream (pgoutput)."""


app.add_command(inspect)
app.add_command(check)
app.add_command(capture)
app.add_command(demo)
app.add_command(log)
app.add_command(report)
app.add_command(bench)
app.add_command(mirror)
app.add_command(compare)
