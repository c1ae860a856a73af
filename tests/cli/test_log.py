"""Output and errors of ``pgwire-codec log``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from pgwire_codec import encode_message, log
from pgwire_codec.cli.app import app
from pgwire_codec.cli.arguments import duration, size
from pgwire_codec.log.dead_letters import DEAD_LETTERS
from pgwire_codec.protocol.lsn import format_lsn
from tests.support import build, spark_logs
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


def test_info_after_a_failover(folder: Path) -> None:
    promoted = replace(log.Log(folder).source, timeline=2, ancestors={1: 1 << 32})
    with log.LogWriter(folder, promoted) as writer:
        writer.flush(confirm_lsn=1)
    assert "timeline 2 (after timeline 1 up to 1/0), server" in run("info", folder).stdout
    found = json.loads(run("info", "--json", folder).stdout)
    assert found["source"]["ancestors"] == {"1": "1/0"}


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


def test_prune_by_a_retention(folder: Path, tmp_path: Path) -> None:
    first, *_ = log.Log(folder).segments
    position = tmp_path / "position"
    position.write_text("0/0")
    options = ("--max-bytes", "1kB", "--keep", "1d", "--consumer", f"file:{position}")
    assert run("prune", *options, folder).stdout == "removed 0 segments\n"
    position.write_text(format_lsn(log.Log(folder).end.lsn))
    removed = json.loads(run("prune", *options, "--json", folder).stdout)["removed"]
    assert removed[0] == f"{first.name}.arrow"
    position.unlink()
    failed = run("prune", *options, folder)
    assert failed.exit_code == 4
    assert f"{position} does not exist" in failed.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "Use either --before, or"),
        (("--before", "0/1", "--keep", "7d"), "Use either --before, or"),
        (("--keep", "7"), "'7' is not a time such as 7d"),
        (("--keep", "7 weeks"), "'7 weeks' is not a time such as 7d"),
        (("--keep", "-7d"), "'-7d' is not a time such as 7d"),
        (("--max-bytes", "much"), "'much' is not a size such as 500GB"),
        (("--consumer", "kafka:x"), "'kafka:x' is neither spark:CHECKPOINT nor file:FILE"),
    ],
)
def test_prune_by_no_retention(folder: Path, options: tuple[str, ...], problem: str) -> None:
    result = run("prune", *options, folder)
    assert (result.exit_code, problem in result.stderr) == (2, True)
    assert len(log.Log(folder)) == 3


def test_compact(folder: Path) -> None:
    segments = log.Log(folder).segments
    names = [f"{each.name}.arrow" for each in segments]
    size_before = sum(each.bytes for each in segments)
    name = f"{0:020}-{len(CAPTURE.messages):020}.arrow"
    described = f"{name}: 3 segments, {size_before:,} bytes"
    planned = run("compact", "--dry-run", folder)
    assert planned.stdout == f"{described}\nwould join 3 segments into 1\n"
    none = run("compact", "--segment-bytes", "1kB", folder)
    assert none.stdout == "joined 0 segments into 0\n"
    assert sorted(path.name for path in folder.glob("*.arrow")) == names
    joined = run("compact", "--compression", "zstd", folder)
    size_after = (folder / name).stat().st_size
    assert joined.stdout == f"{described}, now {size_after:,}\njoined 3 segments into 1\n"
    assert joined.stderr == ""  # the progress is for terminals
    assert run("verify", folder).stdout.startswith(f"read {len(CAPTURE.messages):,} messages in 1 ")
    assert json.loads(run("compact", "--json", folder).stdout) == {"joined": []}


def test_compact_for_programs(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.arrow"))
    sizes = [(folder / name).stat().st_size for name in names]
    [joined] = json.loads(run("compact", "--json", folder).stdout)["joined"]
    assert (joined["replaced"], joined["replaced_bytes"]) == (names, sum(sizes))
    assert joined["bytes"] == (folder / joined["file"]).stat().st_size


@pytest.mark.parametrize(
    ("text", "value"),
    [("7d", 604_800), ("12h", 43_200), ("1.5 min", 90), ("90s", 90)],
)
def test_times(text: str, value: int) -> None:
    assert duration(text).total_seconds() == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("500GB", 500 * 10**9), ("1.5TiB", 3 * 2**39), ("1 kB", 1000), ("9B", 9)],
)
def test_sizes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Write a log with values that do not decode, and with a message that is cut short."""
    price = build.column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    table = build.relation(1, build.column("id", "int4", key=True), price, name="orders")
    cut = encode_message(build.insert(1, "4", "4.00"))[:-1]
    changes = [build.insert(1, "1", "NaN"), build.insert(1, "2", "2.00"), cut, b"?"]
    spark_logs.write(tmp_path / "bad", build.wire(build.transaction(table, *changes)))
    return tmp_path / "bad"


def test_dead_letters(bad: Path) -> None:
    result = run("dead-letters", bad)
    assert result.exit_code == 0
    first, second, third, last = result.stdout.splitlines()
    assert first.startswith("ordinal 2 commit LSN 0/64 public.orders: unrepresentable: byte 19 (")
    assert " — hint: " in first
    assert second.startswith("ordinal 4 commit LSN 0/64 public.orders: truncated: byte ")
    assert third.startswith("ordinal 5 commit LSN 0/64: unknown_tag: byte 0")
    assert last == "3 messages that do not decode"
    shown = run("dead-letters", "--table", "public.*", "--unrepresentable", "null", bad).stdout
    assert shown.splitlines()[1:] == ["1 message that does not decode"]
    for option in ("--after", "--until"):
        other = {"--after": "0/64", "--until": "0/0"}[option]
        assert run("dead-letters", option, other, bad).stdout.startswith("0 messages")


def test_dead_letters_for_programs(bad: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in run("dead-letters", "--json", bad).stdout.splitlines()]
    assert [(each["ordinal"], each["code"], each["commit_lsn"]) for each in lines] == [
        (2, "unrepresentable", "0/64"),
        (4, "truncated", "0/64"),
        (5, "unknown_tag", "0/64"),
    ]
    assert lines[2]["data"] == "3f"
    assert lines[2]["table"] is None
    assert lines[0]["commit_time"] == "2000-01-01T00:00:00Z"
    file = tmp_path / "letters.parquet"
    assert run("dead-letters", "--to", file, bad).stdout == f"wrote 3 messages to {file}\n"
    table = pq.read_table(file)
    assert table.schema.names == DEAD_LETTERS.names
    assert table.column("ordinal").to_pylist() == [2, 4, 5]
    assert table.column("data").to_pylist()[2] == b"?"
    run("dead-letters", "--to", file, "--types", "text", "--until", "0/0", bad)
    assert len(pq.read_table(file)) == 0
    assert run("dead-letters", "--to", file, "--json", bad).exit_code == 2
    unwritable = run("dead-letters", "--to", tmp_path / "none" / "file", bad)
    assert unwritable.exit_code == 4
    assert "could not write" in unwritable.stderr


@pytest.mark.parametrize("command", ["info", "verify", "compact", "dead-letters"])
def test_no_log(command: str, tmp_path: Path) -> None:
    """One that a capture can still begin can pass by itself; a folder of other files cannot."""
    for folder, status in ((tmp_path / "log", 3), (tmp_path, 4)):
        (tmp_path / "file").touch()
        result = run(command, folder)
        assert result.exit_code == status
        assert "is not a log" in result.stderr


def test_no_lsn(folder: Path) -> None:
    result = run("prune", "--before", "soon", folder)
    assert result.exit_code == 2
    assert "--before" in result.stderr
