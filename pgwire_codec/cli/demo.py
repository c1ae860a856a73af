"""``pgwire-codec demo``: the command; what it does is in pgwire_codec.demo."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from pgwire_codec.errors import MissingExtraError

_EPILOG = """\b
Examples:
  pgwire-codec demo
  pgwire-codec demo --output shop --partitions 8
  pgwire-codec demo --dsn "host=127.0.0.1 user=postgres dbname=test" --keep
"""


@click.command(epilog=_EPILOG)
@click.option("--dsn", help="A server to use (wal_level=logical); else an embedded one is started.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new or empty folder for messages and tables; else a temporary one, which stays.",
)
@click.option(
    "--keep", is_flag=True, help="Leave schema, publication and slot on the server of --dsn."
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="In how many parts Spark decodes the messages.",
)
def demo(dsn: str | None, output: Path | None, keep: bool, partitions: int) -> None:
    """Capture a small shop's changes, decode them on Spark, and compare with the server.

    The exit status is 1 when a table differs from the server's.
    """
    try:
        run = import_module("pgwire_codec.demo.run")
    except ModuleNotFoundError as error:
        if (error.name or "pgwire_codec").partition(".")[0] == "pgwire_codec":
            raise
        raise MissingExtraError(
            f"the demo needs {error.name}: pip install 'pgwire-codec[demo]'"
        ) from error
    raise SystemExit(run.main(dsn=dsn, output=output, keep=keep, partitions=partitions))
