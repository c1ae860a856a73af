"""mirror: the streaming query that keeps the tables of a log as tables of a lake."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import OptionError
from pgwire_codec.log import Log
from pgwire_codec.spark.mirroring.batches import STOPPED, MirrorBatches, MirroredBatch
from pgwire_codec.spark.mirroring.evolution import POLICIES, Policy
from pgwire_codec.spark.mirroring.lake import Lake
from pgwire_codec.spark.mirroring.masks import Masks
from pgwire_codec.spark.mirroring.row_columns import RowColumns
from pgwire_codec.spark.mirroring.status import CURRENT, TableStatus
from pgwire_codec.spark.selection import TableNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Number of tables that are merged at once.
PARALLELISM: Final = 4

#: Options of ``format("pgoutput")`` that a mirror sets itself.
_OWN_OPTIONS: Final = frozenset(
    name.lower()
    for name in (
        "path", "table", "relationOid", "tables", "columns", "startingLsn", "endingLsn",
        "startingTimestamp", "endingTimestamp", "style", "before", "onRelationChange",
        "withRelationOid", "checkIdentity", "typesOf",
    )
)  # fmt: skip

#: Setting with which ``availableNow`` makes several micro-batches of a source of Spark 4.0 and 4.1.
#: Otherwise it ends after one, which may be an unfinished one.
_MANY_BATCHES: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"

#: Options for packed rows and streams, which tables that are read from the log do not have.
_PACKED: Final = frozenset(("maxbytespertrigger", "stagingpath"))

#: The option ``onError`` of packed rows, by that of a mirror: a table with an error is set aside.
_ON_ERROR: Final = {"raise": "table", "skip": "skip"}


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Options of a mirror, which :func:`mirror` describes.

    Attributes
    ----------
    checkpoint, every, once, on_schema_change, engine, parallelism, storage_options, report
        The arguments of :func:`mirror`.
    masks : Masks
    row_columns : RowColumns
    dead_letters : bool
        As the argument of :func:`mirror`.
    source : mapping of str to str
        Options of ``format("pgoutput")``.

    Raises
    ------
    OptionError
        For an invalid option.
    """

    checkpoint: str
    every: str | None = None
    once: bool = False
    on_schema_change: Policy = "evolve"
    engine: str | None = None
    parallelism: int = PARALLELISM
    storage_options: Mapping[str, str] | None = None
    report: Callable[[MirroredBatch], None] | None = None
    masks: Masks = field(default_factory=Masks)
    row_columns: RowColumns = field(default_factory=RowColumns)
    dead_letters: bool = False
    source: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.once and self.every is not None:
            raise OptionError("`once` and `every` exclude one another")
        if self.on_schema_change not in POLICIES:
            raise OptionError(
                f"on_schema_change must be one of {', '.join(POLICIES)}, not "
                f"{self.on_schema_change!r}"
            )
        if self.parallelism < 1:
            raise OptionError(f"parallelism must be a number above 0, not {self.parallelism}")
        own = [name for name in self.source if name.lower() in _OWN_OPTIONS]
        if own:
            raise OptionError(f"a mirror sets the option {', '.join(own)} itself")
        if self._on_error not in _ON_ERROR:
            raise OptionError(
                f"onError must be one of {', '.join(_ON_ERROR)}, not {self._on_error!r}"
            )
        if self.dead_letters and self._on_error == "skip":
            raise OptionError(
                "`dead_letters=True` and onError=skip exclude one another",
                hint="With dead letters, changes that do not decode are left out, too.",
            )

    @property
    def of_tables(self) -> dict[str, str]:
        """Options with which the changes of a table are read by themselves."""
        chosen = {name: value for name, value in self.source.items() if name.lower() not in _PACKED}
        return chosen | ({"onError": "skip"} if self.dead_letters else {})

    @property
    def of_stream(self) -> dict[str, str]:
        """Options with which the changes of all tables are read."""
        chosen = {name: value for name, value in self.source.items() if name.lower() != "onerror"}
        return chosen | {"onError": "collect" if self.dead_letters else _ON_ERROR[self._on_error]}

    @property
    def _on_error(self) -> str:
        given = [value for name, value in self.source.items() if name.lower() == "onerror"]
        return given[-1] if given else "raise"


@dataclass(frozen=True, slots=True)
class Mirror:
    """A running mirror.

    Attributes
    ----------
    query : StreamingQuery
    batches : MirrorBatches
        Its function.
    """

    query: StreamingQuery
    batches: MirrorBatches

    def stop(self) -> None:
        """Stop the query after the running micro-batch."""
        self.batches.stop()
        self.query.stop()

    @property
    def failure(self) -> str | None:
        """Text of the error that ended the query, if one did."""
        error = self.query.exception()
        return None if error is None or STOPPED in str(error) else str(error)


def mirror(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    target: str,
    tables: str | Sequence[str] = "*",
    *,
    checkpoint: str,
    every: str | None = None,
    once: bool = False,
    on_schema_change: Policy = "evolve",
    engine: str | None = None,
    parallelism: int = PARALLELISM,
    storage_options: Mapping[str, str] | None = None,
    masks: Mapping[str, str] | None = None,
    mask_key: bytes | None = None,
    soft_deletes: bool = False,
    commit_columns: bool = False,
    history: bool = False,
    dead_letters: bool = False,
    report: Callable[[MirroredBatch], None] | None = None,
    **options: str,
) -> StreamingQuery:
    """Keep the tables of a log as Delta or Iceberg tables, by one streaming query.

    Or append their history to Parquet files. A table ``schema.table`` is at
    ``TARGET/schema/table``, or is ``CATALOG.schema.table`` for Iceberg. A micro-batch reads the log
    once, for all tables, and applies the changes of each as :func:`merge_into` does: in one commit,
    which records the last commit LSN. So each change is applied once, also after a failure, and
    after a restart with another checkpoint.

    Rows are identified by the replica identity: by its columns, or with ``REPLICA IDENTITY FULL``
    by the whole row. Rows of a table without replica identity are appended.

    A table that fails is set aside with its error, and the others go on. :func:`resume_table`
    continues it.

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
    checkpoint : str
        Folder of the query's checkpoint.
    every : str, optional
        Time between two micro-batches, such as ``10 seconds``; by default as soon as possible.
    once : bool
        Whether the query ends when it has all changes that are in the log at its beginning.
    on_schema_change : {"evolve", "rename", "freeze", "fail"}
        What to do when a table's columns change. ``evolve``: the target follows. A new column is
        added, and is null in existing rows: the value of its DEFAULT is not in the log. A dropped
        column is kept, and is null in rows that are written from then on. Integers, floats and
        decimals become wider, unless the engine is delta-rs. A renamed column is a dropped and a
        new one: from PostgreSQL 15 on, another list of columns in a publication looks the same.
        ``rename``: as ``evolve``, but columns are renamed, unless the engine is delta-rs. It is for
        publications without lists of columns. ``freeze``: the columns of the target stay, and other
        columns of the table are left out. ``fail``: the table is set aside. Without ``freeze``, so
        is a table whose target cannot follow.
    engine : {"delta-spark", "delta-rs"}, optional
        As for :func:`merge_into`, of Delta tables. By default delta-spark in a session that has
        Delta.
    parallelism : int
        Number of tables that are merged at once. Set ``spark.scheduler.mode`` to ``FAIR``, so that
        they share the executors.
    storage_options : mapping, optional
        As for :func:`merge_into`.
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
    report : callable, optional
        Is called after each micro-batch, in the query's thread, with its result: the number
        ``batch``, the commit LSN ``until``, and the status of tables ``changed``, and of all
        ``tables``.
    **options
        Other options of ``format("pgoutput")``, such as ``stagingPath``. A table of which a value
        does not decode is set aside, except with ``onError=skip``, which leaves out the change,
        or with ``dead_letters``.

    Returns
    -------
    StreamingQuery

    Raises
    ------
    OptionError
        For an invalid option.
    LogError
        When the log does not exist, or is damaged.
    TableError
        For a name that no relation has.
    """
    chosen = MirrorOptions(
        checkpoint=checkpoint,
        every=every,
        once=once,
        on_schema_change=on_schema_change,
        engine=engine,
        parallelism=parallelism,
        storage_options=storage_options,
        masks=Masks.parse(masks or {}, mask_key),
        row_columns=RowColumns(commit_columns, soft_deletes, history),
        dead_letters=dead_letters,
        report=report,
        source=options,
    )
    return start_mirror(spark, log, target, tables, chosen).query


def start_mirror(
    spark: SparkSession,
    log: str | os.PathLike[str] | Log,
    target: str,
    tables: str | Sequence[str],
    options: MirrorOptions,
) -> Mirror:
    """Start a mirror; see :func:`mirror`."""
    lake = Lake.of(spark, target, options.engine, options.storage_options)
    row_columns = options.row_columns
    if lake.has_histories_only:
        row_columns = replace(row_columns, is_history=True)
    path = log.uri if isinstance(log, Log) else os.fspath(log)
    source = Log(path)
    options.masks.check_names(source)
    names = [each.strip() for each in tables.split(",")] if isinstance(tables, str) else tables
    batches = MirrorBatches(
        path,
        names,
        lake,
        options.on_schema_change,
        options.masks,
        row_columns,
        options.of_tables,
        options.parallelism,
        options.report or (lambda batch: None),
        options.dead_letters,
    )
    batches.resume(spark)
    source.refresh()
    current = TableNames.parse(names).held_in(source.relations_at())
    rows = lake.status(spark).read()
    stream = spark.readStream.format("pgoutput").options(
        **options.of_stream,
        path=path,
        tables=",".join(names),
        onRelationChange="replace",
        startingLsn=str(_first_lsn([rows[name] for name in current if name in rows], source)),
    )
    writer: Any = stream.load().writeStream.foreachBatch(batches)
    writer = writer.option("checkpointLocation", options.checkpoint)
    if options.once:
        spark.conf.set(_MANY_BATCHES, "true")
        writer = writer.trigger(availableNow=True)
    elif options.every is not None:
        writer = writer.trigger(processingTime=options.every)
    return Mirror(writer.start(), batches)


def _first_lsn(rows: Sequence[TableStatus], log: Log) -> int:
    """Return the commit LSN after which a query without a checkpoint begins.

    It is the one at which all tables are whole. The changes before it are in the targets, or are
    read for a table by itself.
    """
    lsns = [row.whole_lsn or 0 for row in rows if row.state in CURRENT]
    return max(min(lsns, default=0), log.begin.lsn)
