"""Output and errors of the commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from pgwire_codec.cli.app import _COMMANDS, NotImported, app
from pgwire_codec.protocol import messages as m
from tests.support.commands import relation, row, run
from tests.support.corpus import capture


def test_help_has_examples() -> None:
    for command in ("inspect", "demo"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"Examples:\n    pgwire-codec {command}" in result.stdout
    assert "inspect" in run("--help").stdout


def test_help_lists_the_commands_as_they_describe_themselves() -> None:
    """The group lists commands without importing them, by texts of its own."""
    context = click.Context(app)
    assert app.list_commands(context) == sorted(_COMMANDS)
    for name, text in _COMMANDS.items():
        command = app.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=1000) == text
    not_imported = [NotImported(name, help=text) for name, text in _COMMANDS.items()]
    assert_lists_the_same(click.Group(commands=app.commands), click.Group(commands=not_imported))


def assert_lists_the_same(expected: click.Group, group: click.Group) -> None:
    for width in (40, 80, 200):
        listed = []
        for each in (expected, group):
            formatter = click.HelpFormatter(width=width)
            each.format_commands(click.Context(each), formatter)
            listed.append(formatter.getvalue())
        assert listed[0] == listed[1]


def test_a_command_that_is_not_there() -> None:
    """It is compared with all commands, also with those that are not imported."""
    code = "import sys; sys.argv[1:] = ['mirrr']; from pgwire_codec.cli import main; main()"
    done = run_python(code)
    assert done.returncode == 2
    assert "No such command 'mirrr'. Did you mean 'mirror'?" in done.stderr


def test_wrong_usage_is_status_2() -> None:
    assert run("inspect").exit_code == 2
    assert run("inspect", "--limit", "-1", "x").exit_code == 2


@pytest.mark.parametrize(("state", "status"), [("equal", 0), ("differs", 1), ("behind", 3)])
def test_demo_passes_its_options_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, status: int
) -> None:
    given: dict[str, object] = {}
    table = SimpleNamespace(
        table="s.t", state=state, server_rows=2, target_rows=1, differing=1, unsettled=0,
        lsn=16, error=None, hint=None, differences=(), uncompared={},
    )  # fmt: skip

    def main(**options: object) -> object:
        given.update(options)
        comparison = SimpleNamespace(tables=(table,))
        return SimpleNamespace(folder=tmp_path, comparison=comparison, order={})

    stand_in = SimpleNamespace(run=main, QUERY="SELECT 1")
    monkeypatch.setattr("pgwire_codec.cli.demo.import_module", lambda name: stand_in)
    result = run("demo", "--dsn", "x", "--output", tmp_path, "--keep")
    assert result.exit_code == status
    assert ("0 differences" in result.stdout) == (state == "equal")
    del given["console"]
    assert given == {"dsn": "x", "output": tmp_path, "keep": True, "on_spark": False}


def test_demo_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'deltalake'", name="deltalake")

    monkeypatch.setattr("pgwire_codec.cli.demo.import_module", fail)
    result = run("demo")
    assert result.exit_code == 4
    assert "the demo needs deltalake\nhint: Run pip install 'pgwire-codec[demo]'." in result.stderr


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding=environment.get("PYTHONIOENCODING"),
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_entry_point_names_its_extra(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = ['inspect', '--help']\n"
        "from pgwire_codec.cli import main; main()"
    )
    done = run_python(code)
    assert done.returncode == 4
    assert (
        f"pgwire-codec needs {missing}\nhint: Run pip install 'pgwire-codec[cli]'." in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_entry_point() -> None:
    program = Path(sys.executable).with_name("pgwire-codec")
    if not program.exists():
        pytest.skip("the package is not installed here")
    command = [program, "inspect", "--limit", "1", capture("dml.pg18.v1-text").path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "BEGIN xid 5505" in done.stdout
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("pgwire-codec, version ")


def test_output_that_lacks_an_alphabet(stored: Any) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", "éё".encode())))
    code = f"import sys; sys.argv[1:] = ['inspect', {str(path)!r}]\n"
    done = run_python(
        code + "from pgwire_codec.cli import main; main()", PYTHONIOENCODING="iso-8859-1"
    )
    assert done.returncode == 0, done.stderr
    assert "a='é\\u0451'" in done.stdout
