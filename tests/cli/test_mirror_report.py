"""Lines of ``pgwire-codec mirror --json``."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from pgwire_codec.cli.mirror import mirror
from pgwire_codec.cli.mirror_report import JsonLines
from pgwire_codec.errors import TableError
from pgwire_codec.lake.mirror_options import MirroredBatch
from pgwire_codec.lake.status import TableStatus


def lines(capsys: pytest.CaptureFixture[str], *changed: TableStatus) -> list[dict[str, Any]]:
    """Lines of a micro-batch that has changed some tables."""
    other = TableStatus("public.other", 1)
    with JsonLines(mirror) as report:
        report.show(MirroredBatch(7, 0x1_0000_0010, changed, lambda: (*changed, other)))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("Use `soft_deletes=True`.", "Use --soft-deletes."),
        ('Use `on_schema_change="evolve"`.', "Use --on-schema-change evolve."),
        ("Give it `unknown=True`.", "Give it `unknown=True`."),
        ("Set REPLICA IDENTITY FULL.", "Set REPLICA IDENTITY FULL."),
        (None, None),
    ],
)
def test_hints_name_options_of_the_command(
    capsys: pytest.CaptureFixture[str], hint: str | None, shown: str | None
) -> None:
    status = TableStatus("public.t", 2).failed(TableError("no such `history=True`", hint=hint))
    (line,) = lines(capsys, status)
    assert (line["table"], line["state"]) == ("public.t", "set aside")
    assert (line["error"], line["hint"]) == ("no such `history=True`", shown)


def test_hints_of_incomplete_tables(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, TableStatus("public.t", 2).current({"note": 0x20}))
    assert (line["state"], line["error"]) == ("incomplete", None)
    assert line["incomplete"] == {"note": "0/20"}
    assert "pgwire-codec log add-table --table public.t LOG" in line["hint"]


def test_each_table_with_changes_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    time = datetime(2024, 2, 29, tzinfo=timezone.utc)
    statuses = [
        TableStatus("public.a", 2, commit_lsn=0x30, commit_time=time, changes=5, dead_letters=1),
        TableStatus("public.b", 3),
    ]
    first, second = lines(capsys, *statuses)
    assert first["lag_seconds"] > 0
    expected = {
        "batch": 7, "until_lsn": "1/10", "table": "public.a", "state": "ok", "changes": 5,
        "commit_lsn": "0/30", "error": None, "hint": None, "dead_letters": 1, "incomplete": {},
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert (second["table"], second["commit_lsn"], second["lag_seconds"]) == (
        "public.b",
        None,
        None,
    )
    assert datetime.fromisoformat(second["time"]).tzinfo is not None


def test_a_batch_without_changes_has_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys) == []
