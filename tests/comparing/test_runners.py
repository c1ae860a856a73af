"""A comparison has the same result with each runner, however the work is split."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.compared_shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")

_DAMAGES = (
    ("typed", "UPDATE {} SET t = 'wrong' WHERE id % 3 = 1"),
    ("typed", "DELETE FROM {} WHERE id = 8"),
    ("typed", "INSERT INTO {0} SELECT * FROM {0} WHERE id = 9"),
    ("bag", "UPDATE {} SET w = 'wrong' WHERE v = 2"),
)


def damage(shop: Shop) -> None:
    """Damage the tables; the target lacks changes of other rows, and has no table of one."""
    shop.follow()
    for table, statement in _DAMAGES:
        shop.damage(table, statement)
    shop.made.execute(
        "UPDATE typed SET t = 'later' WHERE id > 300",
        "UPDATE typed SET id = 1000 WHERE id = 200",
        "CREATE TABLE later (id int PRIMARY KEY)",
        "INSERT INTO later SELECT generate_series(1, 99)",
    )
    shop.capture()


def plain(found: dict[str, Any]) -> dict[str, str]:
    """Results as texts, because NaN is unequal to itself, and without the server's LSN."""
    return {name: repr(asdict(table) | {"lsn": None}) for name, table in found.items()}


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_parts_and_temporary_files(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgwire_codec.capture.snapshot import table_ranges
    from pgwire_codec.comparing import comparison_run
    from pgwire_codec.lake.runners import threads

    damage(shop)
    whole = shop.compare()
    states = {name: each.state for name, each in whole.items()}
    assert states == {"bag": "differs", "empty": "equal", "later": "missing", "typed": "differs"}
    assert (whole["typed"].differing, whole["typed"].unsettled) == (102, 202)
    monkeypatch.setattr(table_ranges, "_RANGE_BYTES", 8192)
    monkeypatch.setattr(comparison_run, "_PART_BYTES", 100)
    monkeypatch.setattr(threads, "_MOST_BYTES", 1000)
    assert plain(shop.compare(jobs=3)) == plain(whole)
    few = shop.compare(max_rows=2)
    assert few["typed"].differences == whole["typed"].differences[:2]
    assert few["typed"].differing == whole["typed"].differing


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_executors_of_spark(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All work is theirs: small work is otherwise done in the driver."""
    from pgwire_codec.spark import compare, runner

    damage(shop)
    whole = shop.compare()
    for size in (1 << 40, 1):
        monkeypatch.setattr(runner, "_SMALL_BYTES", size)
        found = compare(spark, shop.mirror.log, shop.mirror.target, shop.made.dsn, wait=0)
        tables = {each.table.partition(".")[2]: each for each in found.tables}
        assert plain(tables) == plain(whole)
