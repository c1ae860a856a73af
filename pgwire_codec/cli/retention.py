"""Options of the commands that prune a log: what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgwire_codec.cli.arguments import duration, size

if TYPE_CHECKING:
    from pgwire_codec.log import Consumer, Retention

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _consumers(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> tuple[Consumer, ...]:
    from pgwire_codec.log.consumers import parse_consumer

    try:
        return tuple(map(parse_consumer, given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_OPTIONS = (
    click.option(
        "--keep",
        type=duration,
        metavar="TIME",
        help="Keep messages that the server sent within this time, as 7d, 12h or 30min.",
    ),
    click.option(
        "--max-bytes",
        type=size,
        metavar="SIZE",
        help="Keep the last segments up to this size in all, as 500GB, even younger than --keep.",
    ),
    click.option(
        "--consumer",
        "consumers",
        multiple=True,
        metavar="KIND:PLACE",
        callback=_consumers,
        help="Keep what it has not read: spark:CHECKPOINT, the checkpoint of a streaming query, or "
        "file:FILE, which contains an LSN (repeatable).",
    ),
)


def retention_options(command: _Function) -> _Function:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def retention_of(
    keep: timedelta | None, max_bytes: int | None, consumers: tuple[Consumer, ...]
) -> Retention | None:
    """Return the retention of the options; None if none of them was given."""
    from pgwire_codec.log import Retention

    if keep is None and max_bytes is None and not consumers:
        return None
    return Retention(keep, max_bytes, consumers)
