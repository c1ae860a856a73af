"""Output and errors of ``pgwire-codec report``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import pgwire_codec as pgc
from pgwire_codec import log, report
from pgwire_codec.cli.app import app
from pgwire_codec.format import format_timestamp
from pgwire_codec.lake import mirroring
from tests.support import corpus
from tests.support.logs import EPOCH, write
from tests.support.pages import Page


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command(tmp_path: Path) -> None:
    capture = corpus.capture("dml.pg18.v1-text")
    reader = write(capture, tmp_path / "log")
    output = tmp_path / "report.html"
    result = run(tmp_path / "log", "-o", output)
    assert (result.exit_code, result.stderr) == (0, "")
    transactions = len(pgc.Decoder().decode(capture.messages).transactions)
    assert result.stdout.startswith(f"{output}: {transactions:,} transactions, ")
    assert output.read_text("utf-8") == report.render(report.gather(reader))
    assert format_timestamp(int(EPOCH.astype(int))) in Page(output.read_text("utf-8")).text


def test_the_command_reports_errors(tmp_path: Path) -> None:
    result = run(tmp_path, "-o", tmp_path / "report.html")
    assert (result.exit_code, "is not a log" in result.stderr) == (3, True)
    directory = tmp_path / "log"
    write(corpus.capture("dml.pg18.v1-text"), directory)
    result = run(directory, "-o", tmp_path / "nowhere" / "report.html")
    assert (result.exit_code, "does not exist" in result.stderr) == (2, True)
    result = run(directory)
    assert (result.exit_code, "'-o' / '--output'" in result.stderr) == (2, True)
    [path] = directory.glob("0*.json")
    segment = path.with_suffix(".arrow")
    [part] = log.Log(directory).segments[0].parts
    for file, place in ((segment, part.extent.offset), (path, part.extent.offset // 2)):
        content = file.read_bytes()
        file.write_bytes(content[:place] + b"x" + content[place + 1 :])
        result = run(directory, "-o", tmp_path / "report.html")
        assert result.exit_code == 4
        assert f"{file.name} is damaged" in result.stderr
        assert not (tmp_path / "report.html").exists()
        file.write_bytes(content)


def test_the_command_with_a_lake(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    write(corpus.capture("dml.pg18.v1-text"), tmp_path / "log")
    target = f"delta:{tmp_path / 'lake'}"
    mirroring.mirror(tmp_path / "log", target, "public.def", once=True).run()
    output = tmp_path / "report.html"
    result = run(tmp_path / "log", "-o", output, "--lake", target)
    assert (result.exit_code, result.stderr) == (0, "")
    [_, row] = Page(output.read_text("utf-8")).tables["Tables by name"]
    assert row[:3] == ["public.def", "ok", "0"]


def test_a_lake_that_cannot_be_shown(tmp_path: Path) -> None:
    write(corpus.capture("dml.pg18.v1-text"), tmp_path / "log")
    output = tmp_path / "report.html"
    result = run(tmp_path / "log", "-o", output, "--lake", "iceberg:lake")
    assert result.exit_code == 2
    assert (
        "hint: Read the state of the tables with Spark, from lake._mirror.status." in result.stderr
    )
    result = run(tmp_path / "log", "-o", output, "--lake", tmp_path / "lake")
    assert (result.exit_code, "has no tables of a mirror" in result.stderr) == (4, True)
    assert not output.exists()
