"""MirrorBatches: micro-batches of many tables, applied to the tables of the lake side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.errors import PgwireError, with_hint
from pgwire_codec.log import Log
from pgwire_codec.log.tables_with_rows import TablesWithRows
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.failures import cause_of, error_in, full_disk
from pgwire_codec.spark.mirroring.evolution import Policy
from pgwire_codec.spark.mirroring.lake import Lake
from pgwire_codec.spark.mirroring.masks import Masks, without_values
from pgwire_codec.spark.mirroring.row_columns import RowColumns
from pgwire_codec.spark.mirroring.status import (
    CURRENT,
    GONE,
    LOGGER,
    REPLAYING,
    REQUESTED,
    SET_ASIDE,
    KnownStatus,
    TableStatus,
)
from pgwire_codec.spark.mirroring.table_mirror import TableMirror
from pgwire_codec.spark.selection import TableNames
from pgwire_codec.spark.tables import LogTables, unpack_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Number of attempts to write the status: another process may write it at the same time.
_STATUS_ATTEMPTS: Final = 3

#: Number of micro-batches after which old versions of the status are removed.
_TIDIED_EVERY: Final = 100

_POOL: Final = "spark.scheduler.pool"

#: Text of the error of a micro-batch that comes after the stop of the mirror.
STOPPED: Final = "the mirror was stopped"


@dataclass(frozen=True, slots=True)
class MirroredBatch:
    """Result of a micro-batch.

    Attributes
    ----------
    batch : int
        Number of the micro-batch.
    until : int
        Commit LSN up to which all tables are whole that are not set aside.
    changed : tuple of TableStatus
        Tables with changes, or with an error.
    tables : tuple of TableStatus
        All tables.
    """

    batch: int
    until: int
    changed: tuple[TableStatus, ...]
    tables: tuple[TableStatus, ...]


class MirrorBatches:
    """Function for ``foreachBatch`` that applies packed rows to a lake.

    Parameters
    ----------
    log : str
        Location of the log.
    tables : sequence of str
        Names and patterns.
    lake : Lake
    policy : {"evolve", "rename", "freeze", "fail"}
        What to do when a table's columns change.
    masks : Masks
    row_columns : RowColumns
    options : mapping of str to str
        Options of ``format("pgoutput")``.
    parallelism : int
        Number of tables that are merged at once.
    report : callable
        Is called with the result of each micro-batch.
    collects_letters : bool
        Whether changes that do not decode are recorded as dead letters, and left out.
    """

    def __init__(
        self,
        log: str,
        tables: Sequence[str],
        lake: Lake,
        policy: Policy,
        masks: Masks,
        row_columns: RowColumns,
        options: Mapping[str, str],
        parallelism: int,
        report: Callable[[MirroredBatch], None],
        collects_letters: bool = False,
    ) -> None:
        self._log = Log(log)
        self._tables = TablesWithRows(self._log)
        self._names = TableNames.parse(tables)
        self._lake = lake
        self._policy = policy
        self._masks = masks
        self._row_columns = row_columns
        self._options = options
        self._threads = ThreadPoolExecutor(parallelism, "pgwire_codec_mirror")
        self._report = report
        self._collects_letters = collects_letters
        self._known = KnownStatus()
        self._running = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """Apply no further micro-batch; return when a running one is applied."""
        with self._running:
            self._stopped = True

    def __call__(self, packed: DataFrame, batch: int) -> None:
        with self._running:
            if self._stopped:  # Spark must not take the batch as applied
                raise PgwireError(STOPPED)
            self._adapt(packed.sparkSession)
            with unpack_tables(packed) as tables:
                if tables.dead_letters:
                    self._record_unnamed(packed.sparkSession, tables)
                if tables.ranges:
                    self._apply(packed.sparkSession, tables, batch)
                else:
                    self._create(packed.sparkSession, batch)
            # Arrow keeps freed memory: after a snapshot, that of the largest batch.
            pa.default_memory_pool().release_unused()

    @staticmethod
    def _adapt(session: SparkSession) -> None:
        """Have Spark choose the number of partitions: in streams, it is a fixed one."""
        session.conf.set("spark.sql.adaptive.enabled", "true")

    def resume(self, session: SparkSession) -> None:
        """Catch up the tables that are to be resumed, to the commit LSN that the others have.

        Those that begin after it, such as with a later copy, are caught up to the end of the log.
        """
        lsns = self._positions(self._lake.status(session, self._known).read())
        end = self._log.end.lsn
        for until in sorted({max(min(lsns, default=end), self._log.begin.lsn), end}):
            self._resume(session, until)

    def _resume(self, session: SparkSession, until: int) -> None:
        rows = self._lake.status(session, self._known).read()
        scope = self._log.relations_at(until)
        is_known = until == self._log.end.lsn
        requested = {
            name: row
            for name, row in rows.items()
            if row.state in REQUESTED and (is_known or scope.named(name) is not None)
        }
        if requested:
            mirror = self._mirror(session, until)
            work = {
                name: _requested(mirror, replace(row, changes=0)) for name, row in requested.items()
            }
            LOGGER.warning(
                "up to %s, these tables are read from the log: %s",
                format_lsn(until),
                ", ".join(requested),
            )
            self._finish(session, rows, work, until, -1)

    @staticmethod
    def _positions(rows: Mapping[str, TableStatus]) -> list[int]:
        """Return the commit LSNs up to which tables are whole that the mirror keeps up to date."""
        current = (row.whole_lsn for row in rows.values() if row.state in CURRENT)
        return [lsn for lsn in current if lsn is not None]

    def _record_unnamed(self, session: SparkSession, tables: LogTables) -> None:
        """Record the dead letters that belong to no relation of the log."""
        self._log.refresh()
        known = self._log.relations_at().relations
        mirror = self._mirror(session, self._log.end.lsn)
        for oid, letters in tables.dead_letters.items():
            if oid not in known:
                mirror.letters.record(letters)
                LOGGER.warning("messages that do not decode belong to no known table")

    def _apply(self, session: SparkSession, tables: LogTables, batch: int) -> None:
        self._log.refresh()
        after = max(each.after for each in tables.ranges.values())
        until = max(each.until for each in tables.ranges.values())
        rows = self._lake.status(session, self._known).read()
        mirror = self._mirror(session, until)
        known = self._log.relations_at(after).relations
        scope = self._log.relations_at(until)
        work: dict[str, Callable[[], TableStatus]] = {}
        for name, row in rows.items():
            if row.state in CURRENT and scope.named(name) is None:
                rows[name] = replace(row, state=GONE)
        held = {name: each.relation.oid for name, each in self._names.held_in(scope).items()}
        new = self._new(rows, held, tables)
        for name, oid in held.items():
            row = rows.get(name, TableStatus(name, oid))
            if row.state == SET_ASIDE and row.relation_oid != oid:
                row = row.of_another_relation(oid)
            row = replace(row, changes=0, batch=batch)
            has_all = (row.whole_lsn or 0) >= until
            is_behind = (row.whole_lsn or 0) < after and oid in known
            if row.state == SET_ASIDE:
                continue
            if row.state in REQUESTED:
                work[name] = _requested(mirror, row)
            elif has_all:  # it was resumed
                continue
            elif name in tables:
                work[name] = _bound(mirror.apply, row, tables)
            elif name in new or (is_behind and name in rows):
                work[name] = _bound(mirror.catch_up, row)
            elif name in rows and rows[name].state != SET_ASIDE:
                rows[name] = replace(rows[name], whole_lsn=until)
        self._finish(session, rows, work, until, batch)

    def _create(self, session: SparkSession, batch: int) -> None:
        """Create the targets of new tables without changes."""
        self._log.refresh()
        rows = self._lake.status(session, self._known).read()
        until = max(min(self._positions(rows), default=self._log.end.lsn), self._log.begin.lsn)
        scope = self._log.relations_at(until)
        held = {name: each.relation.oid for name, each in self._names.held_in(scope).items()}
        new = self._new(rows, held, ())
        if new:
            mirror = self._mirror(session, until)
            made = {name: TableStatus(name, oid, batch=batch) for name, oid in held.items()}
            work = {name: _bound(mirror.catch_up, made[name]) for name in new}
            self._finish(session, rows, work, until, batch)

    def _new(
        self,
        rows: Mapping[str, TableStatus],
        held: Mapping[str, int],
        tables: Collection[str],
    ) -> set[str]:
        """Return the names of new tables without changes in a micro-batch.

        A relation of which the log has nothing is a partition that is published as its root. It may
        also have changes that were pruned, of which a new mirror reports the error.
        """
        oids = {name: oid for name, oid in held.items() if name not in rows and name not in tables}
        found = self._tables.among(oids.values())
        if not rows and self._log.begin.lsn:
            found |= set(self._log.relations_at(self._log.begin.lsn).relations)
        return {name for name, oid in oids.items() if oid in found}

    def _mirror(self, session: SparkSession, until: int) -> TableMirror:
        return TableMirror(
            session,
            self._log,
            self._lake,
            self._policy,
            self._masks,
            self._row_columns,
            self._options,
            until,
            self._collects_letters,
        )

    def _finish(
        self,
        session: SparkSession,
        rows: dict[str, TableStatus],
        work: Mapping[str, Callable[[], TableStatus]],
        until: int,
        batch: int,
    ) -> None:
        """Do the work of tables, and write the status after it."""
        replayed = {name for name in work if name in rows and rows[name].state == REPLAYING}
        found = self._run(session, work)
        for name, result in found.items():
            if isinstance(result, Exception):
                row = self._set_aside(session, rows.get(name), name, until, result)
                row = replace(row, batch=batch)
                if row.error is not None and self._masks.patterns:
                    row = replace(row, error=without_values(row.error))
                LOGGER.warning("%s is set aside: %s", name, with_hint(row.error or "", row.hint))
                found[name] = row
        rows = self._write(session, rows | found, found, replayed)
        if batch > 0 and batch % _TIDIED_EVERY == 0:
            self._lake.status(session, self._known).tidy()
        self._report(MirroredBatch(batch, until, tuple(found.values()), tuple(rows.values())))

    def _set_aside(
        self,
        session: SparkSession,
        row: TableStatus | None,
        name: str,
        until: int,
        error: Exception,
    ) -> TableStatus:
        """Return the status of a table after an error; ``row`` is the one before, if it had one."""
        version = self._log.relations_at(until).named(name)
        if row is None:
            row = TableStatus(name, 0)
        if version is not None:
            row = replace(row, relation_oid=version.relation.oid)
        if self._collects_letters:  # they may have been recorded before the error
            letters = self._mirror(session, until).letters
            row = replace(row, dead_letters=letters.count(row.relation_oid))
        return row.set_aside(error)

    def _write(
        self,
        session: SparkSession,
        rows: dict[str, TableStatus],
        done: Mapping[str, Any],
        replayed: Collection[str],
    ) -> dict[str, TableStatus]:
        """Write the status, with the tables that another process has requested work for meanwhile.

        A table whose changes are applied can be requested to be replayed.
        """
        status = self._lake.status(session, self._known)
        held: dict[str, TableStatus] | None = status.read()
        attempts = _STATUS_ATTEMPTS
        while held is not None:
            requested = {name: row for name, row in held.items() if row.state in REQUESTED}
            rows |= {name: row for name, row in requested.items() if name not in done}
            again = [name for name, row in requested.items() if row.state == REPLAYING]
            for name in set(again) & set(done) - set(replayed):
                rows[name] = replace(rows[name], state=REPLAYING)
            try:
                held = status.write(rows.values())
            except Exception:
                attempts -= 1
                if not attempts:
                    raise
                held = status.read()
        return rows

    def _run(
        self, session: SparkSession, work: Mapping[str, Callable[[], TableStatus]]
    ) -> dict[str, Any]:
        """Do the work of tables, some at once; return the statuses, or the errors.

        An error that is not one of this package may pass: the work is done again, alone. A full
        disk is not an error of a table, and ends the micro-batch.
        """
        from pyspark import inheritable_thread_target

        context = session.sparkContext

        def run(name: str) -> Any:
            # A pool of its own: with FAIR scheduling, no table waits for another one's tasks.
            context.setLocalProperty(_POOL, threading.current_thread().name)
            try:
                return work[name]()
            except PgwireError as error:
                return error
            except Exception as error:  # noqa: BLE001  (the other tables go on)
                return error_in(str(error)) or error

        running: dict[str, Future[Any]] = {}
        try:
            for name in work:
                # Wrapped for each: the threads would share the local properties of one wrapper.
                target = inheritable_thread_target(session)(run)
                running[name] = self._threads.submit(target, name)
        finally:  # no table goes on after the micro-batch
            wait(running.values())
        found = {name: each.result() for name, each in running.items()}
        for name, result in found.items():
            if isinstance(result, Exception) and not isinstance(result, PgwireError):
                LOGGER.warning("%s failed, and is tried again: %s", name, cause_of(str(result)))
                found[name] = run(name)
            full = full_disk(str(found[name]), name) if isinstance(found[name], Exception) else None
            if full is not None:
                raise full
        return found


def _requested(mirror: TableMirror, row: TableStatus) -> Callable[[], TableStatus]:
    """Return the work that is requested for a table."""
    return _bound(mirror.replay if row.state == REPLAYING else mirror.catch_up, row)


def _bound(function: Callable[..., TableStatus], *arguments: Any) -> Callable[[], TableStatus]:
    return lambda: function(*arguments)
