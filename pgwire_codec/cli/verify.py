"""``pgwire-codec verify``: read the files of a mirror's tables, and check them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.lake_options import conf_option, opened_lake
from pgwire_codec.format import format_count, printable

_EPILOG = """\b
Examples:
  pgwire-codec verify delta:/lake/shop
  pgwire-codec verify --json parquet:s3://bucket/lake

Each damaged file is shown with its damage. The exit status is 4 if there is one. Nothing is
changed, and mirrors need not stop.
"""


@click.command(epilog=_EPILOG)
@click.argument("target", metavar="LAKE")
@conf_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def verify(target: str, conf: dict[str, str], as_json: bool) -> None:
    """Read all files that the tables of a mirror need, and check them.

    LAKE is delta:DIR, parquet:DIR or iceberg:CATALOG, as of the mirror; --conf has the settings of
    the catalog. Commits, checkpoints, deletion vectors, and
    each page of data files are compared with their checksums, where they have one.
    """
    from pgwire_codec.lake.verify import verify

    with opened_lake(target, conf) as lake:
        found = verify(target, spark=lake.spark)
    for damage in found.damage:
        click.echo(json.dumps(asdict(damage)) if as_json else printable(str(damage)))
    counts = {"tables": found.tables, "files": found.files, "bytes": found.bytes}
    if as_json:
        click.echo(json.dumps(counts))
    else:
        click.echo(
            f"read {format_count(found.files, 'file')} of {format_count(found.tables, 'table')}, "
            f"{found.bytes:,} bytes"
        )
    if found.damage:
        raise Failure(f"{target} is damaged: {format_count(len(found.damage), 'finding')}")
