"""Text of a file of ``pgwire-codec run``: all options, with their help as comments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any, Final

import click

from pgwire_codec.cli.run_file import (
    COMMANDS,
    LOG,
    METRICS,
    SHARED,
    options_of,
    takes_number,
    takes_pairs,
)

_WIDTH: Final = 96

_HEAD: Final = """\
# Capture and mirror of one database.
#
#   pgwire-codec run {name}      runs both
#   pgwire-codec status {name}   shows the slot, the log and the tables
#
# The options of a section are those of the command with its name. Those in comments are not set.
# A repeatable option can have an array. Relative paths start from the folder of this file.
# A password belongs in a file that PGPASSFILE names, or comes from password-command.
"""


def render(name: str, log: str, sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a file.

    Parameters
    ----------
    name : str
        Name of the file, for the comments.
    log : str
        Location of the log.
    sections : mapping of str to mapping
        Values of options by command. The other options are comments.
    """
    shared = {option.opts[0].removeprefix("--"): option for option in _shared()}
    lines = [
        _HEAD.format(name=name),
        *_comment(_described(shared[LOG])),
        _line(LOG, log),
        "",
        *_comment(_described(shared[METRICS])),
        f"# {_line(METRICS, _default(shared[METRICS]))}",
    ]
    for command, values in sections.items():
        lines += ["", "", f"[{command}]"]
        for option_name, option in options_of(command).items():
            lines += ["", *_comment(_described(option))]
            if option_name in values:
                lines.append(_line(option_name, values[option_name]))
            else:
                lines.append(f"# {_line(option_name, _default(option))}")
    return "\n".join(lines) + "\n"


def literal(value: Any) -> str:
    """Return a value as TOML: a string, a number, a truth value, or a list or mapping of strings.

    JSON's escapes are also TOML's, which has one more control character to escape.
    """
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        pairs = (f"{literal(key)} = {literal(text)}" for key, text in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _line(name: str, value: Any) -> str:
    return f"{name} = {literal(value)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _shared() -> list[click.Option]:
    options = [each for each in COMMANDS["capture"].params if isinstance(each, click.Option)]
    return [each for each in options if each.opts[0].removeprefix("--") in SHARED]


def _described(option: click.Option) -> str:
    """Return the help of an option, with its choices."""
    text = option.help or ""
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    return f"{text} One of {', '.join(map(str, choices))}." if choices else text


def _default(option: click.Option) -> Any:
    """Return the default of an option, or an example of a value if it lacks one."""
    if option.is_flag:
        return bool(option.secondary_opts) or option.default is True
    if isinstance(option.default, (str, int, float)):
        return option.default
    if isinstance(option.type, click.Choice):
        return str(option.type.choices[0])
    if takes_number(option):
        return 1
    text = option.metavar or "NAME"
    if takes_pairs(option):
        return {text.partition("=")[0]: text.partition("=")[2]}
    return [text] if option.multiple else text
