"""Dead letters of a log as a DataFrame, which Spark's tasks read by partition."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import OptionError
from pgwire_codec.log import Log, LogPartition
from pgwire_codec.log.dead_letters import DEAD_LETTERS, letters_in, names_of, to_arrow
from pgwire_codec.log.relations import select_relations
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema, spark_schema
from pgwire_codec.spark.options import parse_options
from pgwire_codec.spark.partitions import plan_log
from pgwire_codec.spark.tasks import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Options of ``format("pgoutput")`` that select messages, and decide which values decode.
_OPTIONS: Final = (
    "startingLsn", "endingLsn", "startingTimestamp", "endingTimestamp", "types", "numeric",
    "unrepresentable", "maxPartitionBytes",
)  # fmt: skip


def read_dead_letters(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    tables: str | Sequence[str] | None = None,
    **options: str,
) -> DataFrame:
    """Read the messages of a log that ``onError=skip`` leaves out, each with its error.

    With the same options, ``format("pgoutput")`` with ``onError=skip`` has all other changes. Each
    task reads a part of the log.

    Parameters
    ----------
    spark : SparkSession
        The session; also one of Spark Connect.
    log : str, path or Log
        Location of the log, or the log.
    tables : str or sequence of str, optional
        Names of tables, and patterns such as ``public.*``. By default the messages of all tables,
        and those that name none.
    **options
        Options of ``format("pgoutput")``: ``startingLsn``, ``endingLsn``, ``startingTimestamp``,
        ``endingTimestamp``, ``types``, ``numeric``, ``unrepresentable`` and ``maxPartitionBytes``.

    Returns
    -------
    DataFrame
        A row for each message, with the columns of :func:`pgwire_codec.log.dead_letters`:
        ``ordinal``, ``lsn``, ``commit_lsn``, ``commit_time``, ``after_lsn``, ``xid``, ``table``,
        ``relation_oid``, ``code``, ``error``, ``hint`` and ``data``. Rows are not ordered:
        ``ordinal`` is the order.

    Raises
    ------
    OptionError
        For an invalid option.
    LogError
        When the log does not exist, or is damaged.
    TableError
        For a name that no relation has.
    """
    allowed = {name.lower() for name in _OPTIONS}
    if unknown := sorted(name for name in options if name.lower() not in allowed):
        raise OptionError(
            f"read_dead_letters has no option {', '.join(unknown)}",
            hint=f"Its options are {', '.join(_OPTIONS)}.",
        )
    opened = log if isinstance(log, Log) else Log(os.fspath(log))
    # With a table, values are decoded to the types of its columns.
    of_a_table = {"path": opened.uri, "table": "*", "onError": "skip"}
    chosen = parse_options(options | of_a_table)
    scope = opened.relations_at(chosen.ending_lsn)
    names = names_of(scope)
    oids = None
    if tables is not None:
        listed = [tables] if isinstance(tables, str) else tables
        oids = select_relations(scope, lambda: opened.versions, listed)
    plan = plan_log(opened, chosen, chosen.starting_lsn, chosen.ending_lsn, oids)
    rows = [(pickle.dumps(partition),) for partition in plan.partitions]
    decoder, schema = chosen.decoder, spark_arrow_schema(DEAD_LETTERS)

    def read(batches: Batches) -> Batches:
        for pickled in (row for batch in batches for row in batch.column(0)):
            partition: LogPartition = pickle.loads(pickled.as_buffer())
            if letters := letters_in(partition, decoder, oids):
                yield cast_batch(to_arrow(letters, names).columns, schema)

    # A task reads one partition, and is sent no other.
    partitions = spark.createDataFrame(rows, "partition binary").coalesce(1)
    spread = partitions.repartition(max(len(rows), 1))
    return map_in_arrow(spread, read, spark_schema(DEAD_LETTERS))
