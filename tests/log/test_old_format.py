"""Logs that earlier releases began are read, verified and continued.

Each of ``tests/data/log-format-*`` was written by the last release with that format: three quarters
of a capture, in two sealed segments and one that grows. That of format 3 has a file of the index.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from tests.log.test_relations import check as check_relations
from tests.support import corpus
from tests.support.log_copies import copy_log
from tests.support.logs import SOURCE, append, commit_lsns
from tests.transactions.test_splits import restarts, rows, serial

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
END = 3 * len(CAPTURE.messages) // 4
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    chosen: int = request.param
    return chosen


@pytest.fixture
def old(version: int, tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / f"log-format-{version}", tmp_path / "log"))


def formats(directory: Path) -> list[int]:
    return [json.loads(path.read_bytes())["format"] for path in sorted(directory.glob("0*.json"))]


def continue_log(directory: Path) -> None:
    """Write the rest of the capture in a new session, compressed.

    The server sends the Relations again.
    """
    again = max(place for place in restarts(CAPTURE) if place <= END)
    rest = [pgc.encode_message(each) for each in restarts(CAPTURE)[again]]
    rest += CAPTURE.messages[again:]
    with log.LogWriter(directory, SOURCE, part_bytes=500, compression="lz4") as writer:
        assert (writer.confirm_lsn, writer.received_lsn, writer.end_ordinal) == (7, 9, END)
        for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            append(writer, half)
            writer.seal()


def without_lsns(found: list[Any]) -> list[Any]:
    """Return rows without the positions of their messages."""
    return [(*row[:6], *row[7:]) for row in found]


def test_reading(old: Path) -> None:
    reader = log.Log(old)
    messages = CAPTURE.messages[:END]
    decoder = pgc.Decoder()
    expected = rows([decoder.decode(messages, CAPTURE.lsns[:END])])
    assert len(expected) > 20
    for part_bytes in (1, 1 << 20):
        plan = reader.plan(max_partition_bytes=part_bytes)
        assert rows([[batch for each in plan.partitions for batch in each.decode()]]) == expected
    assert reader.end == (END, decoder.carry.delivered_lsn)
    check_relations(reader, messages)
    assert log.verify(old).damage == ()


def test_continuing(old: Path, version: int) -> None:
    continue_log(old)
    assert formats(old) == [version, version, 4, 4, 4]
    reader = log.Log(old)
    encodings = [segment.header.encoding for segment in reader.segments]
    assert encodings == ["plain"] * 3 + ["differences"] * 2
    whole = serial(CAPTURE)[0]
    for part_bytes in (1, 1 << 20):
        plan = reader.plan(max_partition_bytes=part_bytes)
        found = rows([[batch for each in plan.partitions for batch in each.decode()]])
        assert without_lsns(found) == without_lsns(whole)
    messages = [
        data for records in reader.messages() for data in records.column("data").to_pylist()
    ]
    check_relations(reader, messages)
    assert log.verify(old).damage == ()


def test_pruning_and_copying(old: Path, tmp_path: Path) -> None:
    continue_log(old)
    whole = without_lsns(serial(CAPTURE)[0])
    copy_log(old, tmp_path / "copy")
    for lsn in commit_lsns(CAPTURE)[::5]:
        log.prune(old, lsn)
        found = rows([list(log.Log(old).read(after=lsn))])
        assert without_lsns(found) == [row for row in whole if row[0] > lsn]
        assert log.verify(old).damage == ()
    assert min(int(path.stem) for path in old.glob("0*.arrow")) >= END
    assert without_lsns(rows([list(log.Log(tmp_path / "copy").read())])) == whole
    assert log.verify(tmp_path / "copy").damage == ()
