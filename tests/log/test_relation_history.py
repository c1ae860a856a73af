"""Versions of relations in ranges of a log, in the order of commits; without a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import RelationHistory
from tests.support import build, spark_logs
from tests.support.build import column


def relation(names: str, oid: int = 1, **options: Any) -> Any:
    columns = [column(name) for name in names.split()]
    return build.relation(oid, *columns, name=f"t{oid}", **options)


def between(path: str, after: int, until: int, oid: int = 1) -> list[tuple[int, str]]:
    found = RelationHistory(Log(path)).between(oid, after, until)
    return [(each.commit_lsn, " ".join(c.name for c in each.relation.columns)) for each in found]


@pytest.fixture(params=[1, 20], ids=["one part", "many parts"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    messages: list[Any] = []
    for lsn, names in {10: "a", 20: "a b", 30: "a b", 40: "a", 50: "a b"}.items():
        values = ["1"] * len(names.split())
        inside = [relation(names), build.insert(1, *values)]
        messages += build.transaction(*inside, xid=lsn, lsn=lsn)
        other = [relation("x", 2), build.insert(2, "1")]
        messages += build.transaction(*other, xid=lsn + 1, lsn=lsn + 1)
    # Sent before the transaction at 55, and committed after it.
    streamed = [relation("a c", xid=99), build.insert(1, "1", "1", xid=99)]
    messages += build.streamed(*streamed, xid=99)
    messages += build.transaction(build.insert(2, "1"), xid=55, lsn=55)
    messages.append(pgc.StreamCommit(99, 0, 60, 61, 0))
    messages += build.transaction(build.insert(1, "1", "1"), xid=70, lsn=70)
    options = {} if request.param == 1 else {"part_bytes": 10}
    return spark_logs.write(
        tmp_path / "log", build.wire(messages), flushes=request.param, **options
    )


def test_versions_in_the_order_of_commits(path: str) -> None:
    everything = [(10, "a"), (20, "a b"), (40, "a"), (50, "a b"), (60, "a c")]
    assert between(path, 0, 70) == everything
    assert between(path, 10, 70) == everything
    assert between(path, 10, 55) == everything[:-1]
    assert between(path, 25, 35) == [(25, "a b")]
    assert between(path, 25, 45) == [(25, "a b"), (40, "a")]
    assert between(path, 35, 50) == [(35, "a b"), (40, "a"), (50, "a b")]
    assert between(path, 60, 70) == [(60, "a c")]
    assert [names for _, names in between(path, 0, 70, oid=2)] == ["x"]
    assert between(path, 0, 70, oid=3) == []


def test_another_identity_is_another_version(tmp_path: Path) -> None:
    messages: list[Any] = []
    for lsn, identity in {10: "d", 20: "f", 30: "f"}.items():
        inside = [relation("a", identity=identity), build.insert(1, "1")]
        messages += build.transaction(*inside, xid=lsn, lsn=lsn)
    path = spark_logs.write(tmp_path / "log", build.wire(messages))
    found = RelationHistory(Log(path)).between(1, 10, 30)
    assert [(each.commit_lsn, each.relation.replica_identity) for each in found] == [
        (10, "d"),
        (20, "f"),
    ]
