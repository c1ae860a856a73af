"""Kinds of arguments: times, sizes, those with a password; and names of options in texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar, get_args

import click

from pgwire_codec.options import MIN_FREE_BYTES, Compression, SegmentOptions
from pgwire_codec.protocol.lsn import parse_lsn

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: An argument of a Python function in a text, with or without its value: `create_slot=True`.
_ARGUMENT: Final = re.compile(r"`(\w+)(?:=([^`]+))?`")

PASSWORD_COMMAND: Final = click.option(
    "--password-command",
    metavar="COMMAND",
    help="Shell command that prints the password. It runs again for each connection.",
)

compression_option: Final = click.option(
    "--compression",
    type=click.Choice([*get_args(Compression), "none"]),
    default=SegmentOptions.compression or "none",
    show_default=True,
    callback=lambda _context, _option, chosen: None if chosen == "none" else chosen,
    help="Compression of the log's segments.",
)

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_BYTES: Final = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, letter in enumerate("kMGT", 1)
}


def lsn_argument(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the LSN of an option's value such as ``16/B374D848``: a callback of click."""
    try:
        return None if value is None else parse_lsn(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def duration(text: str) -> timedelta:
    """Return a time such as ``7d``, ``12h``, ``30min`` or ``90s``."""
    try:
        return timedelta(seconds=_amount(text, _SECONDS))
    except (KeyError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a time such as 7d, 12h or 30min") from None


def size(text: str) -> int:
    """Return a number of bytes such as ``500GB`` or ``1.5TiB``."""
    try:
        return round(_amount(text, _BYTES))
    except KeyError:
        raise click.BadParameter(f"{text!r} is not a size such as 500GB or 1.5TiB") from None


def min_free_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option ``--min-free``, with its help."""
    return click.option(
        "--min-free",
        "min_free_bytes",
        type=size,
        metavar="SIZE",
        default=f"{MIN_FREE_BYTES >> 20}MiB",
        show_default=True,
        help=text,
    )


def _amount(text: str, units: dict[str, int]) -> float:
    """Return a number in the smallest unit; raise ``KeyError`` if it has no known one."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise KeyError(text)
    return float(match[1]) * units[match[2]]


def name_options(text: str, command: click.Command | None, prefix: str = "") -> str:
    """Return a text with Python's arguments replaced by a command's options.

    Parameters
    ----------
    text : str
        Error or note of the package, with arguments in backquotes.
    command : click.Command or None
        Command whose options replace the arguments; other arguments stay as they are.
    prefix : str
        Text before an option, such as the name of a command that was not called.
    """
    params = command.params if command is not None else []
    options = {each.name: each for each in params if isinstance(each, click.Option)}

    def named(match: re.Match[str]) -> str:
        option = options.get(match[1])
        if option is None:
            return match[0]
        name, value = option.opts[0], (match[2] or "").strip("'\"")
        if option.is_flag:
            is_off = value == "False" and option.secondary_opts
            name, value = option.secondary_opts[0] if is_off else name, ""
        return " ".join(filter(None, [prefix, name, value]))

    return _ARGUMENT.sub(named, text)


class DsnCommand(click.Command):
    """A command with options only, whose usage error does not repeat stray arguments.

    The shell splits an unquoted DSN with spaces, so that a stray word can be a part of a password.
    """

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; fail if an argument belongs to none of them."""
        stray = super().parse_args(ctx, args)
        if stray and not ctx.resilient_parsing:
            ctx.fail(
                f"{len(stray)} of the arguments belong to no option. Put a value that contains "
                "spaces, such as a DSN, in quotes."
            )
        return stray
