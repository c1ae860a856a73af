"""``pgwire-codec status``: the state of the capture and the mirror of a file."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from pgwire_codec.cli.run_file import file_argument, inside, read_run_file
from pgwire_codec.cli.status_report import plain, read_status, show

_EPILOG = """\b
Examples:
  pgwire-codec status shop.toml
  pgwire-codec status --json shop.toml

The exit status is 0 if all is well; 3 if a part cannot be read now, such as a server that is down,
or if a table is incomplete, modified, tried again, or lacks changes that the log has had for a
minute; 4 if the slot is lost or missing, or a table is set aside. The highest one counts.
"""


@click.command(epilog=_EPILOG)
@file_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def status(context: click.Context, file: Path, as_json: bool) -> None:
    """Show the slot, the log and the tables of a file.

    "pgwire-codec run" may run or not. Below the tables, the error of each table that failed is
    shown, and the command that resumes it.
    """
    found = read_run_file(file)
    with inside(found.folder):
        report = read_status(found)
    if as_json:
        click.echo(json.dumps(plain(report)))
    else:
        show(report, Console(soft_wrap=True))
    context.exit(report.exit_code)
