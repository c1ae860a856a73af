"""The file of ``pgwire-codec run``: options of the commands that it runs, as TOML."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click
from click.types import FloatParamType, IntParamType

from pgwire_codec.capture.connection.dsn import has_password
from pgwire_codec.cli import PERMANENT, USAGE
from pgwire_codec.cli.arguments import name_options
from pgwire_codec.cli.capture import capture, log_capture
from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.mirror import mirror, mirror_options
from pgwire_codec.errors import OptionError
from pgwire_codec.metrics.http_server import parse_address

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Commands that have a section, in the order in which they start.
COMMANDS: Final[Mapping[str, click.Command]] = {"capture": capture, "mirror": mirror}

#: Options of all commands, which are before the first section.
LOG: Final = "log"
METRICS: Final = "metrics"
SHARED: Final = (LOG, METRICS)

#: Options that end a command, that request something once, or that change its output.
LEFT_OUT: Final = {
    "capture": ("until-lsn", "idle-seconds", "json"),
    "mirror": ("once", "replace", "resume", "replay", "json"),
}

#: Functions that check the values of options together, and the values that these do not take.
_CHECKS: Final[Mapping[str, tuple[Callable[..., object], tuple[str, ...]]]] = {
    "capture": (
        log_capture,
        ("until_lsn", "idle_seconds", "as_json", "report_seconds", "address"),
    ),
    "mirror": (
        mirror_options,
        (
            "log",
            "conf",
            "replace",
            "resume",
            "replay",
            "as_json",
            "checkpoint",
            "tables",
            "address",
        ),
    ),
}

file_argument: Final = click.argument(
    "file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


def options_of(command: str) -> dict[str, click.Option]:
    """Return the options of a command's section, by name."""
    names = {
        option.opts[0].removeprefix("--"): option
        for option in COMMANDS[command].params
        if isinstance(option, click.Option)
    }
    return {
        name: option
        for name, option in names.items()
        if name not in SHARED and name not in LEFT_OUT[command]
    }


def takes_pairs(option: click.Option) -> bool:
    """Return whether the values of an option are written as ``NAME=VALUE``."""
    return option.multiple and "=" in (option.metavar or "")


def takes_number(option: click.Option) -> bool:
    """Return whether the value of an option is a number."""
    return isinstance(option.type, (IntParamType, FloatParamType))


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of ``pgwire-codec run`` whose options are valid.

    Attributes
    ----------
    path : Path
    metrics : str or None
        Address of the metrics of all commands.
    arguments : dict of str to list of str
        Arguments of each command that has a section.
    values : dict of str to dict
        Values of the options as each command gets them, with its defaults.
    """

    path: Path
    metrics: str | None
    arguments: dict[str, list[str]]
    values: dict[str, dict[str, Any]]

    @property
    def folder(self) -> Path:
        """Folder of the file, which relative paths in it start from."""
        return self.path.absolute().parent


def read_run_file(path: Path) -> RunFile:
    """Read a file and check all of its options.

    Raises ``Failure``, with the file, the option and the valid names, before anything is started.
    """
    content = dict(_load(path))
    sections = {name: content.pop(name) for name in COMMANDS if name in content}
    log, metrics = (content.pop(name, None) for name in SHARED)
    for name, value in content.items():
        owners = [command for command in COMMANDS if name in options_of(command)]
        if owners:
            raise _invalid(path, name, "is not in a section", f"Write it into [{owners[0]}].")
        where = f"[{name}]" if isinstance(value, dict) else name
        raise _unknown(path, where, name, [*SHARED, *COMMANDS], "The file")
    if not isinstance(log, str):
        problem = "is missing" if log is None else f"must be a string, not {_literal(log)}"
        raise _invalid(path, LOG, problem, "Write it before the first section.")
    if metrics is not None:
        _check_address(path, metrics)
    if not sections:
        raise _invalid(path, "[capture]", "is missing, and so is [mirror]")
    found = RunFile(path, metrics, {}, {})
    with inside(found.folder):
        for command, section in sections.items():
            if not isinstance(section, dict):
                raise _invalid(path, command, f"must be a section, [{command}]")
            arguments = [f"--{LOG}={log}", *_arguments(path, command, section)]
            found.arguments[command] = arguments
            found.values[command] = _parsed(path, command, arguments)
    return found


def readable_secret(found: RunFile) -> str | None:
    """Return a warning if a file contains a password, and others than its owner may read it."""
    if os.name == "nt" or not found.path.stat().st_mode & 0o044:
        return None
    dsn = found.values.get("capture", {}).get("dsn", "")
    if not has_password(dsn):
        return None
    return (
        f"{found.path} contains a password, and other users may read it\n"
        f"hint: Type: chmod 600 {shlex.quote(str(found.path))}"
    )


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Have relative paths start from a folder inside of the context."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _load(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return content
    except OSError as error:
        raise Failure(f"could not read {path}: {error.strerror}", PERMANENT) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{path} is not TOML: {error}", USAGE) from error


def _check_address(path: Path, address: Any) -> None:
    if not isinstance(address, str):
        raise _invalid(path, METRICS, f"must be a string, not {_literal(address)}")
    try:
        parse_address(address)
    except OptionError as error:
        raise _invalid(path, METRICS, error.primary, error.hint) from error


def _arguments(path: Path, command: str, section: Mapping[str, Any]) -> Iterator[str]:
    options = options_of(command)
    for name, value in section.items():
        where = f"[{command}] {name}"
        if name in SHARED:
            raise _invalid(path, where, "is in a section", "Write it before the first section.")
        if name not in options:
            raise _unknown(path, where, name, options, f"[{command}]")
        option = options[name]
        if option.is_flag:
            if not isinstance(value, bool):
                raise _invalid(path, where, f"must be true or false, not {_literal(value)}")
            yield from option.opts[:1] if value else option.secondary_opts[:1]
            continue
        for text in _texts(path, where, option, value):
            yield f"{option.opts[0]}={text}"


def _texts(path: Path, where: str, option: click.Option, value: Any) -> Iterator[str]:
    """Yield the values of an option as on the command line."""
    if takes_pairs(option) and isinstance(value, dict):
        for name, text in value.items():
            if not isinstance(text, str):
                hint = "Put a name that contains dots in quotes." if type(text) is dict else None
                raise _invalid(path, f"{where}.{name}", "must be a string", hint)
            yield f"{name}={text}"
        return
    items = value if option.multiple and isinstance(value, list) else [value]
    is_number = takes_number(option)
    for item in items:
        fits = type(item) in (int, float) if is_number else isinstance(item, str)
        if not fits:
            kind = "a number" if is_number else "a string"
            kind += " or an array of them" if option.multiple else ""
            raise _invalid(path, where, f"must be {kind}, not {_literal(item)}")
        yield str(item)


def _parsed(path: Path, command: str, arguments: list[str]) -> dict[str, Any]:
    """Return the values of a command's arguments; raise ``Failure`` for an invalid one."""
    try:
        with COMMANDS[command].make_context(command, list(arguments)) as context:
            check, others = _CHECKS[command]
            check(**{name: each for name, each in context.params.items() if name not in others})
            return context.params
    except click.MissingParameter as error:
        raise _invalid(path, f"[{command}] {_name(error)}", "is missing") from error
    except click.BadParameter as error:
        raise _invalid(path, f"[{command}] {_name(error)}", error.message) from error
    except OptionError as error:
        text = name_options(error.primary, COMMANDS[command])
        hint = None if error.hint is None else name_options(error.hint, COMMANDS[command])
        raise _invalid(path, f"[{command}]", text, hint) from error


def _name(error: click.BadParameter) -> str:
    assert error.param is not None, "click has parsed the parameter"
    return error.param.opts[0].removeprefix("--")


def _invalid(path: Path, where: str, problem: str, hint: str | None = None) -> Failure:
    return Failure(f"{path}: {where}: {problem}", USAGE, hint=hint)


def _unknown(path: Path, where: str, name: str, names: Iterable[str], owner: str) -> Failure:
    valid = sorted(names)
    close = get_close_matches(name, valid, 1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return _invalid(path, where, "unknown option", f"{guess}{owner} can have {', '.join(valid)}.")


def _literal(value: Any) -> str:
    """Return a value as TOML has it, for an error."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    return "an array" if isinstance(value, list) else repr(value)
