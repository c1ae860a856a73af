"""``pgwire-codec run``: the capture and the mirror of one database, with the options of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from pgwire_codec.cli.metrics import joined_endpoint
from pgwire_codec.cli.run_file import file_argument, read_run_file, readable_secret
from pgwire_codec.cli.signals import recorded_signals
from pgwire_codec.cli.supervisor import Supervisor

_ONCE: Final = {"capture": "--until-lsn=now", "mirror": "--once"}

#: Option of a mirror that goes on.
_EVERY: Final = "--every="

#: Each command listens on a port of its own, which only this command asks.
_METRICS: Final = "--metrics=127.0.0.1:0"

_EPILOG = """\b
Examples:
  pgwire-codec init --dsn "host=db dbname=shop" shop.toml
  pgwire-codec run shop.toml
  pgwire-codec run --once shop.toml

A process that ends is started again after a pause, unless its exit status is 2 or 4: then the other
one is stopped, and the status is that of this command. SIGTERM and SIGINT (Ctrl-C) stop both:
exit status 0. Nothing is lost however they end.
"""


@click.command(epilog=_EPILOG)
@file_argument
@click.option("--once", is_flag=True, help="Capture and mirror the changes up to now, and end.")
@click.option(
    "--stop-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time in which the processes have to end when they are stopped. They are killed after it.",
)
@click.pass_context
def run(context: click.Context, file: Path, once: bool, stop_seconds: float) -> None:
    """Capture and mirror one database, with the options of a file.

    The sections [capture] and [mirror] of the TOML file have the options of these commands. Each is
    a process of its own, whose lines begin with its name. Relative paths start from the file's
    folder.
    """
    found = read_run_file(file)
    if (warning := readable_secret(found)) is not None:
        click.echo(f"warning: {warning}", err=True)
    commands = found.arguments
    if found.metrics is not None:
        commands = {name: [*each, _METRICS] for name, each in commands.items()}
    if once:
        commands = {
            name: [*(each for each in arguments if not each.startswith(_EVERY)), _ONCE[name]]
            for name, arguments in commands.items()
        }
    supervisor = Supervisor(commands, found.folder, once=once, stop_seconds=stop_seconds)
    with recorded_signals() as signalled, joined_endpoint(found.metrics, supervisor):
        context.exit(supervisor.run(signalled))
