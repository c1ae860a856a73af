"""``pgwire-codec log dead-letters``: the messages of a log that do not decode."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from pgwire_codec.cli.arguments import lsn_argument
from pgwire_codec.cli.failure import cannot_write
from pgwire_codec.format import format_count, printable
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    import pyarrow as pa

_EPILOG = """\b
Examples:
  pgwire-codec log dead-letters shop.log
  pgwire-codec log dead-letters --table 'public.*' --unrepresentable null shop.log
  pgwire-codec log dead-letters --to letters.parquet s3://bucket/shop.log
"""


@click.command("dead-letters", epilog=_EPILOG)
@click.argument("directory", metavar="DIR")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="PATTERN",
    help="Only messages of this table, SCHEMA.TABLE, or of those that match (repeatable).",
)
@click.option(
    "--after", metavar="LSN", callback=lsn_argument, help="Only transactions that commit after it."
)
@click.option(
    "--until", metavar="LSN", callback=lsn_argument, help="Only transactions that commit up to it."
)
@click.option(
    "--types",
    type=click.Choice(["native", "text"]),
    default="native",
    show_default=True,
    help="Types that values are decoded into.",
)
@click.option(
    "--unrepresentable",
    type=click.Choice(["raise", "null", "clamp"]),
    default="raise",
    show_default=True,
    help="With null and clamp, a value that its type cannot hold is not an error.",
)
@click.option("--to", "file", metavar="FILE", help="Write a Parquet file, with the messages.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, with the messages.")
def dead_letters(
    directory: str,
    tables: tuple[str, ...],
    after: int | None,
    until: int | None,
    file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the messages that do not decode, each with its error.

    All values of the log are decoded. The ordinal is the message's place in the log.
    """
    from pgwire_codec import log

    if file is not None and as_json:
        raise click.UsageError("Use either --to or --json.")
    found = log.dead_letters(directory, tables or None, after, until, **options)
    if file is not None:
        count = _write(file, found)
        click.echo(f"wrote {format_count(count, 'message')} to {printable(file)}")
        return
    count = 0
    for row in _rows(found):
        click.echo(json.dumps(_plain(row)) if as_json else printable(_line(row)))
        count += 1
    if not as_json:
        click.echo(
            f"{format_count(count, 'message')} that {'does' if count == 1 else 'do'} not decode"
        )


def _rows(found: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for records in found:
        yield from records.to_pylist()


def _write(file: str, found: Iterable[pa.RecordBatch]) -> int:
    """Write letters as a Parquet file, and return their number."""
    import pyarrow.parquet as pq

    from pgwire_codec.log.dead_letters import DEAD_LETTERS

    count = 0
    try:
        with pq.ParquetWriter(file, DEAD_LETTERS) as writer:
            for records in found:
                writer.write_batch(records)
                count += len(records)
    except OSError as error:
        raise cannot_write(file, error) from error
    return count


def _line(row: dict[str, Any]) -> str:
    lsn = "" if row["commit_lsn"] is None else f" commit LSN {format_lsn(row['commit_lsn'])}"
    table = "" if row["table"] is None else f" {row['table']}"
    hint = "" if row["hint"] is None else f" — hint: {row['hint']}"
    return f"ordinal {row['ordinal']}{lsn}{table}: {row['error']}{hint}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for JSON, with LSNs and times as text, and the message in hexadecimal digits."""
    found = dict(row)
    for name in ("lsn", "commit_lsn", "after_lsn"):
        if row[name] is not None:
            found[name] = format_lsn(row[name] % (1 << 64))
    if row["commit_time"] is not None:
        found["commit_time"] = row["commit_time"].isoformat().replace("+00:00", "Z")
    return found | {"data": row["data"].hex()}
