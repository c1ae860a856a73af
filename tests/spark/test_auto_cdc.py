"""The recipe for AUTO CDC: a pipeline of Spark applies the changes of a log to a table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.support import docs, spark_logs
from tests.support.histories import KEYS, VALUES, History, to_messages
from tests.support.lakehouse import jar
from tests.support.servers import database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark Connect listens on one port: what starts it runs in one process, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("connect")]

PAGE = docs.Page(docs.PAGES / "howto" / "auto-cdc.md")

#: AUTO CDC merges into a table, and neither Delta nor Iceberg has a release for Spark 4.3. Spark's
#: own tests have a catalog of tables in memory that can; the newest jar of them is that of 4.2.
JAR = "org.apache.spark:spark-catalyst_2.13:4.2.0:jar:tests"
CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"

#: A pipeline in addition to the page's.
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from pgwire_codec.spark import auto_cdc_rows

spark = SparkSession.active()
log = spark.readStream.format("pgoutput").option("table", "public.t").load({log!r})
upserts_and_deletes = auto_cdc_rows(log, keys=["shelf", "id"])


@dp.temporary_view
def row_changes():
    return upserts_and_deletes


dp.create_streaming_table("lake.db.rows")
dp.create_auto_cdc_flow(
    target="lake.db.rows",
    source="row_changes",
    keys=["shelf", "id"],
    sequence_by="struct(_commit_lsn, _seq)",
    apply_as_deletes="_op = 'D'",
    except_column_list=["_op", "_commit_lsn", "_seq"],
)


@dp.materialized_view(name="result", format="parquet")
def result():
    return spark.read.table("lake.db.rows")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `spark-pipelines` runs, with a catalog `lake` that it can merge into."""
    for module in ("pyspark", "grpc", "yaml"):
        pytest.importorskip(module, reason="needs pyspark[pipelines]")
    import pyspark
    from pyspark import pipelines

    if not hasattr(pipelines, "create_auto_cdc_flow"):
        pytest.skip("Spark 4.3 and later have AUTO CDC")

    settings = {
        "spark.driver.extraClassPath": jar(JAR),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.catalog.lake": CATALOG,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
        "spark.ui.enabled": "false",
    }
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in settings.items()), "utf-8"
    )
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # Spark looks for data sources in folders, and does not find editable installs.
    path = os.pathsep.join([str(docs.ROOT), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return tmp_path


def test_the_page_and_a_random_history(
    pg18: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is true; and with REPLICA IDENTITY FULL, AUTO CDC leaves the table's rows: moved,
    toasted, deleted. In one run of both pipelines, which takes its time to start."""
    history = History(1, full=True)
    for number in range(60):
        history.transaction(number % 10, 6)
    messages = to_messages(history.changes, full=True)
    path = spark_logs.write(folder / "log", messages, part_bytes=2000, flushes=20)
    beside = folder / "transformations" / "rows.py"
    beside.parent.mkdir()
    beside.write_text(PIPELINE.format(log=path), "utf-8")
    with database(pg18) as made:
        monkeypatch.setenv("DSN", made.dsn)
        docs.run(PAGE, folder)
    rows = pq.read_table(folder / "warehouse" / "result").to_pylist()
    found = {
        tuple(row[name] for name in KEYS): {name: row[name] for name in VALUES} for row in rows
    }
    expected = history.expected()
    for row in expected.values():
        row["tags"] = None if row["tags"] is None else str(row["tags"])
    assert len(found) == len(rows)
    assert found == expected


def rows_of(spark: SparkSession, history: History) -> DataFrame:
    spark_api: Any = pytest.importorskip("pgwire_codec.spark")
    changes = spark.createDataFrame(history.changes, history.schema)
    rows: DataFrame = spark_api.auto_cdc_rows(changes, list(KEYS))
    return rows


def test_a_key_that_changes_is_a_delete_and_an_upsert(spark: SparkSession) -> None:
    history = History(2, full=True)
    history.insert((1, 1))
    history.update((1, 1), (1, 2))
    history.delete((1, 2))
    rows = rows_of(spark, history).orderBy("_seq", "id").collect()
    assert [(row["id"], row["_op"], row["_seq"]) for row in rows] == [
        (1, "U", 0),
        (1, "D", 1),
        (2, "U", 1),
        (2, "D", 2),
    ]


def test_the_relation_is_passed_on(spark: SparkSession) -> None:
    spark_api: Any = pytest.importorskip("pgwire_codec.spark")
    history = History(2, full=True)
    history.insert((1, 1))
    history.update((1, 1), (1, 2))
    changes = spark.createDataFrame(
        [(*change, 16384) for change in history.changes], f"{history.schema}, _relation_oid long"
    )
    rows = spark_api.auto_cdc_rows(changes, list(KEYS))
    assert rows.columns == [*KEYS, *VALUES, "_op", "_commit_lsn", "_seq", "_relation_oid"]
    assert {row["_relation_oid"] for row in rows.collect()} == {16384}


def test_what_auto_cdc_would_get_wrong_stops_it(spark: SparkSession) -> None:
    """Unchanged TOAST without an old row, and a truncate."""
    toast = History(3)
    toast.insert((1, 1))
    while toast.changes[-1][-2] is None:
        toast.update((1, 1), (1, 1))
    with pytest.raises(Exception, match=r"column \w+ was not sent .* REPLICA IDENTITY FULL"):
        rows_of(spark, toast).collect()
    truncate = History(4)
    truncate.insert((1, 1))
    truncate.truncate()
    with pytest.raises(Exception, match="AUTO CDC cannot apply a truncate"):
        rows_of(spark, truncate).collect()
    with pytest.raises(ValueError, match="AUTO CDC finds rows by their key"):
        pytest.importorskip("pgwire_codec.spark").auto_cdc_rows(None, None)
