"""Filters of a query limit what is read, and change no row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec import log
from pgwire_codec.errors import OptionError
from tests.support import build, spark_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark-1"),
]

ENABLED = "spark.sql.python.filterPushdown.enabled"

#: Commit LSN and commit time (a second of the year 2000) of each transaction.
COMMITS = {100: 5, 200: 3, 300: 9, 400: 20}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A log with a part for each transaction; each row's key is its commit LSN."""
    messages = build.wire(
        message
        for lsn, second in COMMITS.items()
        for message in build.transaction(
            build.T,
            build.insert(1, str(lsn), "a", None),
            lsn=lsn,
            time=second * 1_000_000,
        )
    )
    return spark_logs.write(tmp_path / "log", messages, flushes=len(COMMITS))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that pushes filters; its time zone is not UTC."""
    if not hasattr(pytest.importorskip("pyspark.sql.datasource"), "Filter"):
        pytest.skip("needs Spark 4.1")
    settings = {ENABLED: "true", "spark.sql.session.timeZone": "Asia/Tokyo"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    reader = spark.read.format("pgoutput").option("maxPartitionBytes", "1").options(**options)
    return reader.load(path)


def lsns(rows: DataFrame, column: str) -> list[int]:
    return sorted(each[0] for each in rows.select(column).collect())


def check(made: DataFrame, column: str, found: list[int], most: int) -> None:
    """Check the commit LSNs of rows, and the number of tasks that read them."""
    assert lsns(made, column) == found
    assert made.rdd.getNumPartitions() <= max(most, 1)  # Spark makes one of none


@pytest.mark.parametrize(
    ("condition", "found", "most"),
    [
        ("_commit_lsn > 200", [300, 400], 3),
        ("_commit_lsn >= 200 AND _commit_lsn < 400", [200, 300], 3),
        ("_commit_lsn = 300", [300], 1),
        ("_commit_lsn <=> 300", [300], 1),
        ("_commit_lsn IN (200, 300)", [200, 300], 2),
        ("_commit_lsn > 400", [], 1),
        ("_commit_lsn < -5", [], 0),
        ("_commit_lsn > 300 AND _commit_lsn < 200", [], 0),
        ("_commit_lsn IN (100, NULL)", [100], 4),
        ("_commit_lsn != 100 OR _commit_lsn = 100", [100, 200, 300, 400], 4),
        ("NOT _commit_lsn <= 300", [400], 2),
        ("_commit_lsn BETWEEN 200 AND 300 AND _commit_lsn % 200 = 0", [200], 2),
        ("_commit_time >= timestamp '2000-01-01T00:00:05Z'", [100, 300, 400], 3),
        ("_commit_time < timestamp '2000-01-01T00:00:05Z'", [200], 2),
        ("_commit_time = timestamp '2000-01-01T09:00:03'", [200], 1),  # in Tokyo
        ("_commit_time > timestamp '2000-01-01T00:00:09Z' AND _commit_lsn < 400", [], 1),
        ("_commit_time > timestamp '2100-01-01'", [], 0),
        (
            "_commit_time > timestamp '2100-01-01' AND _commit_time < timestamp '2000-01-01'",
            [],
            0,
        ),
    ],
)
def test_conditions(
    pushing: SparkSession, path: str, condition: str, found: list[int], most: int
) -> None:
    made = load(pushing, path, table="public.t", pushFilters="true")
    check(made.where(condition), "_commit_lsn", found, most)


@pytest.mark.parametrize(
    ("options", "lsn", "time"),
    [
        ({}, "_commit_lsn", "_commit_time"),
        ({"table": "public.t", "style": "debezium"}, "source.commit_lsn", None),
    ],
    ids=["all", "debezium"],
)
def test_styles(
    pushing: SparkSession, path: str, options: dict[str, str], lsn: str, time: str | None
) -> None:
    made = load(pushing, path, pushFilters="true", **options)
    check(made.where(f"{lsn} = 300"), lsn, [300], 1)
    if time is not None:
        check(made.where(f"{time} <= timestamp '2000-01-01T00:00:03Z'"), lsn, [200], 1)


def test_columns_of_these_names(pushing: SparkSession, tmp_path: Path) -> None:
    """A table's own column is not the metadata column, which has another name then."""
    table = build.relation(1, build.column("_commit_lsn", "int8", key=True))
    messages = build.wire(
        message
        for lsn in (100, 200)
        for message in build.transaction(table, build.insert(1, str(300 - lsn)), lsn=lsn)
    )
    path = spark_logs.write(tmp_path / "own", messages, flushes=2)
    made = load(pushing, path, table="public.t", pushFilters="true")
    check(made.where("_commit_lsn = 200"), "__commit_lsn", [100], 2)
    check(made.where("__commit_lsn = 200"), "_commit_lsn", [100], 1)


def test_options_limit_too(pushing: SparkSession, path: str) -> None:
    options = {"table": "public.t", "startingLsn": "100", "endingLsn": "300"}
    made = load(pushing, path, pushFilters="true", **options)
    assert lsns(made.where("_commit_lsn > 0 AND _commit_lsn < 1000"), "id") == [200, 300]
    assert lsns(made.where("_commit_lsn > 200"), "id") == [300]


def test_a_pruned_log(pushing: SparkSession, path: str, tmp_path: Path) -> None:
    for lsn in (500, 600):  # a session each, whose segments can be removed
        messages = build.wire(
            build.transaction(build.T, build.insert(1, str(lsn), "a", None), lsn=lsn)
        )
        spark_logs.write(Path(path), messages)
    assert log.prune(path, 400)
    made = load(pushing, path, table="public.t", pushFilters="true")
    assert lsns(made.where("_commit_lsn > 100"), "id") == [500, 600]
    assert lsns(made.where("_commit_lsn < 100"), "id") == []


def test_without_the_setting(pushing: SparkSession, path: str) -> None:
    pushing.conf.set(ENABLED, "false")
    made = load(pushing, path, pushFilters="true")
    with pytest.raises(Exception, match=r"filterPushdown\.enabled"):
        made.where("_commit_lsn > 1").collect()


def test_not_for_streams(pushing: SparkSession, path: str, tmp_path: Path) -> None:
    reader: Any = pushing.readStream.format("pgoutput").option("pushFilters", "true")
    query = (
        reader.load(path)
        .writeStream.format("memory")
        .queryName("not_for_streams")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(Exception, match="a stream has no pushFilters — hint: Set startingLsn"):
        query.processAllAvailable()


def test_older_releases(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    from pyspark.sql import datasource

    from pgwire_codec.spark import PgoutputDataSource

    monkeypatch.delattr(datasource, "Filter", raising=False)
    monkeypatch.delitem(sys.modules, "pgwire_codec.spark.filters", raising=False)
    made = PgoutputDataSource({"path": path, "pushFilters": "true"})
    with pytest.raises(OptionError, match=r"pushFilters needs Spark 4\.1, not 4\."):
        made.reader(made.schema())
