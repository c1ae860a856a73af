"""mirror: the tables of a log as tables of a lake, without Spark."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pgwire_codec.errors import OptionError
from pgwire_codec.lake.evolution import POLICIES, Policy
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.masks import Masks
from pgwire_codec.lake.mirror_run import MirroredBatch, MirrorRun
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import TableStatus
from pgwire_codec.lake.table_job import MirrorSettings
from pgwire_codec.lake.tables.target import WriteMode
from pgwire_codec.log import Log, LsnFile
from pgwire_codec.options import DecoderOptions

#: Seconds between two looks at a log that does not grow.
POLL_SECONDS: Final = 0.2

#: Bytes of messages of a turn in one process.
TURN_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Options of a mirror, which :func:`mirror` describes.

    Raises
    ------
    OptionError
        For an invalid option.
    """

    once: bool = False
    on_schema_change: Policy = "evolve"
    masks: Masks = field(default_factory=Masks)
    row_columns: RowColumns = field(default_factory=RowColumns)
    dead_letters: bool = False
    types: str = "native"
    numeric: str = "string"
    unrepresentable: str = "raise"
    on_error: str = "raise"
    max_bytes: int | None = None
    report: Callable[[MirroredBatch], None] = lambda batch: None

    def __post_init__(self) -> None:
        if self.on_schema_change not in POLICIES:
            raise OptionError(
                f"on_schema_change must be one of {', '.join(POLICIES)}, not "
                f"{self.on_schema_change!r}"
            )
        if self.dead_letters and self.on_error == "skip":
            raise OptionError(
                "`dead_letters=True` and `on_error='skip'` exclude one another",
                hint="With dead letters, changes that do not decode are left out, too.",
            )

    @property
    def decoder(self) -> DecoderOptions:
        """Options of the decoder."""
        return DecoderOptions(
            types=self.types,
            numeric=self.numeric,
            before="key",
            unrepresentable=self.unrepresentable,
            on_error="skip" if self.dead_letters else self.on_error,
            arrow_types=ROW_TYPES,
        )

    def start(
        self, log: str | os.PathLike[str] | Log, lake: Lake, tables: str | Sequence[str], by: Runner
    ) -> MirrorRun:
        """Return the run of a mirror, whose tasks a runner runs."""
        row_columns = self.row_columns
        if lake.has_histories_only:
            row_columns = replace(row_columns, is_history=True)
        settings = MirrorSettings(
            self.on_schema_change, self.masks, row_columns, self.decoder, self.dead_letters
        )
        names = [each.strip() for each in tables.split(",")] if isinstance(tables, str) else tables
        path = log.uri if isinstance(log, Log) else os.fspath(log)
        return MirrorRun(path, names, lake, settings, by, self.max_bytes)


class Mirror:
    """A mirror in this process.

    Parameters
    ----------
    run : MirrorRun
    options : MirrorOptions
    every : float
        Seconds between the beginnings of two turns, at least.
    checkpoint : str, optional
        Folder that records how far the tables are.
    """

    def __init__(
        self,
        run: MirrorRun,
        options: MirrorOptions,
        every: float = POLL_SECONDS,
        checkpoint: str | None = None,
    ) -> None:
        self._run = run
        self._options = options
        self._every = every
        self._file = None if checkpoint is None else LsnFile(f"{checkpoint.rstrip('/')}/lsn")
        self._recorded: int | None = None
        self._stopped = threading.Event()
        self._running = False

    @property
    def isActive(self) -> bool:  # noqa: N802  (as a StreamingQuery)
        """True while :meth:`run` runs."""
        return self._running

    def run(self) -> None:
        """Apply changes: with ``once`` those that the log has now, otherwise until :meth:`stop`.

        Raises
        ------
        PgwireError
            If no table can be written, for example to a full disk.
        """
        self._running = True
        try:
            self._turns()
        finally:
            self._running = False

    def _turns(self) -> None:
        end = self._run.log_end()
        # After that of the last run.
        number = 1 + max((row.batch or 0 for row in self.status.values()), default=-1)
        self._record()
        while not self._stopped.is_set():
            begin = time.monotonic()
            batch = self._run.turn(number)
            self._record()
            if batch is not None:
                number += 1
                self._options.report(batch)
            is_done = batch is None or batch.until >= end
            if self._options.once and is_done:
                break
            if batch is None or self._run.is_current:
                self._stopped.wait(max(0.0, self._every - (time.monotonic() - begin)))

    def _record(self) -> None:
        lsn = self._run.applied_lsn
        if self._file is not None and lsn != self._recorded:
            self._file.write_lsn(lsn)
            self._recorded = lsn

    def stop(self) -> None:
        """Have :meth:`run` return after the running turn. Any thread may call it."""
        self._stopped.set()

    @property
    def status(self) -> dict[str, TableStatus]:
        """State of each table, by name."""
        return self._run.status

    @property
    def unnamed_letters(self) -> int:
        """Number of dead letters that belong to no known table."""
        return self._run.unnamed_letters


def mirror(
    log: str | os.PathLike[str] | Log,
    target: str,
    tables: str | Sequence[str] = "*",
    *,
    checkpoint: str | None = None,
    every: float = POLL_SECONDS,
    once: bool = False,
    on_schema_change: Policy = "evolve",
    storage_options: Mapping[str, str] | None = None,
    write_mode: WriteMode = "merge-on-read",
    masks: Mapping[str, str] | None = None,
    mask_key: bytes | None = None,
    soft_deletes: bool = False,
    commit_columns: bool = False,
    history: bool = False,
    dead_letters: bool = False,
    report: Callable[[MirroredBatch], None] | None = None,
    **options: Any,
) -> Mirror:
    """Keep the tables of a log as Delta tables, in this process.

    Or append their history to Parquet files. It is for databases that fit one machine: threads run
    what :func:`pgwire_codec.spark.mirror` has Spark's executors do. Its description is that of the
    arguments, and of the tables.

    Parameters
    ----------
    log : str, path or Log
        Location of the log, or the log.
    target : str
        ``delta:LOCATION`` or ``parquet:LOCATION``, a path or URI of the folder of the tables.
    tables : str or sequence of str
        Names of tables, and patterns such as ``public.*``; by default all tables.
    checkpoint : str, optional
        Folder, as path or URI, whose file ``lsn`` is to contain the commit LSN up to which all
        tables are whole that are not set aside: for :class:`pgwire_codec.log.LsnFile`. Nothing else
        is read or kept there.
    every : float
        Seconds between the beginnings of two turns, at least.
    once : bool
        Whether it ends when it has all changes that are in the log at its beginning.
    on_schema_change, storage_options, write_mode, masks, mask_key, soft_deletes, commit_columns
        As for :func:`pgwire_codec.spark.mirror`.
    history, dead_letters, report
        As for :func:`pgwire_codec.spark.mirror`.
    **options
        ``types``, ``numeric``, ``unrepresentable`` and ``on_error`` of
        :class:`pgwire_codec.Decoder`.

    Returns
    -------
    Mirror
        Its method ``run`` does the work.

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
    >>> mirror("shop.log", "delta:/lake/shop", once=True).run()  # doctest: +SKIP
    """
    chosen = MirrorOptions(
        once=once,
        on_schema_change=on_schema_change,
        masks=Masks.parse(masks or {}, mask_key),
        row_columns=RowColumns(commit_columns, soft_deletes, history),
        dead_letters=dead_letters,
        max_bytes=TURN_BYTES,
        report=report or (lambda batch: None),
        **options,
    )
    lake = Lake.parse(target, storage_options, write_mode=write_mode)
    return Mirror(chosen.start(log, lake, tables, Threads()), chosen, every, checkpoint)
