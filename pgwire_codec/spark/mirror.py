"""mirror: the tables of a log as tables of a lake, by Spark's executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pgwire_codec.lake.evolution import Policy, TablePolicies
from pgwire_codec.lake.lakehouse import KEPT_SECONDS, Lake
from pgwire_codec.lake.masks import Masks
from pgwire_codec.lake.mirror_options import HOLD_SECONDS, MirroredBatch, MirrorOptions
from pgwire_codec.lake.mirroring import Mirror
from pgwire_codec.lake.requests import replay_table as replay
from pgwire_codec.lake.requests import resume_table as resume
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.lake.tables.target import WriteMode
from pgwire_codec.log import Log
from pgwire_codec.spark.runner import spark_runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mirror(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    target: str,
    tables: str | Sequence[str] = "*",
    *,
    checkpoint: str | None = None,
    every: str | float | None = None,
    once: bool = False,
    on_schema_change: Policy = "evolve",
    table_policies: Mapping[str, Policy] | None = None,
    storage_options: Mapping[str, str] | None = None,
    write_mode: WriteMode = "merge-on-read",
    keep: str | float = KEPT_SECONDS,
    masks: Mapping[str, str] | None = None,
    mask_key: bytes | None = None,
    soft_deletes: bool = False,
    commit_columns: bool = False,
    history: bool = False,
    dead_letters: bool = False,
    types: str = "native",
    numeric: str = "string",
    unrepresentable: str = "raise",
    on_error: str = "raise",
    max_bytes: int | None = None,
    replace: bool = False,
    hold: str | float = HOLD_SECONDS,
    report: Callable[[MirroredBatch], None] | None = None,
) -> Mirror:
    """Return a mirror of the tables of a log, as Delta or Iceberg tables.

    Or it appends their history to Parquet files. A table ``schema.table`` is at
    ``TARGET/schema/table``, or is ``CATALOG.schema.table`` for Iceberg. A micro-batch reads the log
    once, for all tables, and applies the changes of each as :func:`merge_into` does: in one commit,
    which records the last commit LSN. So each change is applied once, also after a failure. Spark
    runs the tasks, without a streaming query: the tables have their positions.

    Rows are identified by the replica identity: by its columns, or with ``REPLICA IDENTITY FULL``
    by the whole row. Rows of a table without replica identity are appended.

    A table that fails is set aside with its error, and the others go on. :func:`resume_table`
    continues it. After an error that may pass, it is tried again by itself.

    Parameters
    ----------
    spark : SparkSession
        The session, which must not be one of Spark Connect.
    log : str, path or Log
        Location of the log, or the log.
    target : str
        Folder of the tables, as path or URI, with or without ``delta:`` before it. Or
        ``iceberg:CATALOG`` or ``iceberg:CATALOG.NAMESPACE``, of a catalog of the session. Or
        ``parquet:`` and a folder, for histories only: there ``history`` is true. Its files are in
        partitions by ``commit_date``, the date of the commit in UTC.
    tables : str or sequence of str
        Names of tables, and patterns such as ``public.*``; by default all tables. New tables that
        match are mirrored from their first change on.
    checkpoint : str, optional
        Folder, as path or URI, whose file ``lsn`` is to contain the commit LSN up to which no table
        needs the log any more: for :class:`pgwire_codec.log.LsnFile`. Nothing else is read or kept
        there.
    every : str or float, optional
        Shortest time between two micro-batches, such as ``10 seconds``, or in seconds; each writes
        files of the tables that it changes. By default 1 second for a lake on a disk, and 10
        seconds for one in an object store or a catalog.
    once : bool
        Whether it ends when it has all changes that are in the log at its beginning.
    on_schema_change : {"evolve", "rename", "freeze", "fail"}
        What to do when a table's columns change. ``evolve``: the target follows. A new column is
        added, and is null in existing rows: the value of its DEFAULT is not in the log. A dropped
        column is kept, and is null in rows that are written from then on. Integers, floats and
        decimals become wider. A renamed column is a dropped and a new one: from PostgreSQL 15 on,
        another list of columns in a publication looks the same. ``rename``: as ``evolve``, but
        columns are renamed. It is for publications without lists of columns. Delta tables are
        written again when a column is renamed or becomes wider. ``freeze``: the columns of the
        target stay, and other columns of the table are left out. ``fail``: the table is set aside.
        Without ``freeze``, so is a table whose target cannot follow.
    table_policies : mapping of str to str, optional
        Other values of ``on_schema_change``, by the name of a table or a pattern of names such as
        ``public.*``. The first that matches counts.
    storage_options : mapping, optional
        Options of an object store, as for ``deltalake.DeltaTable``.
    write_mode : {"merge-on-read", "copy-on-write"}
        How rows of a new table are deleted: by deletion vectors, or by writing their files again,
        for readers without support for vectors. An existing table keeps its mode: it has vectors if
        its properties say so.
    keep : str or float
        Time for which old versions of a new table can be read, by default ``1 hour``: for readers
        that hold a version, and for RESTORE. Then the files are removed that only these have. It is
        in the table's properties.
    masks : mapping of str to str, optional
        Masks of columns, which are applied before anything is written: by name
        ``schema.table.column``, or by a pattern of such names as ``*.email``. ``drop`` leaves the
        column out. ``hash`` replaces a value by its HMAC-SHA-256, as 64 hexadecimal digits: of its
        text in UTF-8, or of its bytes; NULL remains NULL. ``constant:TEXT`` replaces all values,
        NULL, too. ``keep`` has no effect. The first that matches a column is the one that it has.
        A table is set aside if its rows were written with other masks, or if a masked column may
        have got another name.
    mask_key : bytes, optional
        Key of the hashes, of at least 16 bytes.
    soft_deletes : bool
        Whether rows that are deleted remain in the target, in their last state, with true in the
        column ``_is_deleted``. TRUNCATE removes them all the same, and so do later copies of the
        table. A row whose key changes is not a deleted one. A row that was deleted, and is in
        neither the target nor the log, has its key only.
    commit_columns : bool
        Whether rows have the columns ``_commit_lsn``, bigint, and ``_commit_time``, timestamp, of
        the transaction that changed them last. Rows from before this option have null.

        Neither option is for rows that are identified by all their values: such tables are set
        aside.
    history : bool
        Whether the targets get a row for each change, which is appended, in place of the rows of
        their tables. After the table's columns come ``_change``, string; ``_commit_lsn``, bigint;
        ``_commit_time``, timestamp; ``_seq``, bigint, the number of the change in its transaction;
        and ``_unchanged``, array of string. ``_change`` is ``insert``, ``update_preimage``,
        ``update_postimage`` or ``delete``, as in Delta's change data feed, or ``truncate``. A
        preimage has what the server sent of the old row: the key if it changed, or the whole row
        with ``REPLICA IDENTITY FULL``. A delete has as much. ``_unchanged`` are the columns whose
        large values an update did not send, which are null.
    dead_letters : bool
        Whether a change that does not decode is left out of its target, and recorded in the table
        ``_dead_letters`` of the lake (for Iceberg, ``_mirror.dead_letters``), with the columns of
        :func:`read_dead_letters`. The status of its table has the number of them. With masks, the
        message is not recorded, nor are values in errors. By default, the table is set aside.
        :func:`replay_table` applies the changes when the cause was mended.
    types, numeric, unrepresentable, on_error
        As of :class:`pgwire_codec.Decoder`. A table of which a value does not decode is set aside,
        except with ``on_error="skip"``, which leaves out the change, or with ``dead_letters``.
    max_bytes : int, optional
        Approximate bytes of messages of a micro-batch, by default of all that the log has.
    replace : bool
        Whether tables that have the changes of another log are replaced by those of this one, which
        should begin with a snapshot. By default, such a lake is an error: their positions cannot be
        compared.
    hold : str or float
        Time for which the LSN in ``checkpoint`` waits for a table that is set aside, so that its
        changes are not pruned; by default ``7 days``.
    report : callable, optional
        Is called after each micro-batch, in the mirror's thread, with its result: the number
        ``batch``, the commit LSN ``until``, and the status of tables ``changed``, and of all
        ``tables``.

    Returns
    -------
    Mirror
        Its method ``run`` does the work, and ``start`` has a thread do it, which ``stop`` ends.
        ``awaitTermination``, ``isActive`` and ``exception`` are as those of a streaming query.

    Raises
    ------
    OptionError
        For an invalid option.
    LogError
        When the log does not exist, or is damaged.
    TableError
        For a name that no relation has.

    Examples
    --------
    >>> mirror(spark, "shop.log", "delta:/lake/shop", once=True).run()  # doctest: +SKIP
    >>> running = mirror(spark, "shop.log", "iceberg:lake").start()  # doctest: +SKIP
    """
    options = MirrorOptions(
        once=once,
        every=every,
        policies=TablePolicies.parse(on_schema_change, table_policies),
        masks=Masks.parse(masks or {}, mask_key),
        row_columns=RowColumns(commit_columns, soft_deletes, history),
        dead_letters=dead_letters,
        types=types,
        numeric=numeric,
        unrepresentable=unrepresentable,
        on_error=on_error,
        max_bytes=max_bytes,
        replace=replace,
        hold=hold,
        report=report,
    )
    lake = Lake.parse(target, storage_options, spark, write_mode, keep)
    return Mirror(log, lake, tables, spark_runner(spark), options, checkpoint)


def resume_table(
    spark: SparkSession,
    target: str,
    table: str,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Have a mirror resume a table that is set aside, with its next micro-batch.

    The changes that the target does not have are read from the log. The mirror need not run.

    Parameters
    ----------
    spark : SparkSession
        The session.
    target, storage_options
        As for :func:`mirror`.
    table : str
        ``schema.table``.

    Raises
    ------
    TableError
        When the table is not set aside. The hint lists those that are.
    """
    resume(Lake.parse(target, storage_options, spark), table)


def replay_table(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    target: str,
    table: str,
    *,
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
    target, storage_options
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
    replay(Lake.parse(target, storage_options, spark), log, table)
