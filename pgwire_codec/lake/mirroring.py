"""mirror: the tables of a log as tables of a lake, without Spark."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Final

from pgwire_codec.errors import TableError
from pgwire_codec.lake.evolution import Policy, TablePolicies
from pgwire_codec.lake.lakehouse import KEPT_SECONDS, Lake
from pgwire_codec.lake.masks import Masks
from pgwire_codec.lake.mirror_options import HOLD_SECONDS, MirroredBatch, MirrorOptions
from pgwire_codec.lake.mirror_run import MirrorRun
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import LOGGER, TableStatus
from pgwire_codec.lake.tables.target import WriteMode
from pgwire_codec.log import Log, LsnFile
from pgwire_codec.log.log_watch import LogWatch

__all__ = ["Mirror", "mirror"]


def __dir__() -> list[str]:
    return __all__


#: Seconds between two looks at the turns of another thread.
_WAIT_SECONDS: Final = 0.02

#: Seconds for which errors that may pass do not end a mirror, and between two attempts.
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5

#: Seconds after which requests in the status table are looked for while the log does not grow.
_REQUEST_SECONDS: Final = 1.0

#: Bytes of messages of a turn in one process.
TURN_BYTES: Final = 1 << 30


class Mirror:
    """A mirror, which brings the tables of a lake to later positions of a log.

    Parameters
    ----------
    log : str, path or Log
        Location of the log, or the log.
    lake : Lake
    tables : str or sequence of str
        Names and patterns of tables.
    runner : Runner
        Runs the tasks.
    options : MirrorOptions
    checkpoint : str, optional
        Folder that records up to where no table needs the log any more.

    Raises
    ------
    LogError
        When the log does not exist, or is damaged.
    TableError
        For a name that no relation has.
    """

    def __init__(
        self,
        log: str | os.PathLike[str] | Log,
        lake: Lake,
        tables: str | Sequence[str],
        runner: Runner,
        options: MirrorOptions,
        checkpoint: str | None = None,
    ) -> None:
        names = [name.strip() for name in tables.split(",")] if isinstance(tables, str) else tables
        self._path = log.uri if isinstance(log, Log) else os.fspath(log)
        self._run = MirrorRun(self._path, names, lake, options, runner)
        self._options = options
        self._seconds = options.seconds(is_remote=lake.is_remote)
        self._file = None if checkpoint is None else LsnFile(f"{checkpoint.rstrip('/')}/lsn")
        self._recorded: int | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._running = False
        self._error: BaseException | None = None

    @property
    def isActive(self) -> bool:  # noqa: N802  (as a StreamingQuery)
        """True while it runs."""
        return self._running or (self._thread is not None and self._thread.is_alive())

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

    def start(self) -> Mirror:
        """Have a thread call :meth:`run`; return the mirror."""
        self._thread = threading.Thread(
            target=self._run_in_thread, name="pgwire_codec_mirror", daemon=True
        )
        self._thread.start()
        return self

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait until it has ended, or for some seconds; return whether it has.

        Raises the error that ended it, as :meth:`run`.
        """
        if self._thread is not None:
            self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self.isActive

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until the tables have what the log has now, or it has ended.

        Raises the error that ended it, as :meth:`run`.
        """
        end = Log(self._path).end.lsn
        while self._run.applied_lsn < end and not self.awaitTermination(_WAIT_SECONDS):
            pass

    def exception(self) -> BaseException | None:
        """Return the error that ended it, if there is one."""
        return self._error

    def stop(self) -> None:
        """Have it end after the running turn. Any thread may call it."""
        self._stopped.set()

    @property
    def status(self) -> dict[str, TableStatus]:
        """State of each table, by name."""
        return self._run.status

    @property
    def unnamed_letters(self) -> int:
        """Number of dead letters that belong to no known table."""
        return self._run.unnamed_letters

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001  (of awaitTermination)
            self._error = error

    def _turns(self) -> None:
        end = self._run.log_end()
        # After that of the last run.
        number = 1 + max((row.batch or 0 for row in self.status.values()), default=-1)
        self._record()
        patience = retries = time.monotonic() + _PATIENCE_SECONDS
        with nullcontext() if self._options.once else LogWatch(self._path) as watch:
            while not self._stopped.is_set():
                begin = time.monotonic()
                try:
                    batch = self._run.turn(number)
                except TableError as error:  # of the mirror's own tables
                    if not error.is_transient or begin > patience:
                        raise
                    LOGGER.warning("the mirror goes on after a pause: %s", error)
                    self._stopped.wait(_PAUSE_SECONDS)
                    continue
                patience = time.monotonic() + _PATIENCE_SECONDS
                self._record()
                if batch is not None:
                    number += 1
                    if self._options.report is not None:
                        self._options.report(batch)
                retry = self._run.retry_seconds
                if watch is not None:
                    if self._run.is_current:
                        self._pause(watch, begin, retry)
                elif self._run.applied_lsn >= end:
                    if retry is None or time.monotonic() > retries:
                        break
                    self._stopped.wait(min(retry, _PAUSE_SECONDS))
        self._run.write_status(is_end=True)
        self._record()

    def _pause(self, watch: LogWatch, begin: float, retry: float | None) -> None:
        """Wait until the next turn after the one that began then is due, and the log has grown."""
        self._stopped.wait(max(0.0, self._seconds - (time.monotonic() - begin)))
        longest = _REQUEST_SECONDS if retry is None else min(retry, _REQUEST_SECONDS)
        watch.wait(longest, self._stopped)

    def _record(self) -> None:
        lsn = self._run.needed_lsn
        if self._file is not None and lsn != self._recorded:
            self._file.write_lsn(lsn)
            self._recorded = lsn


def mirror(
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
    max_bytes: int | None = TURN_BYTES,
    replace: bool = False,
    hold: str | float = HOLD_SECONDS,
    report: Callable[[MirroredBatch], None] | None = None,
) -> Mirror:
    """Return a mirror of the tables of a log, as Delta tables, whose work this process does.

    Or it appends their history to Parquet files. It is for databases that fit one machine: threads
    run what :func:`pgwire_codec.spark.mirror` has Spark's executors do. That function describes the
    arguments, the tables, and what is raised.

    Parameters
    ----------
    log : str, path or Log
        Location of the log, or the log.
    target : str
        ``delta:LOCATION`` or ``parquet:LOCATION``, a path or URI of the folder of the tables.
    tables, checkpoint, every, once, on_schema_change, table_policies, storage_options
        As for :func:`pgwire_codec.spark.mirror`.
    write_mode, keep, masks, mask_key, soft_deletes, commit_columns, history, dead_letters
        As for :func:`pgwire_codec.spark.mirror`.
    types, numeric, unrepresentable, on_error, replace, hold, report
        As for :func:`pgwire_codec.spark.mirror`.
    max_bytes : int or None
        Approximate bytes of messages of a turn, by default 1 GiB.

    Returns
    -------
    Mirror
        Its method ``run`` does the work, and ``start`` has a thread do it.

    Examples
    --------
    >>> mirror("shop.log", "delta:/lake/shop", once=True).run()  # doctest: +SKIP
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
    lake = Lake.parse(target, storage_options, write_mode=write_mode, keep=keep)
    return Mirror(log, lake, tables, Threads(), options, checkpoint)
