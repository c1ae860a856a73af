"""A streaming query that fails once, in a process that may be killed.

``python -m tests.support.streaming_job LOG TARGET CHECKPOINT SEED follow|finish`` appends the
changes of a log to the Delta table TARGET/changes, and merges them into TARGET/merged: for
ever, or until it has them all.
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from pgwire_codec.demo.steps import local_spark
from pgwire_codec.spark import merge_into
from tests.support.histories import KEYS

STEPS = ("append", "merge")


class Flaky:
    """Applies batches, and fails after a step of the first."""

    def __init__(self, target: str, seed: int) -> None:
        self._target = target
        self._fails: str | None = Random(seed).choice(STEPS)

    def apply(self, batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        append(batch, f"{self._target}/changes", batch_id)
        self._done("append")
        merge_into(batch, f"{self._target}/merged", list(KEYS))
        self._done("merge")
        batch.unpersist()

    def _done(self, step: str) -> None:
        if step == self._fails:
            self._fails = None
            raise RuntimeError(f"failed after the {step}")


def append(batch: DataFrame, target: str, batch_id: int) -> None:
    """Append a batch to a Delta table, unless its log records that batch."""
    if deltalake.DeltaTable.is_deltatable(target):
        applied = deltalake.DeltaTable(target).transaction_version("append")
        if applied is not None and applied >= batch_id:
            return
    transaction = deltalake.Transaction("append", batch_id)
    deltalake.write_deltalake(
        target,
        batch.toArrow(),
        mode="append",
        commit_properties=deltalake.CommitProperties(app_transactions=[transaction]),
    )


def main(log: str, target: str, checkpoint: str, seed: str, how: str) -> None:
    with local_spark() as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        changes = (
            spark.readStream.format("pgoutput")
            .option("path", log)
            .option("table", "public.t")
            .option("maxBytesPerTrigger", "2k")
            .load()
        )
        flaky: Any = Flaky(target, int(seed))
        trigger: dict[str, Any] = {"processingTime": "100 milliseconds"}
        if how == "finish":
            trigger = {"availableNow": True}
        while True:
            query = (
                changes.writeStream.foreachBatch(flaky.apply)
                .option("checkpointLocation", checkpoint)
                .trigger(**trigger)
                .start()
            )
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if "RuntimeError: failed" not in str(error):
                    raise
                print("failed, and again", flush=True)
            else:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
