"""A table is a relation, whatever its name: latest never mixes two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import KEYS, VALUES, History, Key, Row

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
