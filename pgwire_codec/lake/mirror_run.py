"""MirrorRun: turns, each of which brings the tables of a lake to a later position of a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pgwire_codec.errors import with_hint
from pgwire_codec.lake.dead_letters import DeadLetters
from pgwire_codec.lake.job_run import JobRun
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.log_range import LogRange
from pgwire_codec.lake.masks import without_values
from pgwire_codec.lake.mirror_options import MirrorContext, MirroredBatch, MirrorOptions
from pgwire_codec.lake.rewriting import keep_up
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import (
    CURRENT,
    GONE,
    LOGGER,
    REPLAYING,
    REQUESTED,
    SET_ASIDE,
    TableStatus,
)
from pgwire_codec.lake.table_job import TableJob
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.log import Log, LogPosition
from pgwire_codec.log.positions import position_of, position_within
from pgwire_codec.log.tables_with_rows import TablesWithRows
from pgwire_codec.transactions.carry import RelationVersion

#: Tables of a remote lake that are opened, prepared and committed side by side: they wait for it.
_TABLES: Final = 16


class MirrorRun:
    """Applies the changes of a log to the tables of a lake.

    ``tables`` are names and patterns of tables, and ``runner`` runs the tasks.
    """

    def __init__(
        self, log: str, tables: Sequence[str], lake: Lake, options: MirrorOptions, runner: Runner
    ) -> None:
        self._log = Log(log)
        options.masks.check_names(self._log)
        self._names = TableNames.parse(tables)
        self._names.select(self._log, None)
        self._options = options.for_lake(lake)
        self._status = lake.status()
        self._letters = DeadLetters(lake.dead_letters(), hides_values=bool(options.masks.patterns))
        self._context = MirrorContext(lake, self._options, self._letters, runner)
        self._threads = Threads(_TABLES if lake.is_remote else None)
        self._tables = TablesWithRows(self._log)
        self._requested: tuple[int, frozenset[str]] | None = None
        self._without_rows: dict[int, int] = {}  # up to a commit LSN, by OID
        #: Commit LSN up to which all tables are whole that are not set aside.
        self.applied_lsn = self._after(self._status.read())

    @property
    def status(self) -> dict[str, TableStatus]:
        """Rows of the status table, by table."""
        return self._status.read()

    @property
    def unnamed_letters(self) -> int:
        """Number of dead letters that belong to no known table."""
        return self._letters.unnamed

    def log_end(self) -> int:
        """Return the commit LSN at which the log ends now."""
        self._log.refresh()
        return self._log.end.lsn

    def turn(self, number: int) -> MirroredBatch | None:
        """Bring the tables to a later position of the log; return None if there is nothing to do.

        Raises ``PgwireError`` if no table can be written, for example to a full disk. The turn is
        repeated then.
        """
        self._log.refresh()
        rows = self._status.read()
        place = self._request_lsn(rows)
        found = None if place is None else self._turn(rows, place, number)
        return found or self._turn(rows, self._until(rows), number)

    def _turn(self, rows: dict[str, TableStatus], until: int, number: int) -> MirroredBatch | None:
        before = dict(rows)
        whole = LogRange(self._log, until)
        jobs = self._jobs(rows, whole, number)
        requested = [name for name in jobs if name in before and before[name].state in REQUESTED]
        if requested:
            LOGGER.warning("these tables are read from the log: %s", ", ".join(requested))
        results = JobRun(self._log, self._context, self._threads).run(jobs)
        if rows == before and not results:
            self.applied_lsn = until
            return None
        replayed = {name for name in results if name in before and before[name].state == REPLAYING}
        for name, result in results.items():
            if isinstance(result, Exception):
                row = rows.get(name) or TableStatus(name, 0)
                row = replace(row, relation_oid=jobs[name].oid, batch=number, changes=0)
                result = self._set_aside(row, result)
            rows[name] = result
        rows = self._write(rows, results.keys(), replayed)
        self.applied_lsn = until
        keep_up(self._context.lake, self._context.runner, [job.relation for job in jobs.values()])
        # Arrow keeps freed memory: after a snapshot, that of the largest piece.
        pa.default_memory_pool().release_unused()
        return MirroredBatch(
            number, until, tuple(rows[name] for name in results), tuple(rows.values())
        )

    @property
    def is_current(self) -> bool:
        """True if all tables that are not set aside have the log, as of its last refresh."""
        rows = self._status.read()
        end = self._log.end.lsn
        return all((row.whole_lsn or 0) >= end for row in rows.values() if row.state in CURRENT)

    def _after(self, rows: Mapping[str, TableStatus]) -> int:
        """Return the commit LSN up to which all tables are whole."""
        current = (row.whole_lsn for row in rows.values() if row.state in CURRENT)
        begin = self._log.begin.lsn
        return max(min((lsn for lsn in current if lsn is not None), default=begin), begin)

    def _request_lsn(self, rows: Mapping[str, TableStatus]) -> int | None:
        """Return the commit LSN to which tables with requests are brought first.

        It is where the others are: what comes after it may not fit.
        """
        requested = frozenset(name for name, row in rows.items() if row.state in REQUESTED)
        place = self._after(rows), requested
        if not requested or place == self._requested:
            return None
        self._requested = place
        return place[0]

    def _until(self, rows: Mapping[str, TableStatus]) -> int:
        """Return the commit LSN at which a turn ends."""
        log, after = self._log, self._after(rows)
        if log.end.lsn <= after:
            return log.end.lsn
        begin, end = position_of(log, after), log.end
        snapshot = self._snapshot_end(begin)
        if after < snapshot < end.lsn:
            end = position_of(log, snapshot)
        if self._options.max_bytes is None:
            return end.lsn
        return position_within(log, begin, end, self._options.max_bytes).lsn

    def _snapshot_end(self, begin: LogPosition) -> int:
        """Return the commit LSN at which a snapshot ends, if a position is in one; otherwise 0.

        All its rows are inserts, which need no lookup.
        """
        log, found = self._log, 0
        for number in range(max(0, log.number_of(begin.ordinal)), len(log)):
            segment = log.segment(number)
            if not segment.header.snapshot:
                break
            found = segment.delivered_lsn
        return found

    def _jobs(
        self, rows: dict[str, TableStatus], whole: LogRange, number: int
    ) -> dict[str, TableJob]:
        """Return the jobs of a turn, by table; complete the rows of tables without changes."""
        for name, row in rows.items():
            if row.state in CURRENT and whole.scope.named(name) is None:
                rows[name] = replace(row, state=GONE)
        held = self._names.held_in(whole.scope)
        jobs: dict[str, TableStatus] = {}
        waiting: dict[int, list[str]] = {}
        new = self._new(rows, held, whole)
        for name, version in held.items():
            oid = version.relation.oid
            row = rows.get(name) or TableStatus(name, oid)
            if row.state == SET_ASIDE and row.relation_oid != oid:
                row = row.of_another_relation(oid)
            is_known = name in rows and row.relation_oid == oid and row.whole_lsn is not None
            if row.state == SET_ASIDE or (name not in rows and name not in new):
                continue
            if row.state in REQUESTED or not is_known:
                jobs[name] = row
            elif row.whole_lsn is not None and row.whole_lsn < whole.until:
                waiting.setdefault(row.whole_lsn, []).append(name)
        for lsn, names in waiting.items():
            oids = {held[name].relation.oid for name in names}
            changed = oids if lsn < self._log.begin.lsn else self._changed(lsn, whole.until, oids)
            for name in names:
                if held[name].relation.oid in changed:
                    jobs[name] = rows[name]
                else:
                    rows[name] = replace(rows[name], whole_lsn=whole.until)
        return {
            name: TableJob(replace(row, changes=0, batch=number), held[name], whole, self._context)
            for name, row in jobs.items()
        }

    def _new(
        self, rows: Mapping[str, TableStatus], held: Mapping[str, RelationVersion], whole: LogRange
    ) -> set[str]:
        """Return the names of new tables.

        A relation of which the log has nothing is a partition that is published as its root. It may
        also have changes that were pruned, of which a new mirror reports the error.
        """
        oids = {name: each.relation.oid for name, each in held.items() if name not in rows}
        unknown = set(oids.values()) - self._without_rows.keys()
        found = self._tables.among(unknown)
        for lsn in {self._without_rows[oid] for oid in oids.values() if oid not in unknown}:
            searched = {oid for oid in oids.values() if self._without_rows.get(oid) == lsn}
            if lsn < whole.until:
                found |= self._changed(max(lsn, self._log.begin.lsn), whole.until, searched)
        self._without_rows |= dict.fromkeys(set(oids.values()) - found, whole.until)
        begin = self._log.begin.lsn
        if not rows and begin:
            found |= set(self._log.relations_at(begin).relations)
        return {name for name, oid in oids.items() if oid in found}

    def _changed(self, after: int, until: int, oids: Collection[int]) -> set[int]:
        """Return those of some relations that may have changes in a range."""
        changed: set[int] = set()
        if oids:
            for each in self._log.plan(after, until, relation_oid=oids).changed:
                changed |= set(oids) if each is None else each & set(oids)
        return changed

    def _set_aside(self, row: TableStatus, error: Exception) -> TableStatus:
        """Return the status of a table after an error."""
        if self._options.dead_letters:  # they may have been recorded before the error
            row = replace(row, dead_letters=self._letters.count(row.relation_oid))
        row = row.set_aside(error)
        if row.error is not None and self._options.masks.patterns:
            row = replace(row, error=without_values(row.error))
        LOGGER.warning("%s is set aside: %s", row.table, with_hint(row.error or "", row.hint))
        return row

    def _write(
        self, rows: dict[str, TableStatus], done: Collection[str], replayed: Collection[str]
    ) -> dict[str, TableStatus]:
        """Write the status, with the tables that another process has requested work for meanwhile.

        A table whose changes are applied can be requested to be replayed.
        """
        while not self._status.write(rows.values()):
            held = self._status.read()
            requested = {name: row for name, row in held.items() if row.state in REQUESTED}
            rows |= {name: row for name, row in requested.items() if name not in done}
            again = [name for name, row in requested.items() if row.state == REPLAYING]
            for name in set(again) & set(done) - set(replayed):
                rows[name] = replace(rows[name], state=REPLAYING)
        return rows
