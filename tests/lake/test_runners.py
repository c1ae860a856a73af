"""Runners give the same tables, however the work is split: by partition, bucket and piece."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.lake import table_turns
from pgwire_codec.lake.runners import threads
from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake")

KEYED = relation(1, ID, column("name", key=True), column("v"), column("big"))
BAG = relation(2, column("a", "int4", key=True), column("b", key=True), identity="f")


def key(row: tuple[Any, ...]) -> Any:
    return build.row(*row[:2], None, None)


class Changes:
    """Random changes of a table with a key and of one without, some with values not sent."""

    def __init__(self, seed: int, writer: Writer) -> None:
        self._chance = Random(seed)
        self._writer = writer
        self._rows: dict[tuple[str, str], tuple[str, ...]] = {}
        self._bag: list[tuple[str, str]] = []

    def begin(self) -> None:
        """Write a row of each table, which then has a target."""
        self._bag.append(("0", "p"))
        self._rows["0", "x"] = ("0", "x", "v", "big")
        rows = build.insert(1, "0", "x", "v", "big"), build.insert(2, "0", "p")
        self._writer.commit(KEYED, BAG, *rows)

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            changes = [self._change() for _ in range(self._chance.randrange(1, 12))]
            self._writer.commit(KEYED, BAG, *changes)
        self._writer.flush()

    def _change(self) -> Any:
        chance = self._chance
        number = chance.random()
        if number < 0.3:
            return self._change_of_bag()
        if number < 0.32:
            self._rows.clear()
            self._bag.clear()
            return build.truncate(1, 2)
        if number < 0.6 or not self._rows:
            row = self._new()
            if row[:2] not in self._rows:
                self._rows[row[:2]] = row
                return build.insert(1, *row)
            return build.update(1, build.row(*self._kept(row)))
        old = self._rows.pop(chance.choice(list(self._rows)))
        if number < 0.7:
            return build.delete(1, key=key(old))
        new = self._new()
        if new[:2] in self._rows:
            self._rows[old[:2]] = old
            return build.update(1, build.row(*old[:2], new[2], ...))
        self._rows[new[:2]] = (*new[:3], old[3])
        return build.update(1, build.row(*new[:3], ...), key=key(old))

    def _kept(self, row: tuple[str, ...]) -> list[Any]:
        """Return an update of a row that does not send the last value, sometimes."""
        if self._chance.random() < 0.5:
            return [*row[:3], ...]
        self._rows[row[0], row[1]] = row
        return [*row]

    def _new(self) -> tuple[str, ...]:
        chance = self._chance
        name = chance.choice(["x", "ä", ""])
        return str(chance.randrange(20)), name, str(chance.random()), f"big {chance.random()}"

    def _change_of_bag(self) -> Any:
        chance = self._chance
        new = str(chance.randrange(4)), chance.choice("pq")
        if not self._bag or chance.random() < 0.6:
            self._bag.append(new)
            return build.insert(2, *new)
        old = self._bag.pop(chance.randrange(len(self._bag)))
        if chance.random() < 0.5:
            return build.delete(2, old=build.row(*old))
        self._bag.append(new)
        return build.update(2, build.row(*new), old=build.row(*old))


def check(made: MirrorOf, changes: Changes, chance: Random) -> None:
    changes.begin()
    for _ in range(4):
        changes.write(chance.randrange(1, 15))
        made.run()
        for name in ("public.t1", "public.t2"):
            assert made.rows(name) == made.expected(name), made.status()[name]


@pytest.mark.parametrize("seed", range(12))
def test_buckets_and_temporary_files(
    tmp_path: Path, writer: Writer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(table_turns, "_BUCKET_BYTES", chance.choice([100, 1000, 1 << 20]))
    monkeypatch.setattr(threads, "_MOST_BYTES", chance.choice([0, 1000, 1 << 20]))
    check(MirrorOf(None, tmp_path, "local"), Changes(seed, writer), chance)


@pytest.mark.slow
def test_executors_of_spark(
    spark: SparkSession, tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All work is theirs: small work is otherwise done in the driver."""
    from pgwire_codec.spark import runner

    monkeypatch.setattr(runner, "_SMALL_BYTES", 1)
    monkeypatch.setattr(table_turns, "_BUCKET_BYTES", 500)
    made = MirrorOf(spark, tmp_path, "delta")
    made.engine = "local"  # what reads the tables
    check(made, Changes(5, writer), Random(5))
