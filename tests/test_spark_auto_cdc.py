"""The recipe for AUTO CDC: a pipeline of Spark applies the changes of a log to a table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests import spark_logs
from tests.changes import KEYS, VALUES, History, to_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

#: AUTO CDC merges into a table, and neither Delta nor Iceberg has a release for Spark 4.3. Spark's
#: own tests have a catalog of tables in memory that can; the newest jar of them is that of 4.2.
JAR = "org.apache.spark:spark-catalyst_2.13:4.2.0:jar:tests"
CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"

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


dp.create_streaming_table("memory.db.rows")
dp.create_auto_cdc_flow(
    target="memory.db.rows",
    source="row_changes",
    keys=["shelf", "id"],
    sequence_by="struct(_commit_lsn, _seq)",
    apply_as_deletes="_op = 'D'",
    except_column_list=["_op", "_commit_lsn", "_seq"],
)


@dp.materialized_view(name="result", format="parquet")
def result():
    return spark.read.table("memory.db.rows")
"""


@pytest.fixture(scope="module")
def jar() -> Path:
    """Spark's jar of tests, from the local Maven repository; Maven fetches it if need be."""
    group, artifact, version, _, classifier = JAR.split(":")
    folder = Path.home() / ".m2" / "repository" / group.replace(".", "/") / artifact / version
    path = folder / f"{artifact}-{version}-{classifier}.jar"
    if not path.exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip(f"needs {path.name}, or mvn to fetch it")
        fetch = [maven, "-q", "dependency:get", f"-Dartifact={JAR}", "-Dtransitive=false"]
        done = subprocess.run(fetch, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return path


def run_pipeline(folder: Path, log: str, jar: Path) -> subprocess.CompletedProcess[str]:
    """Run the recipe in a folder, as `spark-pipelines` does it; the result is a Parquet table."""
    import pyspark

    conf = folder / "conf"
    conf.mkdir()
    settings = {
        "spark.driver.extraClassPath": jar,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalog.memory": CATALOG,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    (conf / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in settings.items()), "utf-8"
    )
    (folder / "spark-pipeline.yaml").write_text(
        f"name: rows\nstorage: {(folder / 'storage').as_uri()}\n"
        "libraries:\n  - glob:\n      include: pipeline.py\n",
        "utf-8",
    )
    (folder / "pipeline.py").write_text(PIPELINE.format(log=log), "utf-8")
    spark_home = Path(pyspark.__file__).parent
    return subprocess.run(
        [spark_home / "bin" / "spark-pipelines", "run"],
        cwd=folder,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            # Spark looks for data sources in folders, and does not find editable installs.
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_recipe(jar: Path, tmp_path: Path) -> None:
    """With REPLICA IDENTITY FULL, AUTO CDC leaves the table's rows: moved, toasted, deleted."""
    for module in ("pyspark", "grpc", "yaml"):
        pytest.importorskip(module, reason="needs pyspark[pipelines]")
    history = History(1, full=True)
    for number in range(60):
        history.transaction(number % 10, 6)
    messages = to_messages(history.changes, full=True)
    path = spark_logs.write(tmp_path / "log", messages, part_bytes=2000, flushes=20)
    done = run_pipeline(tmp_path, path, jar)
    assert done.returncode == 0, done.stdout
    rows = pq.read_table(tmp_path / "warehouse" / "result").to_pylist()
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
