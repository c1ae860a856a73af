"""MirrorRun: turns, each of which brings the tables of a lake to a later position of a log."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Final

import pyarrow as pa

from pgwire_codec.errors import TableError, with_hint
from pgwire_codec.lake.dead_letters import DeadLetters
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.log_range import LogRange
from pgwire_codec.lake.masks import without_values
from pgwire_codec.lake.mirror_options import MirrorContext, MirroredBatch, MirrorOptions
from pgwire_codec.lake.plan import ANOTHER_LOG, Quiet, Request
from pgwire_codec.lake.rewriting import keep_up
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import (
    CURRENT,
    GONE,
    LOGGER,
    REPLAYING,
    REQUESTED,
    RETRYING,
    SET_ASIDE,
    TableStatus,
)
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.lake.table_state import LogIdentity
from pgwire_codec.lake.table_turns import TableTurns
from pgwire_codec.log import Log, LogPosition
from pgwire_codec.log.positions import position_of, position_within
from pgwire_codec.log.tables_with_rows import TablesWithRows
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion

#: Tables of a remote lake that are opened, prepared and committed side by side: they wait for it.
_TABLES: Final = 16

#: Seconds before a table is tried again after an error that may pass: twice as many each time.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0

#: Seconds within which a table without changes is looked at: another program may have changed it.
_LOOK_SECONDS: Final = 60.0
_LOOK_SECONDS_REMOTE: Final = 600.0


class MirrorRun:
    """Applies the changes of a log to the tables of a lake.

    ``tables`` are names and patterns of tables, and ``runner`` runs the tasks.
    """

    def __init__(
        self, log: str, tables: Sequence[str], lake: Lake, options: MirrorOptions, runner: Runner
    ) -> None:
        self._log = log_ = Log(log)
        options.masks.check_names(log_)
        self._names = TableNames.parse(tables)
        self._names.select(log_, None)
        self._identity = LogIdentity.from_log(log_)
        self._options = options.for_lake(lake)
        self._status = lake.status()
        self._letters = DeadLetters(lake.dead_letters(), hides_values=bool(options.masks.patterns))
        self._context = MirrorContext(lake, self._options, self._letters, runner)
        self._threads = Threads(_TABLES if lake.is_remote else None)
        self._tables = TablesWithRows(log_)
        self._without_rows: dict[int, int] = {}  # up to a commit LSN, by OID
        self._retries: dict[str, tuple[float, float]] = {}  # time of the next one, and the pause
        self._looks = _Looks(_LOOK_SECONDS_REMOTE if lake.is_remote else _LOOK_SECONDS)
        rows = self._status.read()
        self._check_lake(rows)
        #: Commit LSN up to which all tables are complete that do not fail.
        self.applied_lsn = self._after(rows)

    @property
    def status(self) -> dict[str, TableStatus]:
        """Rows of the status table, by table."""
        return self._status.read()

    @property
    def unnamed_letters(self) -> int:
        """Number of dead letters that belong to no known table."""
        return self._letters.unnamed

    @property
    def is_current(self) -> bool:
        """True if all tables that do not fail have the log, as of its last refresh."""
        return self.applied_lsn >= self._log.end.lsn

    @property
    def is_retrying(self) -> bool:
        """True if a table is to be tried again by itself."""
        return bool(self._retries)

    def needed_lsn(self) -> int:
        """Return the commit LSN up to which no table needs the log any more.

        Tables that fail need it for some time.
        """
        now, needed = datetime.now(timezone.utc), self.applied_lsn
        for row in self._status.read().values():
            if row.state in CURRENT or row.state == GONE:
                continue
            since = row.since or now
            if (now - since).total_seconds() < self._options.hold_seconds:
                needed = min(needed, row.complete_lsn or self._log.begin.lsn)
        return needed

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
        self._check_log()
        rows = self._status.read()
        before, until = dict(rows), self._until(rows)
        whole = LogRange(self._log, until)
        requests = self._requests(rows, whole, number)
        asked = [name for name in requests if name in before and before[name].state in REQUESTED]
        if asked:
            LOGGER.warning("these tables are read from the log: %s", ", ".join(asked))
        turns = TableTurns(self._log, whole, self._context, self._threads)
        results = turns.run(requests)
        if rows == before and not results:
            self.applied_lsn = until
            return None
        for name, row in results.items():
            rows[name] = self._checked(row)
        replayed = {name for name in results if requests[name][0].state == REPLAYING}
        rows = self._write(rows, results.keys(), replayed)
        self.applied_lsn = until
        changed = [
            requests[name][0].version.relation
            for name, row in results.items()
            if row.state in CURRENT and row.changes
        ]
        self._threads.map(self._keep_up, changed)
        # Arrow keeps freed memory: after a snapshot, that of the largest piece.
        pa.default_memory_pool().release_unused()
        return MirroredBatch(
            number, until, tuple(rows[name] for name in results), tuple(rows.values())
        )

    def _keep_up(self, relation: Relation) -> None:
        keep_up(self._context.lake, self._context.runner, relation)

    def _check_lake(self, rows: Mapping[str, TableStatus]) -> None:
        """Raise ``TableError`` for the lake of another log, unless it is to be replaced."""
        others = [row.table for row in rows.values() if self._is_of_another_log(row)]
        if others and not self._options.replace:
            raise TableError(
                f"the lake has tables from another log than {self._identity}: {', '.join(others)}",
                hint=ANOTHER_LOG,
            )

    def _is_of_another_log(self, row: TableStatus) -> bool:
        return row.log_id not in (None, self._identity.log_id)

    def _check_log(self) -> None:
        """Raise ``TableError`` if another log has taken the place of this one."""
        identity = LogIdentity.from_log(self._log)
        if identity != self._identity:
            raise TableError(
                f"{self._log.uri} is {identity} now, and was {self._identity}",
                hint="Start the mirror again, with another folder for its tables.",
            )

    def _after(self, rows: Mapping[str, TableStatus]) -> int:
        """Return the commit LSN up to which all tables are complete."""
        log_id = self._identity.log_id
        current = (
            row.complete_lsn
            for row in rows.values()
            if row.state in CURRENT and row.log_id == log_id
        )
        begin = self._log.begin.lsn
        return max(min((lsn for lsn in current if lsn is not None), default=begin), begin)

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

    def _requests(
        self, rows: dict[str, TableStatus], whole: LogRange, number: int
    ) -> dict[str, tuple[Request, TableStatus]]:
        """Return what a turn is to do, by table; complete the rows of tables without changes."""
        for name, row in rows.items():
            if self._is_of_another_log(row):  # it is to be replaced
                rows[name] = row = TableStatus(name, row.relation_oid)
            if row.state in (*CURRENT, RETRYING) and whole.scope.named(name) is None:
                rows[name] = replace(row, state=GONE)
                self._retries.pop(name, None)
        held = self._names.held_in(whole.scope)
        requests: dict[str, TableStatus] = {}
        waiting: dict[int, list[str]] = {}
        new = self._new(rows, held, whole)
        for name, version in held.items():
            oid = version.relation.oid
            row = rows.get(name) or TableStatus(name, oid)
            if row.state == SET_ASIDE and row.relation_oid != oid:
                row = row.of_another_relation(oid)
            is_known = row.relation_oid == oid and row.complete_lsn is not None
            if row.state == SET_ASIDE or (name not in rows and name not in new):
                continue
            if row.state == RETRYING and not self._is_due(name):
                continue
            if row.state not in CURRENT or not is_known:
                requests[name] = row
            elif row.complete_lsn is not None and row.complete_lsn < whole.until:
                waiting.setdefault(row.complete_lsn, []).append(name)
        for lsn, names in waiting.items():
            oids = {held[name].relation.oid for name in names}
            changed = oids if lsn < self._log.begin.lsn else self._changed(lsn, whole.until, oids)
            for name in names:
                if held[name].relation.oid in changed:
                    requests[name] = rows[name]
                else:
                    rows[name] = replace(rows[name], complete_lsn=whole.until)
        quiet = [name for name in held if name not in requests and name in rows]
        looked = self._looks.due([name for name in quiet if rows[name].state in CURRENT])
        for name, is_same in zip(
            looked,
            self._threads.map(lambda name: self._is_same(rows[name], held[name]), looked),
            strict=True,
        ):
            if not is_same:
                requests[name] = rows[name]
        return {
            name: (
                Request(name, held[name], row.state, _quiet(row)),
                replace(row, changes=0, batch=number),
            )
            for name, row in requests.items()
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

    def _is_same(self, row: TableStatus, version: RelationVersion) -> bool:
        """Return whether a table is as the mirror has left it; if not certain, it is planned."""
        try:
            return row.version is not None and self._context.lake.is_at(
                version.relation, row.version
            )
        except Exception:  # noqa: BLE001  (what is planned opens it, and reports the error)
            return False

    def _is_due(self, name: str) -> bool:
        """Return whether a table is to be tried again now."""
        return name not in self._retries or time.monotonic() >= self._retries[name][0]

    def _checked(self, row: TableStatus) -> TableStatus:
        """Return the status of a table after a turn; note when it is to be tried again."""
        if row.state not in (SET_ASIDE, RETRYING):
            self._retries.pop(row.table, None)
            return row
        if row.error is not None and self._options.masks.patterns:
            row = replace(row, error=without_values(row.error))
        text = with_hint(row.error or "", row.hint)
        if row.state == SET_ASIDE:
            self._retries.pop(row.table, None)
            LOGGER.warning("%s is set aside: %s", row.table, text)
            return row
        _, pause = self._retries.get(row.table, (0.0, _FIRST_PAUSE / 2))
        pause = min(2 * pause, _LONGEST_PAUSE)
        self._retries[row.table] = time.monotonic() + pause, pause
        LOGGER.warning("%s is tried again in %.1f s: %s", row.table, pause, text)
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


class _Looks:
    """Chooses the tables that are looked at: all at the beginning, then each once in a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: float | None = None
        self._names: deque[str] = deque()

    def due(self, names: Sequence[str]) -> list[str]:
        """Return those of some tables that are to be looked at now."""
        now, last = time.monotonic(), self._last
        self._last = now
        if last is None:
            return list(names)
        count = math.ceil(len(names) * min(1.0, (now - last) / self._seconds))
        if len(self._names) < count:
            self._names.extend(names)
        chosen = {self._names.popleft() for _ in range(count)}
        return [name for name in names if name in chosen]


def _quiet(row: TableStatus) -> Quiet | None:
    """Return the part of the log without changes that a status records."""
    if row.log_id is None or row.complete_lsn is None:
        return None
    return Quiet(row.log_id, row.relation_oid, row.commit_lsn, row.complete_lsn)
