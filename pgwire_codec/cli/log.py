"""The commands ``pgwire-codec log``: contents, check, pruning, compaction, copies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pgwire_codec.cli.add_table import add_table
from pgwire_codec.cli.arguments import compression_option, lsn_argument, min_free_option, size
from pgwire_codec.cli.dead_letters import dead_letters
from pgwire_codec.cli.error_group import ErrorGroup
from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.retention import retention_of, retention_options
from pgwire_codec.format import format_count, printable
from pgwire_codec.options import Compression, SegmentOptions
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    from rich.table import Table

    from pgwire_codec.log import LoggedRelation, LogStatistics

_EPILOG = """\b
Examples:
  pgwire-codec log info shop.log
  pgwire-codec log verify --json s3://bucket/shop.log
  pgwire-codec log prune --before 16/B374D848 shop.log
  pgwire-codec log prune --keep 7d --consumer file:/lake/checkpoint/lsn shop.log
  pgwire-codec log compact shop.log
  pgwire-codec log add-table --table public.orders --dsn "host=db dbname=shop" shop.log
  pgwire-codec log dead-letters shop.log
"""


_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_DIRECTORY = click.argument("directory", metavar="DIR")


@click.group(cls=ErrorGroup, epilog=_EPILOG)
def log() -> None:
    """Inspect and maintain a log: a directory of captured messages, or its URI."""


log.add_command(add_table)
log.add_command(dead_letters)


@log.command()
@_DIRECTORY
@_AS_JSON
def info(directory: str, as_json: bool) -> None:
    """Show the contents of a log.

    The table at the end counts all changes that the server sent, by table. It includes changes that
    were rolled back, repeated by a later session, or belong to an open transaction; "changes" has
    the total of each. "pgwire-codec report" counts the committed changes of each table.
    """
    from pgwire_codec.log import statistics

    found = statistics(directory)
    if as_json:
        click.echo(json.dumps(_plain(asdict(found))))
    else:
        _show(found)


@log.command()
@_DIRECTORY
@click.option(
    "--repair",
    is_flag=True,
    help="Write a damaged or incomplete index again from the segments, and a torn watermark as it "
    "was before.",
)
@_AS_JSON
def verify(directory: str, repair: bool, as_json: bool) -> None:
    """Read all of a log and check every byte.

    Each damaged file is shown with its damage. The exit status is 4 if there is one.
    """
    from pgwire_codec.log import verify

    with _progress_of("segments") as progress:
        report = verify(directory, repair=repair, progress=progress)
    if as_json:
        click.echo(json.dumps(asdict(report)))
    else:
        for damage in report.damage:
            click.echo(printable(str(damage)))
        for name in report.repaired:
            click.echo(f"wrote {name}")
        click.echo(
            f"read {format_count(report.messages, 'message')} in "
            f"{format_count(report.segments, 'segment')}, {report.bytes:,} bytes"
        )
    if not report.is_sound:
        raise Failure(f"{directory} is damaged in {format_count(len(report.damage), 'file')}")


@log.command()
@_DIRECTORY
@click.option(
    "--before",
    metavar="LSN",
    callback=lsn_argument,
    help="LSN such as 16/B374D848; transactions committed up to it are no longer needed.",
)
@retention_options
@_AS_JSON
def prune(directory: str, before: int | None, as_json: bool, **options: Any) -> None:
    """Remove segments that are no longer needed.

    A segment with changes of a later, an open or a prepared transaction stays, and so do the
    segments after it. With a consumer, all stays that it has not read.
    """
    from pgwire_codec.log import prune, retain

    retention = retention_of(**options)
    if (before is None) == (retention is None):
        raise click.UsageError("Use either --before, or --keep, --max-bytes and --consumer.")
    if retention is not None:
        removed = retain(directory, retention)
    else:
        assert before is not None
        removed = prune(directory, before)
    if as_json:
        click.echo(json.dumps({"removed": removed}))
    else:
        for name in removed:
            click.echo(printable(name))
        click.echo(f"removed {format_count(len(removed), 'segment')}")


@log.command()
@_DIRECTORY
@click.option(
    "--segment-bytes",
    type=size,
    default=str(SegmentOptions.segment_bytes),
    show_default=True,
    metavar="SIZE",
    help="Join segments up to this size, such as 128MiB.",
)
@compression_option
@min_free_option("Bytes that stay free on the log's disk.")
@click.option("--dry-run", is_flag=True, help="Show what would be joined, and change nothing.")
@_AS_JSON
def compact(
    directory: str,
    segment_bytes: int,
    compression: Compression | None,
    min_free_bytes: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Join small segments into segments of the usual size.

    Messages, ordinals and LSNs stay the same, and so do the positions of readers. The log may be
    written and read meanwhile. The growing segment is left as it is.
    """
    from pgwire_codec.log import compact

    with _progress_of("bytes") as progress:
        found = compact(
            directory,
            segment_bytes=segment_bytes,
            compression=compression,
            min_free_bytes=min_free_bytes,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps({"joined": [asdict(each) for each in found]}))
        return
    for each in found:
        size_after = "" if each.bytes is None else f", now {each.bytes:,}"
        click.echo(
            f"{each.file}: {format_count(len(each.replaced), 'segment')}, "
            f"{each.replaced_bytes:,} bytes{size_after}"
        )
    count = sum(len(each.replaced) for each in found)
    verb = "would join" if dry_run else "joined"
    click.echo(f"{verb} {format_count(count, 'segment')} into {len(found):,}")


@contextmanager
def _progress_of(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how much is done; yield the function that takes a number and the total."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def _show(found: LogStatistics) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    source = found.source
    facts = {
        "source": f"slot {source.slot} of database {source.database}, "
        f"system {source.system_identifier}, timeline {source.timeline}"
        + "".join(
            f" (after timeline {each} up to {format_lsn(lsn)})"
            for each, lsn in source.ancestors.items()
        )
        + ", "
        f"server {source.server_version}",
        "segments": f"{found.segments:,} in {format_count(found.sessions, 'session')}"
        + (f", {found.snapshot_segments:,} of a snapshot" if found.snapshot_segments else ""),
        "messages": f"{found.messages:,}, {found.message_bytes:,} bytes "
        f"in files of {found.bytes:,}",
        "ordinals": f"from {found.begin.ordinal:,} to before {found.end.ordinal:,}",
        "commits": f"{found.commits:,}" + _between(found.first_commit_lsn, found.last_commit_lsn),
        "changes": f"{found.changes.committed:,} committed, "
        f"{found.changes.rolled_back:,} rolled back, {found.changes.repeated:,} repeated, "
        f"{found.changes.open:,} open",
        "readable": f"commits after {format_lsn(found.begin.lsn)}, "
        f"up to {format_lsn(found.end.lsn)}",
        "confirmed": f"up to {format_lsn(found.confirm_lsn)}",
    }
    if found.first_time is not None:
        facts["sent"] = f"from {found.first_time}Z to {found.last_time}Z"
    for transaction in found.open:
        gid = "" if transaction.gid is None else f" {transaction.gid!r}"
        facts[f"open, {transaction.kind}"] = (
            f"xid {transaction.xid}{gid}: {transaction.changes:,} changes, "
            f"from ordinal {transaction.first_ordinal:,} on"
        )
    for name, fact in facts.items():
        console.print(Text.assemble((f"{name:<15}", "bold"), printable(fact)))
    if found.sent:
        console.print(_tables(found))
    for relation in found.relations:
        if words := _renames(relation):
            console.print(Text(printable(f"relation {relation.oid}: {words}")))


def _tables(found: LogStatistics) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("sent, by table", style="cyan", no_wrap=True)
    for name in ("inserts", "updates", "deletes", "truncates", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.sent:
        numbers = (each.inserts, each.updates, each.deletes, each.truncates, each.bytes)
        table.add_row(Text(printable(each.table)), *(f"{number:,}" for number in numbers))
    return table


def _renames(relation: LoggedRelation) -> str:
    """Return text on a relation's earlier or lost names; "" if it never had another."""
    *earlier, _ = relation.names
    was = f", before: {', '.join(earlier)}" if earlier else ""
    if not relation.is_current:
        return f"was named {relation.name}, which is the name of another relation now{was}"
    return f"is named {relation.name}{was}" if earlier else ""


def _between(first: int | None, last: int | None) -> str:
    return "" if first is None or last is None else f", {format_lsn(first)} to {format_lsn(last)}"


def _plain(value: Any, name: str = "") -> Any:
    """Return a value for JSON, with LSNs and times as text."""
    if name == "lsn" or name.endswith("_lsn"):
        return None if value is None else format_lsn(value)
    if name == "ancestors":
        return {str(timeline): format_lsn(lsn) for timeline, lsn in value.items()}
    if name.endswith("_time"):
        return None if value is None else f"{value}Z"
    if name in ("begin", "end"):
        return {"ordinal": value.ordinal, "lsn": format_lsn(value.lsn)}
    if isinstance(value, dict):
        return {each: _plain(inner, each) for each, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
