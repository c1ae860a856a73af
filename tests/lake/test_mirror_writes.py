"""A mirror that is killed at any of its writes has the same rows in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec.lake import rewriting
from pgwire_codec.lake.mirror_options import MirrorOptions
from pgwire_codec.lake.mirroring import Mirror
from pgwire_codec.lake.runners import threads
from pgwire_codec.lake.tables import delta, delta_vectors
from tests.support import build
from tests.support.applied_tables import Table, apply
from tests.support.build import column
from tests.support.killed_writes import Killed, Moment, Writes
from tests.support.mirrors import ID, MirrorOf, Row, Writer, in_order, relation

pytest.importorskip("deltalake")

ON_SPARK = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.xdist_group("spark-0")]

V, NOTE = column("v", "int4"), column("note")
KEYED = relation(1, ID, V, NOTE)
WIDER = relation(1, ID, V, NOTE, column("more"))
NARROWER = relation(1, ID, NOTE, column("more"))
BAG = relation(2, column("v", "int4", key=True), column("note", key=True), identity="f")
NAMES = ("public.t1", "public.t2", "public.t3")

#: Transactions of two turns. In the second one, a table has vectors, more columns and fewer.
FIRST: list[list[Any]] = [
    [KEYED, *(build.insert(1, str(n), "1", "long") for n in range(6))],
    [BAG, *(build.insert(2, "1", "same") for _ in range(3))],
    [relation(3, ID), build.insert(3, "1"), build.insert(3, "2")],
]
SECOND: list[list[Any]] = [
    [build.update(1, build.row("0", "2", ...)), build.delete(1, key=build.row("1", None, None))],
    [build.update(1, build.row("9", "2", ...), key=build.row("2", None, None))],
    [build.delete(2, old=build.row("1", "same")), build.insert(2, "2", "new")],
    [WIDER, build.update(1, build.row("3", "3", ..., "more"))],
    [NARROWER, build.update(1, build.row("4", ..., "more")), build.insert(1, "7", "n", "m")],
    [build.truncate(3), build.insert(3, "3")],
]


@pytest.fixture(
    params=[
        "local",
        "local parquet",
        pytest.param("iceberg", marks=ON_SPARK),
    ]
)
def engine(request: pytest.FixtureRequest) -> str:
    """Formats of a mirror that this process writes."""
    from tests.support.lakehouse import usable_engine

    return usable_engine(request.param)


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few changes written as many are, by one thread: in the same order each time."""
    monkeypatch.setattr(threads, "_cores", lambda: 1)
    monkeypatch.setattr(rewriting, "_SMALL_FILES", 1)
    monkeypatch.setattr(delta, "_CHECKPOINT_COMMITS", 2)
    monkeypatch.setattr(delta_vectors, "_INLINE_BYTES", 0)


class Trial:
    """A log and its mirror, in a folder of its own."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, engine: str) -> None:
        self._spark = request.getfixturevalue("spark") if engine == "iceberg" else None
        self.mirror = MirrorOf(self._spark, folder, engine)
        self._writer = Writer(folder)

    def write(self, transactions: list[list[Any]]) -> None:
        for transaction in transactions:
            self._writer.commit(*transaction)
        self._writer.flush()

    def run(self) -> None:
        options = MirrorOptions(once=True)
        runner: Any = threads.Threads()
        if self._spark is not None:
            from pgwire_codec.spark.runner import spark_runner

            runner = spark_runner(self._spark)
        Mirror(self.mirror.log, self.mirror.opened, "*", runner, options).run()

    def result(self) -> tuple[Any, ...]:
        """Rows and states of all tables."""
        states = {
            name: (row["state"], row["commit_lsn"], row["complete_lsn"], row["incomplete"])
            for name, row in self.mirror.status().items()
        }
        return {name: self.mirror.rows(name) for name in NAMES}, states


def states_of(transactions: list[list[Any]]) -> Iterator[dict[str, list[Row]]]:
    """Yield the rows of the tables after each transaction, without nulls."""
    decoder, tables = pgc.Decoder(before="key"), dict[int, Table]()
    yield {name: [] for name in NAMES}
    for number, transaction in enumerate(transactions, start=1):
        messages = build.transaction(*transaction, xid=number, lsn=number)
        apply(decoder.decode(build.wire(messages)), tables)
        yield {name: [] for name in NAMES} | {
            f"public.{table.relation.name}": without_nulls(table.rows) for table in tables.values()
        }


def without_nulls(rows: list[Row]) -> list[Row]:
    return in_order(
        [{name: row[name] for name in sorted(row) if row[name] is not None} for row in rows]
    )


@pytest.mark.slow
@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("moment", ["during", "after"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_killed_at_any_write(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: str,
    moment: Moment,
    turns: int,
    step: int,
) -> None:
    """At the kill, a reader has the rows after a transaction; in the end, those of all."""
    before, last = ([], [*FIRST, *SECOND]) if turns == 1 else (FIRST, SECOND)

    def prepared(folder: str) -> Trial:
        trial = Trial(request, tmp_path / folder, engine)
        if before:
            trial.write(before)
            trial.run()
        trial.write(last)
        return trial

    whole, writes = prepared("whole"), Writes()
    with writes.counted():
        whole.run()
    expected = whole.result()
    possible = [*states_of([*FIRST, *SECOND])]
    assert writes.count > 10
    for number in range(1, writes.count + 1, step):
        trial = prepared(str(number))
        with Writes(number, moment).counted(), pytest.raises(Killed):
            trial.run()
        if engine != "local parquet":  # which readers see file by file
            for name in _present(trial.mirror):
                found = without_nulls(trial.mirror.rows(name))
                assert found in [state[name] for state in possible], (number, name)
        trial.run()
        assert trial.result() == expected, number


def _present(mirror: MirrorOf) -> list[str]:
    """Return the names of the tables that exist."""
    return [name for name in NAMES if mirror.opened.open(_relation(name)).schema is not None]


def _relation(name: str) -> pgc.Relation:
    return next(each for each in (KEYED, BAG, FIRST[2][0]) if name.endswith(each.name))
