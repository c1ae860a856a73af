"""A table is a relation, whatever its name: latest and merge_into never mix two of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.histories import KEYS, VALUES, History, Key, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def api() -> Any:
    return pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")


class Relation:
    """A table with an OID, and its changes."""

    def __init__(self, oid: int, *, full: bool = False) -> None:
        self.oid = oid
        self.made = History(oid, full=full)

    def change_at(self, lsn: int) -> None:
        """Add some transactions that commit in the thousand after an LSN."""
        self.made.lsn = lsn
        for shelf in range(9):  # so many that most rows stay as they are
            self.made.transaction(shelf, 2)

    def changes(self, spark: SparkSession, after: int = 0) -> DataFrame:
        rows = [(*change, self.oid) for change in self.made.changes if change[8] > after]
        return spark.createDataFrame(rows, f"{self.made.schema}, _relation_oid long")


def by_key(rows: list[Row]) -> dict[Key, Row]:
    found = {tuple(row[name] for name in KEYS): {n: row[n] for n in VALUES} for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("keys", [list(KEYS), None], ids=["keys", "no keys"])
def test_latest_has_the_rows_of_the_relation_that_changed_last(
    spark: SparkSession, api: Any, keys: list[str] | None
) -> None:
    """A truncate empties its own relation only."""
    old, new = Relation(2, full=True), Relation(1, full=True)
    new.change_at(1000)
    old.change_at(2000)
    new.made.truncate()
    new.change_at(3000)
    old.made.lsn = 4000
    old.made.truncate()
    new.change_at(5000)
    left = api.latest(old.changes(spark).union(new.changes(spark)), keys)
    assert left.columns[-2:] == ["_relation_oid", "_unchanged"]
    rows = left.toArrow().to_pylist()
    assert {row["_relation_oid"] for row in rows} == {1}
    assert by_key(rows) == new.made.expected() != {}
    assert api.latest(old.changes(spark), keys).count() == 0


@pytest.mark.parametrize("keys", [list(KEYS), None], ids=["keys", "no keys"])
def test_merge_into_replaces_one_relation_by_another(
    spark: SparkSession,
    merge_into: Any,
    api: Any,
    tmp_path: Path,
    keys: list[str] | None,
) -> None:
    """The name goes from one to the other and back: rows of one only, and nothing twice."""
    one, two = Relation(1, full=True), Relation(2, full=True)
    target = str(tmp_path / "target")

    def merge(batch: DataFrame, relation: Relation) -> None:
        merged = merge_into(batch, target, keys)
        version = merge_into.version(target)
        assert by_key(merge_into.rows(target)) == relation.made.expected()
        assert merged.commit_lsn == relation.made.lsn
        # It was applied once, and once only.
        assert merge_into(batch, target, keys) == api.Merged(relation.made.lsn)
        for old in batches:
            assert merge_into(old, target, keys) == api.Merged(relation.made.lsn)
        assert merge_into.version(target) == version
        batches.append(batch)

    batches: list[DataFrame] = []
    two.change_at(500)
    one.change_at(1000)
    merge(one.changes(spark), one)
    one.change_at(2000)
    two.change_at(3000)
    merge(two.changes(spark), two)  # its first changes are older than what was merged
    seen = two.made.lsn
    two.change_at(4000)
    merge(two.changes(spark, after=seen - 500), two)  # overlaps
    one.change_at(5000)
    merge(one.changes(spark), one)
    two.change_at(6000)
    one.change_at(7000)
    merge(one.changes(spark, after=5000).union(two.changes(spark)), one)
    two.change_at(8000)
    merge(two.changes(spark).union(one.changes(spark)), two)


def test_columns_that_only_the_old_relation_had(
    spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path
) -> None:
    """A row of another relation, or after a truncate, has no values of the old one."""
    target = str(tmp_path / "target")
    schema = (
        "id int, {}_op string, _commit_lsn long, _seq long, _unchanged array<string>,"
        " _before struct<id: int>, _relation_oid long"
    )

    def batch(lsn: int, oid: int, *more: str, truncate: bool = False) -> DataFrame:
        rows = [(1, *more, "I", lsn, 1, None, None, oid)]
        if truncate:
            rows.append((None, *(None for _ in more), "T", lsn, 0, None, None, oid))
        return spark.createDataFrame(rows, schema.format("more string, " if more else ""))

    def rows() -> list[Row]:
        found: list[Row] = merge_into.rows(target)
        return found

    merge_into(batch(10, 1, "old"), target, ["id"])
    assert rows() == [{"id": 1, "more": "old"}]
    merge_into(batch(20, 2), target, ["id"])
    assert rows() == [{"id": 1, "more": None}]
    merge_into(batch(30, 2, "new", truncate=True), target, ["id"])
    assert rows() == [{"id": 1, "more": "new"}]
    merge_into(batch(40, 2, truncate=True), target, ["id"])
    assert rows() == [{"id": 1, "more": None}]


def test_a_target_from_before_relations_were_recorded(
    spark: SparkSession, merge_into: Any, api: Any, tmp_path: Path
) -> None:
    """It is taken to have the rows of the first relation that comes."""
    one = Relation(1)
    target = str(tmp_path / "target")
    one.change_at(1000)
    merge_into(one.changes(spark).drop("_relation_oid"), target, list(KEYS))
    seen = one.made.lsn
    one.change_at(2000)
    merge_into(one.changes(spark, after=seen), target, list(KEYS))
    found = by_key(merge_into.rows(target))
    assert found == one.made.expected()
    assert merge_into.applied(target) == (one.made.lsn, 1)
