"""The demo end to end: a real server, a real walsender, real Spark, compared with the server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pgwire_codec import log
from pgwire_codec.demo import shop, steps, workload
from tests.support import shop_rows
from tests.support.keyed_rows import AppliedTable, differences
from tests.support.servers import database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def messages(pg18: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pa.Table]:
    """The shop's changes, captured; the shop is still on the server."""
    folder = tmp_path_factory.mktemp("shop") / "log"
    shop.create(pg18.dsn, drop_existing=True)
    steps.capture_until_now(pg18.dsn, folder)
    workload.run(pg18.dsn)
    steps.capture_until_now(pg18.dsn, folder)
    yield pa.Table.from_batches(log.Log(folder).messages())
    shop.drop(pg18.dsn)


def decoded(
    spark: SparkSession, messages: pa.Table, partitions: int
) -> dict[str, list[dict[str, Any]]]:
    from pgwire_codec.spark import plan_changes

    rows = messages.select(["ordinal", "data", "lsn"]).to_pylist()
    rdd = spark.sparkContext.parallelize([tuple(row.values()) for row in rows], partitions)
    planned = plan_changes(
        spark.createDataFrame(rdd, "ordinal long, data binary, lsn long"), lsn="lsn"
    )
    assert planned.carry.pending == []
    found = {}
    for table in shop.KEYS:
        changes = planned.decode(f"{shop.SCHEMA}.{table}").toArrow().to_pylist()
        found[table] = sorted(changes, key=lambda row: (row["_commit_lsn"], row["_seq"]))
    return found


@pytest.fixture(scope="module")
def one_partition(spark: SparkSession, messages: pa.Table) -> dict[str, list[dict[str, Any]]]:
    return decoded(spark, messages, 1)


def test_one_partition_gives_the_servers_tables(
    one_partition: dict[str, list[dict[str, Any]]], pg18: Any
) -> None:
    for table, changes in one_partition.items():
        applied = AppliedTable(shop.KEYS[table])
        applied.apply(changes)
        server = shop_rows.typed_rows(pg18.dsn, table)
        assert len(server) > 0
        assert differences(applied, server) == []


@pytest.mark.parametrize("partitions", [2, 32])
def test_partitions_do_not_matter(
    spark: SparkSession,
    messages: pa.Table,
    one_partition: dict[str, list[dict[str, Any]]],
    partitions: int,
) -> None:
    assert decoded(spark, messages, partitions) == one_partition


def test_the_workload_has_every_kind_of_message(messages: pa.Table) -> None:
    tags = {bytes(data[:1]) for data in messages.column("data").to_pylist()}
    assert tags >= {bytes([tag]) for tag in b"BCRYIUDTSEcAbPKr"}


def test_a_difference_is_found(one_partition: dict[str, list[dict[str, Any]]], pg18: Any) -> None:
    applied = AppliedTable(shop.KEYS["orders"])
    applied.apply(one_partition["orders"])
    server = shop_rows.typed_rows(pg18.dsn, "orders")
    lost, changed, *rest = server
    more = {**changed, "id": -1}
    found = differences(applied, [{**changed, "state": "lost"}, more, *rest])
    assert {key for key, _, _ in found} == {(lost["id"],), (changed["id"],), (-1,)}


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pgwire_codec.cli import main; main()", "demo", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )


@pytest.mark.parametrize("runner", ["local", pytest.param("spark", marks=pytest.mark.thorough)])
def test_on_a_server_of_ones_own(pg16: Any, tmp_path: Path, runner: str) -> None:
    output = tmp_path / "out"
    with database(pg16) as own:
        done = run_demo("--dsn", own.dsn, "--output", str(output), "--runner", runner)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "\n0 differences" in done.stdout
        order = re.findall(
            r"^ (as it came in|on the server now|in the lake) +(.*)$", done.stdout, re.M
        )
        states = [row.split()[2] for _, row in order]
        assert len(order) == 3
        assert states[0] != states[1] == states[2] == "returned"
        folders = (output / "lake" / shop.SCHEMA).iterdir()
        tables = {f"{shop.SCHEMA}.{folder.name}" for folder in folders}
        assert tables == {*shop.TABLES, shop.REVIEWS}
        for table in tables:
            assert re.search(rf"{table} .* equal", done.stdout)
        # The lake had these tables when they got a column: the mirror ran meanwhile.
        assert f"{shop.SCHEMA}.orders: add column channel string\n" in done.stderr
        assert f"{shop.SCHEMA}.customers: add column score double\n" in done.stderr
        kept = log.Log(output / "log")
        assert len(kept.segments) > 1
        assert log.verify(output / "log").is_sound
        left = own.query(f"SELECT to_regnamespace('{shop.SCHEMA}'), count(*) FROM pg_publication")
        assert left == [(None, 0)]
        again = run_demo("--dsn", own.dsn, "--output", str(output))
        assert again.returncode == 2
        assert "is not empty" in again.stderr
        own.execute(f"CREATE SCHEMA {shop.SCHEMA}")
        occupied = run_demo("--dsn", own.dsn)
        assert occupied.returncode == 4
        assert "already exists" in occupied.stderr
        assert own.query(f"SELECT to_regnamespace('{shop.SCHEMA}') IS NULL") == [(False,)]
