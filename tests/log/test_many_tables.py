"""Costs of a log of many tables: what is written and planned grows with what changed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from tests.support.build import column, insert, relation, transaction, wire
from tests.support.logs import SOURCE, append

TABLES = 1000


def table(oid: int) -> Any:
    key, value = column("id", "int4", key=True), column("v", "text")
    return relation(oid, key, value, name=f"table_{oid}")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> log.Log:
    """A log that declares its tables in the first segment, and changes a few in each later one."""
    folder = tmp_path_factory.mktemp("log")
    oids = range(1, TABLES + 1)
    with log.LogWriter(folder, SOURCE) as writer:
        changes = [each for oid in oids for each in (table(oid), insert(oid, "1", "a"))]
        append(writer, wire(transaction(*changes, lsn=100)))
        writer.seal()
        for number in range(1, 11):
            changes = [insert(oid, "2", "b") for oid in range(number, number + 3)]
            append(writer, wire(transaction(*changes, lsn=100 + number)))
            writer.seal()
    return log.Log(folder)


def files(reader: log.Log) -> list[tuple[Path, Path]]:
    folder = Path(reader.uri)
    return [(path, path.with_suffix(".json")) for path in sorted(folder.glob("0*.arrow"))]


def test_a_segment_contains_what_it_declares(reader: log.Log) -> None:
    (_, first), *later = files(reader)
    assert first.stat().st_size > 100 * TABLES
    for segment, sidecar in later:
        assert sidecar.stat().st_size < 4096
        assert segment.stat().st_size < 4096
    assert len(reader.versions) == TABLES
    assert len(reader.relations_at().relations) == TABLES


def test_a_partition_contains_what_it_needs(reader: log.Log) -> None:
    partitions = reader.plan(after=100, max_partition_bytes=1).partitions
    assert len(partitions) == 10
    for number, partition in enumerate(partitions, 1):
        assert len(pickle.dumps(partition)) < 2048
        needed = set(range(number, number + 3))
        assert set(partition.plan.carry.scope.relations) == needed
        assert {batch.relation.oid for batch in partition.decode()} == needed


def test_a_plan_of_parts_contains_what_each_needs() -> None:
    oids = range(1, TABLES + 1)
    declared = wire([each for oid in oids for each in transaction(table(oid), lsn=100 + oid)])
    change = wire(transaction(insert(7, "1", "a"), lsn=9000))
    plan = pgc.plan([pgc.summarise(declared), pgc.summarise(change)])
    assert set(plan.parts[1].carry.scope.relations) == {7}
    assert set(plan.carry.scope.relations) == set(oids)
    [batch] = pgc.Decoder().decode_part(change, plan.parts[1])
    assert batch.new["v"].to_pylist() == ["a"]
