"""The command ``pgwire-codec report``: a log on one HTML page."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pgwire_codec.cli.failure import cannot_write
from pgwire_codec.format import format_count, printable

_EPILOG = """\b
Examples:
  pgwire-codec report shop.log -o shop.html
  pgwire-codec report s3://bucket/shop.log -o report.html
  pgwire-codec report shop.log --lake delta:/lake/shop -o shop.html

The page is one file that loads nothing: you can send it, or open it years later. Messages that do
not decode are listed on it, and are not a failure of the command.
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", metavar="LOG")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="HTML file to write; it is replaced if it exists.",
)
@click.option(
    "--lake",
    metavar="TARGET",
    help="Target of a mirror of the log, delta:DIR or parquet:DIR, whose tables are shown, too.",
)
def report(directory: str, output: Path, lake: str | None) -> None:
    """Show a log on one HTML page.

    The page has transactions over time, changes and bytes of each table, the largest transactions,
    lag, schema changes and errors. The command reads all of the log. With --lake, the page has the
    state of each table of the mirror, the changes that it lacks, its files and its dead letters.
    """
    from pgwire_codec.log import Log
    from pgwire_codec.report import gather, render

    if not output.parent.is_dir():
        raise click.BadParameter(f"directory {output.parent} does not exist", param_hint="--output")
    log = Log(directory)
    columns = (
        TextColumn("reading {task.fields[name]}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(
            "", total=log.end.ordinal - log.begin.ordinal, name=printable(directory)
        )
        findings = gather(log, lambda messages: progress.advance(task, messages), lake=lake)
    try:
        output.write_text(render(findings), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise cannot_write(output, error) from error
    errors = sum(findings.problems.errors.values())
    click.echo(
        f"{printable(str(output))}: {format_count(findings.transactions, 'transaction')}, "
        f"{format_count(len(findings.tables), 'table')}, {format_count(errors, 'error')}"
    )
