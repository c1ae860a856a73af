"""Output and errors of ``pgwire-codec log``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pgwire_codec import log
from pgwire_codec.cli.app import app
from pgwire_codec.protocol.lsn import format_lsn
from tests.support.corpus import capture
from tests.support.logs import commit_lsns, write

CAPTURE = capture("dml.pg18.v1-text")


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["log", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a capture as a log of three segments."""
    count = len(CAPTURE.messages)
    write(CAPTURE, tmp_path / "log", [count // 3, count // 2])
    return tmp_path / "log"


def test_info(folder: Path) -> None:
    shown = run("info", folder).stdout
    lines = {line[:15].strip(): line[15:] for line in shown.splitlines()}
    lsns = commit_lsns(CAPTURE)
    assert lines["source"].startswith("slot slot of database shop, system 7000000000000000001")
    assert lines["segments"] == "3 in 1 session"
    assert lines["messages"].startswith(f"{len(CAPTURE.messages):,}, ")
    between = f"{format_lsn(lsns[0])} to {format_lsn(lsns[-1])}"
    assert lines["commits"] == f"{len(lsns):,}, {between}"
    assert "public.def" in shown
    [renamed] = [each for each in log.Log(folder).relations if len(each.names) > 1]
    assert renamed.names == ("public.evolve", "public.evolved")
    line = f"relation {renamed.oid}: is named public.evolved, before: public.evolve"
    assert line in shown.splitlines()


def test_info_for_programs(folder: Path) -> None:
    found = json.loads(run("info", "--json", folder).stdout)
    assert found["segments"] == 3
    assert found["messages"] == len(CAPTURE.messages)
    assert found["last_commit_lsn"] == format_lsn(commit_lsns(CAPTURE)[-1])
    assert found["end"] == {
        "ordinal": len(CAPTURE.messages),
        "lsn": format_lsn(commit_lsns(CAPTURE)[-1]),
    }
    sums = {each.table: each.inserts for each in log.statistics(folder).sent}
    assert {each["table"]: each["inserts"] for each in found["sent"]} == sums
    assert sum(sums.values()) == sum(message[:1] == b"I" for message in CAPTURE.messages)


def test_verify(folder: Path) -> None:
    sound = run("verify", folder)
    assert sound.exit_code == 0
    assert sound.stdout.startswith(f"read {len(CAPTURE.messages):,} messages in 3 segments")
    segment = sorted(folder.glob("*.arrow"))[1]
    content = bytearray(segment.read_bytes())
    content[-20] ^= 1
    segment.write_bytes(content)
    damaged = run("verify", folder)
    assert damaged.exit_code == 4
    [damage] = log.verify(folder).damage
    assert damaged.stdout.splitlines()[0] == str(damage)
    assert damaged.stdout.startswith(f"{segment.name}, byte ")
    assert "is damaged in 1 file" in damaged.stderr
    as_json = run("verify", "--json", folder)
    assert as_json.exit_code == 4
    [found] = json.loads(as_json.stdout)["damage"]
    assert (found["file"], found["offset"]) == (segment.name, damage.offset)


def test_prune(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.arrow"))
    nothing = run("prune", "--before", "0/0", folder)
    assert nothing.stdout == "removed 0 segments\n"
    last = format_lsn(commit_lsns(CAPTURE)[-1])
    removed = run("prune", "--before", last, "--json", folder)
    gone = json.loads(removed.stdout)["removed"]
    assert gone
    assert sorted(path.name for path in folder.glob("*.arrow")) == names[len(gone) :]
    assert run("verify", folder).exit_code == 0


@pytest.mark.parametrize("command", ["info", "verify"])
def test_no_log(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path)
    assert result.exit_code == 4
    assert "is not a log" in result.stderr


def test_no_lsn(folder: Path) -> None:
    result = run("prune", "--before", "soon", folder)
    assert result.exit_code == 2
    assert "--before" in result.stderr
