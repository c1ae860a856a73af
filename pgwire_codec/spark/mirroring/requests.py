"""Requests to a mirror about single tables: to resume one, and to replay its changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import TableError
from pgwire_codec.log import Log
from pgwire_codec.spark.mirroring.history import HISTORY_COLUMNS
from pgwire_codec.spark.mirroring.lake import Lake
from pgwire_codec.spark.mirroring.replay import check_keys
from pgwire_codec.spark.mirroring.row_columns import RowColumns
from pgwire_codec.spark.mirroring.status import REPLAYING, RESUMING, SET_ASIDE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def resume_table(
    spark: SparkSession,
    target: str,
    table: str,
    *,
    engine: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Have a mirror resume a table that is set aside, with its next micro-batch.

    The changes that the target does not have are read from the log. The mirror need not run.

    Parameters
    ----------
    spark : SparkSession
        The session.
    target, engine, storage_options
        As for :func:`mirror`.
    table : str
        ``schema.table``.

    Raises
    ------
    TableError
        When the table is not set aside. The hint lists those that are.
    """
    status = Lake.of(spark, target, engine, storage_options).status(spark)
    rows = status.read()
    aside = [name for name, row in rows.items() if row.state == SET_ASIDE]
    if table not in aside:
        raise TableError(
            f"table {table} is not set aside",
            hint=f"Tables that are set aside: {', '.join(aside) or 'none'}.",
        )
    status.write((rows | {table: replace(rows[table], state=RESUMING)}).values())


def replay_table(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    target: str,
    table: str,
    *,
    engine: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Have a mirror apply the changes of a table again, from its first dead letter on.

    Use it when the cause of the dead letters was mended, for example with another value of
    ``unrepresentable``. The mirror does it with its next micro-batch, or when it starts. It need
    not run. Afterwards, the rows are those that the table would have without dead letters. Only
    changes that still do not decode are dead letters.

    Parameters
    ----------
    spark : SparkSession
        The session.
    log : str, path or Log
        Location of the log, or the log.
    target, engine, storage_options
        As for :func:`mirror`.
    table : str
        ``schema.table``.

    Raises
    ------
    TableError
        When the table has no dead letters: the hint lists those that have some. Also when its rows
        are not found by a key, or the target has its history: changes that are applied again would
        be there twice.

    Notes
    -----
    The table is set aside instead if, since its first dead letter, its columns or its replica
    identity changed, or an update changed a key without sending all values (unchanged TOAST). Then
    a new copy of the table repairs the target.
    """
    status = Lake.of(spark, target, engine, storage_options).status(spark)
    rows = status.read()
    lacking = [name for name, row in rows.items() if row.dead_letters]
    if table not in lacking:
        raise TableError(
            f"table {table} has no dead letters",
            hint=f"Tables with dead letters: {', '.join(lacking) or 'none'}.",
        )
    row = rows[table]
    is_history = set(HISTORY_COLUMNS) <= set(row.row_columns or ())
    opened = log if isinstance(log, Log) else Log(os.fspath(log))
    check_keys(table, opened.relation(table).relation, RowColumns(is_history=is_history))
    status.write((rows | {table: replace(row, state=REPLAYING)}).values())
