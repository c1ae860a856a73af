"""``pgwire-codec status`` and ``resume``: each part by itself, and the commands to type."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec.cli import PERMANENT, RETRY
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.status import (
    GONE,
    INCOMPLETE,
    MODIFIED,
    RESUMING,
    RETRYING,
    SET_ASIDE,
    TableStatus,
)
from tests.support import build
from tests.support.commands import run
from tests.support.mirrors import ID, Writer, relation
from tests.support.run_files import run_file
from tests.support.servers import Database

pytest.importorskip("psycopg2")
pytest.importorskip("deltalake")

FILE = """
log = "log"
[capture]
dsn = "host=/nowhere"
slot = "s"
publication = "p"
[mirror]
to = "delta:lake"
runner = "local"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a log of two transactions, and a server that is down."""
    writer = Writer(tmp_path)
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.commit(build.insert(1, "2"))
    writer.flush()
    made = tmp_path / "shop.toml"
    made.write_text(FILE)
    return made


def status_of(name: str, **fields: object) -> TableStatus:
    defaults = {"complete_lsn": 10, "commit_lsn": 10, "commit_time": datetime.now(timezone.utc)}
    return TableStatus(name, 1, **(defaults | fields))  # type: ignore[arg-type]


def test_a_lost_server_leaves_the_rest(path: Path) -> None:
    assert Lake.parse(f"{path.parent}/lake").status().write([status_of("public.t1")])
    result = run("status", path)
    assert result.exit_code == RETRY
    lines = result.stdout.splitlines()
    assert lines[0].startswith("slot    could not connect: ")
    assert lines[1].startswith("        hint: Check host")
    assert lines[2].startswith("log     1 segment, ")
    assert "last commit 0/14" in lines[2]
    assert lines[3].split() == ["table", "state", "complete", "up", "to", "lag", "last", "change"]
    assert lines[4].split()[:5] == ["public.t1", "ok", "0/A", "10", "B"]


def test_a_log_that_does_not_exist_yet(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(FILE)
    result = run("status", "--json", path)
    found = json.loads(result.stdout)
    assert result.exit_code == found["exit_status"] == RETRY
    assert "is not a log" in found["log"]["error"]
    assert found["mirror"] == {"tables": []}
    assert "mirror  no tables yet" in run("status", path).stdout


def test_tables_that_lack_changes_have_a_command(path: Path) -> None:
    lake = Lake.parse(f"{path.parent}/lake")
    aside = status_of("public.t 1", state=SET_ASIDE, error="wrong", hint="Make it right.")
    letters = status_of("public.t2", dead_letters=3)
    assert lake.status().write([aside, letters, status_of("public.t3")])
    result = run("status", path)
    assert result.exit_code == PERMANENT
    first, second = f"resume {path} 'public.t 1'", f"resume --replay {path} public.t2"
    assert result.stdout.splitlines()[-5:] == [
        "public.t 1: wrong",
        "  hint: Make it right.",
        f"  pgwire-codec {first}",
        "public.t2: 3 changes left out",
        f"  pgwire-codec {second}",
    ]
    tables = json.loads(run("status", "--json", path).stdout)["mirror"]["tables"]
    commands = [f"pgwire-codec {first}", f"pgwire-codec {second}", None]
    assert [each["command"] for each in tables] == commands
    assert [each["lag_bytes"] for each in tables] == [10, 10, 10]
    resumed = run(*shlex.split(first))
    assert (resumed.exit_code, resumed.stdout) == (0, "requested public.t 1\n")
    assert lake.status().read()["public.t 1"].state == RESUMING
    wrong = run(*shlex.split(first))
    assert wrong.exit_code == PERMANENT
    assert "table public.t 1 is not set aside" in wrong.stderr


@pytest.mark.parametrize(
    ("fields", "exit_code"),
    [
        ({}, 0),
        ({"state": GONE, "complete_lsn": 10}, 0),
        ({"state": INCOMPLETE, "incomplete": ("v since 0/A",)}, RETRY),
        ({"state": MODIFIED, "error": "another program has changed rows"}, RETRY),
        ({"state": RETRYING, "error": "no answer", "complete_lsn": 10}, RETRY),
        ({"state": RESUMING, "complete_lsn": 10}, RETRY),
        ({"complete_lsn": 10}, RETRY),  # without the last transaction, which is from long ago
        ({"complete_lsn": None}, 0),
        ({"state": SET_ASIDE, "error": "wrong"}, PERMANENT),
        ({"dead_letters": 1}, PERMANENT),
    ],
    ids=str,
)
def test_exit_statuses_of_a_table(path: Path, fields: dict[str, Any], exit_code: int) -> None:
    head, _, tail = FILE.partition("[capture]")
    path.write_text(head + tail[tail.index("[mirror]") :])
    row = status_of("public.t1", **({"complete_lsn": 20} | fields))
    ok = status_of("public.t2", complete_lsn=20)
    assert Lake.parse(f"{path.parent}/lake").status().write([row, ok])
    result = run("status", path)
    assert result.exit_code == exit_code
    assert row.state in result.stdout
    assert (row.error or "") in result.stdout
    assert json.loads(run("status", "--json", path).stdout)["exit_status"] == exit_code


def test_resume_needs_a_mirror(path: Path) -> None:
    path.write_text(FILE[: FILE.index("[mirror]")])
    result = run("resume", path, "public.t")
    assert result.exit_code == PERMANENT
    assert f"{path} has no section [mirror]" in result.stderr


@pytest.mark.slow
def test_the_slot(table: Database, tmp_path: Path) -> None:
    path = run_file(table, tmp_path)
    run("capture", "--dsn", table.dsn, "--slot", table.slot, "--publication", "p",
        "--log", tmp_path / "shop.log", "--until-lsn", "now")  # fmt: skip
    result = run("status", "--json", path)
    slot = json.loads(result.stdout)["slot"]
    assert (result.exit_code, slot["exists"], slot["active"]) == (0, True, False)
    assert slot["lag_bytes"] == 0
    assert slot["retained_bytes"] >= 0
    assert f"slot    {table.slot} is not read; lag " in run("status", path).stdout
    table.execute(f"SELECT pg_drop_replication_slot('{table.slot}')")
    result = run("status", path)
    assert result.exit_code == PERMANENT
    assert f"slot    {table.slot} does not exist" in result.stdout
