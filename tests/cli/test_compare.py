"""``pgwire-codec compare``: output, usage, and exit statuses."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pgwire_codec.comparing.result import Comparison, RowDifference, TableComparison
from pgwire_codec.lake.runners.threads import Threads
from tests.support import build
from tests.support.commands import run
from tests.support.mirrors import ID, Writer, relation


def table(name: str, state: str, **values: Any) -> TableComparison:
    return TableComparison(name, state, lsn=0x1_0000_0010, server_rows=3, target_rows=3, **values)


def different() -> TableComparison:
    columns = {"v": (Decimal("1.50"), None), "f": (float("nan"), b"\xff")}
    return table(
        "public.a",
        "differs",
        differing=3,
        unsettled=1,
        differences=(
            RowDifference({"id": 1}, 1, 1, columns),
            RowDifference({"id": "x\n", "at": datetime(2020, 1, 1)}, 1, 0),
        ),
        uncompared={"w": "it has a mask"},
        hint="Do this.",
    )


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    from pgwire_codec.cli.compare_report import print_lines

    print_lines([different()])
    line = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (line["table"], line["lsn"], line["target_lsn"]) == ("public.a", "1/10", None)
    assert line["differences"][0]["columns"] == {"v": ["1.50", None], "f": ["nan", "ff"]}
    assert line["differences"][1]["row"] == {"id": "x\n", "at": "2020-01-01 00:00:00"}


def test_table() -> None:
    from pgwire_codec.cli.compare_report import print_table

    out = io.StringIO()
    tables = [different(), table("public.b", "failed", error="it failed")]
    print_table(tables, Console(file=out, width=200))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines == [
        "table server rows target different LSN state",
        "public.a 3 3 3 1/10 differs",
        "public.b 3 3 0 1/10 failed: it failed",
        "public.a id=1: v is 1.50 on the server and NULL in the target; f is nan on the server and "
        "b'\\xff' in the target",
        "public.a id='x\\n', at=2020-01-01 00:00:00: 1 on the server and 0 in the target have no "
        "counterpart",
        "public.a: and 1 more",
        "public.a: unsettled: 1",
        "public.a: column w was not compared: it has a mask",
        "public.a: hint: Do this.",
    ]


@pytest.mark.parametrize(
    ("states", "status", "text"),
    [
        (["equal", "equal"], 0, ""),
        (["equal", "behind"], 3, "Error: 1 table not up to date: t1"),
        (["changing", "behind"], 3, "Error: 2 tables not up to date: t0, t1"),
        (["behind", "differs"], 1, "Error: 1 table not equal: t1"),
        *((["equal", each], 1, "not equal: t1") for each in ("missing", "gone", "set aside")),
        (["failed"], 1, "Error: 1 table not equal: t0"),
        (["equal", "equal, except: v"], 5, "Error: 1 column not compared: t1.v"),
        (["behind", "equal, except: v"], 3, "Error: 1 table not up to date: t0"),
        (["differs", "equal, except: v"], 1, "Error: 1 table not equal: t0"),
    ],
)
def test_exit_status(
    states: list[str], status: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompared = {"v": "it has a mask"}
    tables = (
        table(f"t{n}", state, uncompared=uncompared if "except" in state else {})
        for n, state in enumerate(states)
    )
    given = compared(monkeypatch, *tables)
    chosen = "--runner", "local", "--publication", "p", "--wait", "5"
    result = run(*arguments(tmp_path), *chosen)
    assert result.exit_code == status
    assert text in result.stderr
    assert [json.loads(line)["state"] for line in result.stdout.splitlines()] == states
    [(runner, log, lake, dsn, options)] = given
    assert isinstance(runner, Threads)
    assert (log.uri, lake.location, dsn) == (str(tmp_path / "log"), str(tmp_path), "host=none")
    assert (options.publication, options.wait, options.tables) == (("p",), 5.0, "*")


def test_spark_is_the_default_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta tables need no session of it."""
    spark_runner = pytest.importorskip("pgwire_codec.spark.runner").SparkRunner
    from pgwire_codec.spark import local

    monkeypatch.setattr(local, "local_context", lambda conf: nullcontext("context"))
    given = compared(monkeypatch)
    assert run(*arguments(tmp_path)).exit_code == 0
    [(runner, *_)] = given
    assert isinstance(runner, spark_runner)


def compared(monkeypatch: pytest.MonkeyPatch, *results: TableComparison) -> list[tuple[Any, ...]]:
    """Have the command compare nothing; return the arguments of the comparisons to come."""
    given: list[tuple[Any, ...]] = []

    class Run:
        def __init__(self, *arguments: Any) -> None:
            given.append(arguments)

        def run(self) -> Comparison:
            return Comparison(results)

    monkeypatch.setattr(import_module("pgwire_codec.cli.compare"), "ComparisonRun", Run)
    return given


def arguments(folder: Path) -> list[object]:
    writer = Writer(folder)
    writer.commit(relation(1, ID), build.insert(1, "1"))
    writer.flush()
    return [
        "compare", "--log", folder / "log", "--to", f"delta:{folder}", "--dsn", "host=none",
    ]  # fmt: skip


@pytest.mark.parametrize("runner", ["local", "spark"])
def test_usage(tmp_path: Path, runner: str) -> None:
    if runner == "spark":
        pytest.importorskip("pyspark")
    given = [*arguments(tmp_path), "--runner", runner]
    result = run(*given[:2], tmp_path / "none", *given[3:])
    assert result.exit_code == 3
    assert "none is not a log" in result.stderr
    result = run(*given[:4], "iceberg:/lake", *given[5:])
    assert result.exit_code == 2
    assert "unsupported target" in result.stderr
    result = run(*given, "dbname=shop", "password=secret")
    assert result.exit_code == 2
    assert "secret" not in result.stderr


def test_iceberg_needs_spark(tmp_path: Path) -> None:
    given = arguments(tmp_path)
    result = run(*given[:4], "iceberg:lake", *given[5:], "--runner", "local")
    assert result.exit_code == 2
    assert "--runner spark" in result.stderr
