"""Names that would move the cursor, which every command shows with escapes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from pgwire_codec import log
from pgwire_codec.capture.status import Status
from pgwire_codec.cli.app import app
from pgwire_codec.cli.capture_report import TerminalReport
from pgwire_codec.errors import CaptureError
from pgwire_codec.format import printable
from pgwire_codec.protocol import messages as m
from pgwire_codec.reference import encode_message
from tests.support.logs import SOURCE, append
from tests.support.terminal import shown

#: Sets the title of a window, clears the screen, begins a line, and turns the text around.
EVIL = "t\x1b]0;owned\x07\x1b[2J\r\nError: all is well\x9b1m\u202e"
ESCAPED = r"t\u001b]0;owned\u0007\u001b[2J\r\nError: all is well\u009b1m\u202e"
#: Output of rich itself on a terminal: colours, and a panel that changes in place.
OURS = re.compile("\x1b\\[[0-9;?]*[a-zA-Z]|\r\n|\r")


def is_clean(text: str) -> bool:
    """Check that all characters but line ends are printable."""
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A log with a folder, a slot, a table and a prepared transaction of such names."""
    source = log.LogSource(SOURCE.system_identifier, 1, EVIL, EVIL, 180004, {})
    values = m.TupleData(b"t", (b"1",))
    messages = [
        m.Begin(16, 0, 1),
        m.Relation(None, 7, EVIL, EVIL, "d", (m.RelationColumn(1, EVIL, 25, -1),)),
        m.Insert(None, 7, values),
        m.Commit(0, 16, 17, 0),
        m.BeginPrepare(32, 33, 0, 2, EVIL),
        m.Insert(None, 7, values),
        m.Prepare(0, 32, 33, 0, 2, EVIL),
    ]
    with log.LogWriter(tmp_path / EVIL, source) as writer:
        append(writer, [encode_message(message) for message in messages])
    return tmp_path / EVIL


def test_printable() -> None:
    assert printable(EVIL) == ESCAPED
    assert printable("plain 'text' with \\ and é") == "plain 'text' with \\ and é"


def test_log_info(evil: Path) -> None:
    result = CliRunner().invoke(app, ["log", "info", str(evil)])
    assert result.exit_code == 0
    assert is_clean(result.output)
    assert f"slot {ESCAPED} of database {ESCAPED}, " in result.output
    assert ESCAPED[:30] in result.output.splitlines()[-1]  # the table, cut to the width
    assert "open, prepared" in result.output
    output, status = shown("log", "info", str(evil), columns=1000)
    assert status == 0
    assert is_clean(OURS.sub("", output))
    assert f'"{ESCAPED}"."{ESCAPED}"' in output


def test_log_verify(evil: Path) -> None:
    (evil / "00000000000000000000.json").write_text("{}")
    result = CliRunner().invoke(app, ["log", "verify", str(evil)])
    assert result.exit_code == 4
    assert is_clean(result.output)
    assert f"00000000000000000000.json: {printable(str(evil))}" in result.output
    assert f"Error: {printable(str(evil))} is damaged" in result.output


def test_inspect_and_report(evil: Path) -> None:
    [segment] = evil.glob("*.arrow")
    page = evil / "page.html"
    for arguments in (["inspect", segment], ["report", evil, "-o", page], ["inspect", page]):
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 4 * (arguments[-1] == page and arguments[0] == "inspect")
        assert is_clean(result.output)
        assert r"t\u001b]0;owned" in result.output


def test_errors() -> None:
    @click.command()
    def fails() -> None:
        raise CaptureError(f"Table {EVIL} is locked.\n\tTry again.")

    app.add_command(fails)
    try:
        result = CliRunner().invoke(app, ["fails"])
    finally:
        del app.commands["fails"]
    assert result.exit_code == 4
    assert is_clean(result.output)
    assert result.output.count("\n") == 1
    assert result.output.startswith(r"Error: Table t\u001b]0;owned")
    assert result.output.endswith("is locked. Try again.\n")


def test_capture_panel() -> None:
    console = Console(force_terminal=True, width=1000, record=True)
    report = TerminalReport(1.0, f"[red]{EVIL} → log", console)
    with report, console.capture() as captured:
        report.show(Status(problem=f"lost: {EVIL}\n\tTry again.", notes=(EVIL,)), None)
    output = OURS.sub("", captured.get())
    assert is_clean(output)
    assert f"[red]{ESCAPED}" in output
    assert "lost: t\\u001b]0;owned" in output
    assert f"note {ESCAPED}" in re.sub(" +", " ", output)


def test_snapshot_bar() -> None:
    console = Console(force_terminal=True, width=120, record=True)
    report = TerminalReport(1.0, "title", console)
    status = Status(
        state="snapshot",
        snapshot_rows=2_500,
        snapshot_rows_expected=10_000,
        snapshot_tables=1,
        snapshot_tables_expected=3,
        snapshot_bytes=1 << 20,
        snapshot_bytes_expected=4 << 20,
    )
    with report, console.capture() as captured:
        report.show(status, None)
        report.show(replace(status, messages=1), None)
    output = captured.get()
    found = "2,500 of about 10,000 rows, 1 of 3 tables, 1.0 MB of 4.2 MB, about "
    assert found in output
    bar = next(line for line in output.splitlines() if "━" in line)
    filled, _, rest = bar.partition("╺")
    assert (filled.count("━"), rest.count("━")) == (10, 29)
