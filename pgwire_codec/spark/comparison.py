"""compare: whether the tables of a lake have the rows that the server's tables have, on Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pgwire_codec.comparing.comparison_run import (
    JOBS,
    MAX_ROWS,
    WAIT,
    ComparisonOptions,
    ComparisonRun,
)
from pgwire_codec.comparing.result import Comparison
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.log import Log
from pgwire_codec.options import DecoderOptions
from pgwire_codec.spark.runner import spark_runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compare(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    target: str,
    dsn: str,
    tables: str | Sequence[str] = "*",
    *,
    publication: str | Sequence[str] = (),
    wait: float = WAIT,
    jobs: int = JOBS,
    max_rows: int = MAX_ROWS,
    storage_options: Mapping[str, str] | None = None,
    types: str = "native",
    numeric: str = "string",
    unrepresentable: str = "raise",
) -> Comparison:
    """Compare the tables that :func:`mirror` keeps with those of the server.

    Neither writes nor the mirror need to stop, and nothing is changed on either side. The rows of
    all tables are read in one snapshot of the server, beside the newest version of each target.

    A table is ``equal`` if all its rows were. Under writes, a target and a snapshot are of
    different times. So a row that differs is looked up in the log: if it changed between the
    target's LSN and the snapshot's, it is compared again in a new snapshot, when the target has the
    change. Each row of an ``equal`` table was then found in both in one of these snapshots, not
    necessarily all of them in the same one. A row that differs, although the log has no change of
    it, makes the table ``differs``.

    Numbers of rows and checksums are computed on Spark's executors on both sides, and only rows of
    hash buckets that differ are then matched. Rows come from the server by COPY, over connections
    of the executors, and are decoded as those of the log are. Small tables are compared in the
    driver. Checksums that the server computes
    would need less network, but the same text of each value on both sides, and one core for each
    table. A difference remains unseen with a chance of about 1 in 2 to the power of 64.

    States of a table:

    - ``equal``: the target has the server's rows, as often as the server has them.
    - ``equal, except: COLUMN, …``: so it is without these columns, which cannot be compared.
      ``uncompared`` has the reasons: a mask, or one side lacks the column.
    - ``differs``: it does not. The rows are counted, and some shown.
    - ``missing``: the target does not have the table, even after ``wait``.
    - ``behind``: rows differ that the log explains, or of whose table the server has changes that
      are not in the log. The target did not get them within ``wait``.
    - ``changing``: rows differ that changed again before each snapshot.
    - ``set aside``: the mirror has set the table aside, so it is not compared.
    - ``gone``: the server has no table of the name, or no publication publishes it.
    - ``failed``: an error prevented the comparison.

    All columns are compared that the log has of a table, generated ones, too. A column that the
    target lacks counts as null. Rows that soft deletes keep are left out. So is a published table
    without rows that the log does not have.

    Parameters
    ----------
    spark : SparkSession
        The session, which must not be one of Spark Connect.
    log : str, path or Log
        Location of the log that is mirrored, or the log.
    target : str
        Folder of Delta tables, or catalog of Iceberg tables, as for :func:`mirror`.
    dsn : str
        libpq connection string or URI of the server, which must not be a standby. The executors
        connect to it, too. The role must be able to read all rows. With the right to use the
        replication slot, a server without new changes is recognized while no capture runs.
    tables : str or sequence of str
        Names of tables, and patterns such as ``public.*``; by default all tables of the log.
    publication : str or sequence of str
        Publications of the log; by default those of its last session. Their tables that the log
        does not have are compared, too.
    storage_options
        As for :func:`mirror`.
    wait : float
        Seconds from the beginning for the log and the target to reach the server. Each row that
        differs is compared at least twice, unless its verdict is clear.
    jobs : int
        Number of connections that read a table at once, at most.
    max_rows : int
        Number of rows of a table that are shown.
    types, numeric, unrepresentable
        As for :func:`mirror`.

    Returns
    -------
    Comparison
        Its ``tables`` have the state of each, and ``is_equal`` is true if all are ``equal``.

    Raises
    ------
    CaptureError
        When the server cannot be read.
    LogError
        When the log does not exist, or is damaged.
    OptionError
        For an invalid option.
    TableError
        For a name that no relation has.

    Notes
    -----
    The server keeps old row versions while the snapshot is open, as for any long query: while the
    tables are read and, if rows differ, until the log reaches the snapshot. A table that is altered
    or truncated meanwhile is read again.
    """
    decoder = DecoderOptions(
        types=types, numeric=numeric, unrepresentable=unrepresentable, arrow_types=ROW_TYPES
    )
    chosen = ComparisonOptions(tables, publication, wait, jobs, max_rows, decoder)
    lake = Lake.parse(target, storage_options, spark)
    return ComparisonRun(spark_runner(spark), log, lake, dsn, chosen).run()
