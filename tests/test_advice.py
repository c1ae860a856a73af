"""Each argument, option and command that a text of the package names exists where it is shown."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from pgwire_codec.cli.app import app
from pgwire_codec.cli.arguments import name_options
from tests.support.advice import (
    BARE_ARGUMENT,
    COMMAND,
    OPTION,
    Part,
    parameters,
    parts,
    public,
    reachable,
)

PACKAGES = ("pgwire_codec.capture", "pgwire_codec.log", "pgwire_codec.spark")

#: Callables and commands whose advice is on a capture that is to begin: they name its command.
BEFORE_A_CAPTURE = {"check_server", "check", "log add-table"}

#: Commands of a file. The capture and the mirror of it show their texts with their own options.
OF_A_FILE = {"init", "resume", "run", "status"}

#: Texts that are shown by nobody who lacks the argument: part and argument, and why.
EXEMPT = {
    ("TypeOptions", "strings"): "only a caller that has the argument makes string views",
    ("Capture", "temporary"): "LogCapture makes no temporary slot",
    ("ensure_slot", "temporary"): "LogCapture makes no temporary slot",
    ("Retention", "keep"): "of Retention's own arguments",
    ("Retention", "max_bytes"): "of Retention's own arguments",
    ("Retention", "consumers"): "of Retention's own arguments",
    ("old_key", "before"): "a mirror decodes with it",
    ("key_events", "before"): "a mirror decodes with it",
    ("MirrorOptions", "on_error"): "the option onError of Spark's mirror",
    ("_no_old_row", "before"): "the argument of decode_changes, whose DataFrame this is",
    ("ParquetTarget", "history"): "only a mirror writes to such a target",
    ("RowColumns", "on_schema_change"): "a replay raises no error of the columns",
    ("_REPRESENT_OTHERWISE", "unrepresentable"): "the argument of whoever decodes",
    ("_ANY_BYTES", "unrepresentable"): "the argument of whoever decodes",
}
#: Words after the name of the program in prose.
NO_COMMANDS = {"again", "needs", "that"}


def commands(
    group: click.Group = app, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield " ".join((*above, name)), command


COMMANDS = dict(commands())


def options_of(command: click.Command) -> set[str]:
    return {str(each.name) for each in command.params if isinstance(each, click.Option)}


def body(command: click.Command) -> tuple[str, str]:
    """Return the module and the name of a command's function."""
    function = command.callback
    assert function is not None
    return function.__module__, function.__name__


def arguments(found: Iterator[Part]) -> Iterator[tuple[str, str, str]]:
    """Yield each argument with its part and its text."""
    for part in found:
        for argument, text in part.arguments:
            yield part.name, argument, text


def missing(name: str, place: tuple[str, str], existing: set[str]) -> Iterator[str]:
    if name in BEFORE_A_CAPTURE:
        existing = existing | options_of(COMMANDS["capture"])
    if name in OF_A_FILE:
        existing = existing | options_of(COMMANDS["capture"]) | options_of(COMMANDS["mirror"])
    for part, argument, text in arguments(reachable(*place)):
        if argument not in existing and (part, argument) not in EXEMPT:
            yield f"{name} shows an argument that it lacks, `{argument}`, in {part}: {text}"


def test_callables_have_what_is_advised() -> None:
    places = [place for package in PACKAGES for place in public(package)]
    wrong = [
        problem
        for package, name in places
        for problem in missing(name, (package, name), parameters((package, name)))
    ]
    assert not wrong, "\n".join(wrong)


def test_commands_have_what_is_advised() -> None:
    wrong = [
        problem
        for name, command in COMMANDS.items()
        for problem in missing(name, body(command), options_of(command))
    ]
    assert not wrong, "\n".join(wrong)


def test_arguments_are_in_backquotes() -> None:
    """Otherwise a command cannot replace them by its options."""
    wrong = {
        f"{part.module}.{part.name}: {argument} in {text!r}"
        for command in COMMANDS.values()
        for part in reachable(*body(command))
        for text in part.texts
        for argument in BARE_ARGUMENT.findall(text)
        if not part.module.startswith(("pgwire_codec.report", "pgwire_codec.cli"))
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_commands_and_their_options_exist() -> None:
    every = {option for c in COMMANDS.values() for p in c.params for option in p.opts}
    every |= {option for c in COMMANDS.values() for p in c.params for option in p.secondary_opts}
    named, wrong = 0, []
    for part in parts().values():
        for text in part.texts:
            found = [(m[1], f"{m[1]} {m[2]}") for m in COMMAND.finditer(text)]
            found = [names for names in found if names[0] not in NO_COMMANDS]
            named += len(found)
            wrong += [
                f"{part.name}: no command {c[1]}" for c in found if not {*c} & {*COMMANDS, "log"}
            ]
            known = every
            if len(found) == 1 and not part.module.startswith("pgwire_codec.cli"):
                command = next((COMMANDS[c] for c in found[0] if c in COMMANDS), None)
                known = every if command is None else {o for p in command.params for o in p.opts}
            if part.module.startswith(("pgwire_codec.log", "pgwire_codec.capture")) or found:
                wrong += [
                    f"{part.name}: no option {o} in {text!r}"
                    for o in OPTION.findall(text)
                    if o not in known and o != "--help"
                ]
    assert named > 20
    assert not wrong, "\n".join(wrong)


def test_much_is_found() -> None:
    """The tests above compare something, and can fail."""
    shown = {
        name: {a for _, a, _ in arguments(reachable(*body(c)))} for name, c in COMMANDS.items()
    }
    assert {"create_slot", "create_publication", "messages", "snapshot"} <= shown["capture"]
    assert {"failover", "messages"} <= shown["check"]
    assert "on_schema_change" in shown["mirror"]
    assert "min_free_bytes" in shown["log compact"]
    peeked = {a for _, a, _ in arguments(reachable("pgwire_codec.capture", "peek"))}
    assert "messages" in peeked
    assert {"create_slot", "binary"} <= parameters(("pgwire_codec.capture", "Capture"))
    assert "create_slot" not in parameters(("pgwire_codec.capture", "peek"))
    assert list(missing("peek", ("pgwire_codec.capture", "Capture"), {"slot"}))
    found = {(part, argument) for part, argument, _ in arguments(iter(parts().values()))}
    assert set(EXEMPT) <= found


@pytest.mark.parametrize(
    ("text", "prefix", "shown"),
    [
        ("Pass `create_slot=True`.", "", "Pass --create-slot."),
        ("Pass `messages=False`.", "", "Pass --no-messages."),
        ("Use `streaming='parallel'`.", "", "Use --streaming parallel."),
        ("Pass `snapshot=True`.", "pgwire-codec capture", "Pass pgwire-codec capture --snapshot."),
        ("Use `temporary=True`.", "", "Use `temporary=True`."),
    ],
)
def test_a_command_names_its_options(text: str, prefix: str, shown: str) -> None:
    assert name_options(text, COMMANDS["capture"], prefix) == shown
