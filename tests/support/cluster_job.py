"""Reads a log on a cluster or Spark Connect: ``python -m tests.support.cluster_job MASTER FOLDER``.

``FOLDER/log`` is the log, and MASTER that of the cluster, or ``connect`` for a local Spark Connect.
The last line of the output is JSON: the IDs of the rows of public.a that each way reads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pgwire_codec.log import Log
from pgwire_codec.spark import decode_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if master == "connect":
        builder = builder.config("spark.connect.grpc.binding.address", "127.0.0.1")
        return builder.remote("local[2]").getOrCreate()
    path = ":".join(sys.path)
    options = {"spark.driver.host": "127.0.0.1", "spark.executorEnv.PYTHONPATH": path}
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.master(master).getOrCreate()


def ids(rows: DataFrame) -> list[int]:
    return sorted(row["id"] for row in rows.select("id").collect())


def main(master: str, folder: str) -> None:
    log, target = f"{folder}/log", f"{folder}/rows"
    spark = session(master)
    options = {"path": log, "table": "public.a", "maxPartitionBytes": "1"}
    batch = spark.read.format("pgoutput").options(**options).load()
    stream = spark.readStream.format("pgoutput").options(**options).load()
    query = (
        stream.select("id")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    messages = [
        (ordinal, data)
        for records in Log(Path(log)).messages()
        for ordinal, data in zip(
            records.column("ordinal").to_pylist(), records.column("data").to_pylist(), strict=True
        )
    ]
    frame = spark.createDataFrame(messages, "ordinal long, data binary").repartition(3)
    found = {
        "batch": ids(batch),
        "stream": ids(spark.read.parquet(target)),
        "decode_changes": ids(decode_changes(frame, table="public.a")),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
