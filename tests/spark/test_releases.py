"""The page about Spark names the releases on which tools/test-spark runs the tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.lakehouse import ICEBERG

ROOT = Path(__file__).parent.parent.parent
RELEASES = ["3.5", "4.0", "4.1", "4.2", "4.3"]

#: The test file of each row of the table, by a part of the row.
TESTS = {
    '`spark.read.format("pgoutput")`': "source",
    "(#pgwire_codec.spark.decode_changes)": "changes",
    "(#pgwire_codec.spark.plan_partitions)": "changes",
    "`Log.read`": "changes",
    "(#pgwire_codec.spark.latest)": "tables",
    "(#pgwire_codec.spark.auto_cdc_rows)": "auto_cdc",
    "(#pgwire_codec.spark.mirror)": "mirror",
    "(#pgwire_codec.spark.compare)": "compare",
    "(#pgwire_codec.spark.read_dead_letters)": "dead_letters",
}


def rows() -> list[str]:
    text = (ROOT / "docs/reference/spark.md").read_text("utf-8")
    table = re.search(r"^\| input .*\n\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return table[1].splitlines()


def tested(release: str) -> set[str]:
    run = subprocess.run(
        [str(ROOT / "tools/test-spark"), "--list", release],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = list(map(Path, run.stdout.split()))
    assert all((ROOT / path).is_file() for path in paths)
    return {path.stem.removeprefix("test_") for path in paths}


def claimed(row: str) -> list[str]:
    """Return the releases of a row: "4.3", "4.2, 4.3" or "4.0 to 4.3"."""
    first, *last = re.findall(r"\d\.\d", row.split("|")[-2])
    if not last:
        return [first]
    return RELEASES[RELEASES.index(first) : RELEASES.index(last[-1]) + 1]


@pytest.mark.parametrize(("part", "name"), TESTS.items())
def test_releases_of_a_function(part: str, name: str) -> None:
    (row,) = [each for each in rows() if part in each]
    assert claimed(row) == [each for each in RELEASES if name in tested(each)]


def test_every_row_is_tested() -> None:
    assert len(rows()) == len(TESTS)


def test_releases_with_iceberg() -> None:
    text = (ROOT / "docs/reference/spark.md").read_text("utf-8")
    sentence = re.search(r"Iceberg's Spark runtime, which exists for Spark (.*)\.", text)
    assert sentence is not None
    assert re.findall(r"\d\.\d", sentence[1]) == list(ICEBERG)
    for release in ICEBERG:
        assert tested(release) >= {"tables", "row_counts", "relations", "mirror", "iceberg"}
