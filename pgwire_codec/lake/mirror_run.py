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
from pgwire_codec.transactions.carry import RelationVersion, Scope

#: Tables of a remote lake that are opened, prepared and committed side by side: they wait for it.
_TABLES: Final = 16

#: Seconds before a table is tried again after an error that may pass: twice as many each time.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 60.0

#: Seconds within which a table without changes is looked at: another program may have changed it.
_LOOK_SECONDS: Final = 60.0
_LOOK_SECONDS_REMOTE: Final = 600.0


#: Shortest seconds between two writes of the status table without news, and how many times as much
#: as it costs they are.
_STATUS_SECONDS: Final = 1.0
_STATUS_SHARE: Final = 20.0

#: Fields of a status that are news.
_NEWS: Final = ("relation_oid", "state", "error", "incomplete", "evolutions", "dead_letters")


class MirrorRun:
    """Applies the changes of a log to the tables of a lake.

    ``tables`` are names and patterns of tables, and ``runner`` runs the tasks. A turn costs what
    the tables cost that it changes: of the others, one commit LSN is known.
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
        self._rows = self._status.read()
        self._check_lake()
        self._scope: Scope | None = None  # as of the last turn's end
        self._held: dict[str, RelationVersion] = {}  # the tables, as of the last turn's end
        self._name_of: dict[int, str] = {}  # by OID
        self._unsure: set[str] = set()  # tables that are to be planned, whatever changed
        self._written = 0.0  # time of the last write of the status, and what it cost
        self._cost = 0.0
        self._is_written = True
        self._has_news = False
        #: Commit LSN up to which all tables are complete that do not fail.
        self.applied_lsn = self._first_lsn()
        #: Commit LSN up to which no table needs the log any more, by the status table.
        self.needed_lsn = self._needed()

    @property
    def status(self) -> dict[str, TableStatus]:
        """Status of each table, by name."""
        return {name: self._lifted(row) for name, row in self._rows.items()}

    @property
    def unnamed_letters(self) -> int:
        """Number of dead letters that belong to no known table."""
        return self._letters.unnamed

    @property
    def is_current(self) -> bool:
        """True if all tables that do not fail have the log, as of its last refresh."""
        return self.applied_lsn >= self._log.end.lsn

    @property
    def retry_seconds(self) -> float | None:
        """Seconds until a table is tried again by itself; None if none is to be."""
        if not self._retries:
            return None
        return max(0.0, min(due for due, _ in self._retries.values()) - time.monotonic())

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
        self._load()
        until = self._until()
        whole = LogRange(self._log, until)
        unsure = self._follow(whole)
        names = unsure | self._changed_names(whole) | self._asked_names()
        names |= self._looked_at(names)
        requests = {
            name: self._request(name, number, is_sure=name not in unsure)
            for name in sorted(names)
            if name in self._held
        }
        asked = [name for name, (_, row) in requests.items() if row.state in REQUESTED]
        if asked:
            LOGGER.warning("these tables are read from the log: %s", ", ".join(asked))
        turns = TableTurns(self._log, whole, self._context, self._threads)
        results = turns.run(requests)
        self._is_written &= until == self.applied_lsn and not results
        self._scope, self.applied_lsn = whole.scope, until
        self._unsure.clear()
        if not results:
            self.write_status()
            return None
        before = {name: self._rows.get(name) for name in results}
        self._rows |= {name: self._checked(row) for name, row in results.items()}
        self._has_news |= any(_is_news(before[name], self._rows[name]) for name in results)
        replayed = {name for name in results if requests[name][0].state == REPLAYING}
        self.write_status(results.keys(), replayed)
        changed = [
            self._held[name].relation
            for name, row in results.items()
            if row.state in CURRENT and row.changes
        ]
        self._threads.map(
            lambda relation: keep_up(self._context.lake, self._context.runner, relation), changed
        )
        # Arrow keeps freed memory: after a snapshot, that of the largest piece.
        pa.default_memory_pool().release_unused()
        rows = dict(self._rows)
        return MirroredBatch(
            number,
            until,
            tuple(rows[name] for name in results),
            lambda: tuple(map(self._lifted, rows.values())),
        )

    def write_status(
        self, done: Collection[str] = (), replayed: Collection[str] = (), *, is_end: bool = False
    ) -> None:
        """Write the status if it has news, or costs little beside the time since it was written.

        Another process may have requested work for tables meanwhile. A table in ``done`` has what
        it requested, unless it asked for a replay and is not in ``replayed``.
        """
        begin = time.monotonic()
        pause = max(_STATUS_SECONDS, _STATUS_SHARE * self._cost)
        is_due = self._has_news or is_end or begin - self._written >= pause
        if self._is_written or not is_due:
            return
        while not self._status.write(self.status.values()):
            self._load(done, replayed)
        self._written = time.monotonic()
        self._cost = self._written - begin
        self._is_written, self._has_news = True, False
        self.needed_lsn = self._needed()

    def _load(self, done: Collection[str] = (), replayed: Collection[str] = ()) -> None:
        """Read what other processes have written into the status table: their requests."""
        for name, row in (self._status.changes() or {}).items():
            own = self._rows.get(name)
            if own is None:
                self._rows[name] = row
                self._unsure.add(name)
            elif row.state in REQUESTED and name not in done:
                self._rows[name] = replace(own, state=row.state)
            elif row.state == REPLAYING and name not in replayed:
                self._rows[name] = replace(own, state=REPLAYING)

    def _lifted(self, row: TableStatus) -> TableStatus:
        """Return the status of a table, which is complete up to where all are."""
        if row.state not in CURRENT or row.table not in self._held or row.complete_lsn is None:
            return row
        return replace(row, complete_lsn=max(row.complete_lsn, self.applied_lsn))

    def _check_lake(self) -> None:
        """Raise ``TableError`` for the lake of another log, unless it is to be replaced."""
        others = [row.table for row in self._rows.values() if self._is_of_another_log(row)]
        if others and not self._options.replace:
            raise TableError(
                f"the lake has tables from another log than {self._identity}: {', '.join(others)}",
                hint=ANOTHER_LOG,
            )
        for name in others:
            self._rows[name] = TableStatus(name, self._rows[name].relation_oid)

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

    def _first_lsn(self) -> int:
        """Return the commit LSN up to which all tables are complete, by the status table."""
        known = [
            row.complete_lsn
            for row in self._rows.values()
            if row.state in CURRENT
            and row.complete_lsn is not None
            and self._names.match(row.table)
        ]
        begin = self._log.begin.lsn
        return max(min(known, default=begin), begin)

    def _needed(self) -> int:
        """Return the commit LSN up to which no table needs the log: one that fails does a while."""
        now, needed = datetime.now(timezone.utc), self.applied_lsn
        for row in self._rows.values():
            if row.state in CURRENT or row.state == GONE:
                continue
            since = row.since or now
            if (now - since).total_seconds() < self._options.hold_seconds:
                needed = min(needed, row.complete_lsn or self._log.begin.lsn)
        return needed

    def _until(self) -> int:
        """Return the commit LSN at which a turn ends."""
        log, after = self._log, self.applied_lsn
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

    def _follow(self, whole: LogRange) -> set[str]:
        """Follow the names of relations; return those of tables that are to be planned for it."""
        if self._scope is whole.scope:
            return self._unsure & self._rows.keys()
        # Rows that were read from the status table are known up to where they say.
        known = {
            name: row if self._scope is None or name in self._unsure else self._lifted(row)
            for name, row in self._rows.items()
        }
        held = self._held = self._names.held_in(whole.scope)
        self._name_of = {version.relation.oid: name for name, version in held.items()}
        for name, row in self._rows.items():
            if row.state in (*CURRENT, RETRYING) and whole.scope.named(name) is None:
                self._rows[name] = replace(row, state=GONE)
                self._retries.pop(name, None)
                self._is_written, self._has_news = False, True
        names = self._new(held, whole)
        for name in held.keys() & self._rows.keys():
            row, version = self._rows[name], held[name]
            if row.state == SET_ASIDE and row.relation_oid != version.relation.oid:
                self._rows[name] = row = row.of_another_relation(version.relation.oid)
                names.add(name)
            lsn, is_same = known[name].complete_lsn, row.relation_oid == version.relation.oid
            is_known = is_same and lsn is not None and lsn >= self._log.begin.lsn
            if row.state == GONE or (row.state in CURRENT and not is_known):
                names.add(name)
        return names | (self._unsure & self._rows.keys())

    def _changed_names(self, whole: LogRange) -> set[str]:
        """Return the names of tables that may have changes in a range."""
        if whole.until <= self.applied_lsn:
            return set()
        changed = self._log.changed_relations(self.applied_lsn, whole.until)
        if changed is None:
            changed = frozenset(self._name_of)
        names = {self._name_of[oid] for oid in changed if oid in self._name_of}
        # A partition can have become a table of its own.
        new = self._new(self._held, whole) if names - self._rows.keys() else set()
        return new | {name for name in names if name in self._rows and self._is_applied(name)}

    def _is_applied(self, name: str) -> bool:
        return self._rows[name].state in CURRENT

    def _asked_names(self) -> set[str]:
        """Return the names of tables that a user asked for, or that are to be tried again now."""
        now = time.monotonic()
        return {
            name
            for name, row in self._rows.items()
            if row.state in REQUESTED
            or (row.state == RETRYING and self._retries.get(name, (now, 0.0))[0] <= now)
        }

    def _looked_at(self, planned: Collection[str]) -> set[str]:
        """Return the names of tables that another program has changed, of those looked at now."""
        known = [name for name in self._held if name in self._rows and self._is_applied(name)]
        names = [name for name in self._looks.due(known) if name not in planned]
        same = self._threads.map(self._is_same, names)
        return {name for name, is_same in zip(names, same, strict=True) if not is_same}

    def _request(self, name: str, number: int, *, is_sure: bool) -> tuple[Request, TableStatus]:
        version = self._held[name]
        row = self._rows.get(name) or TableStatus(name, version.relation.oid)
        request = Request(name, version, row.state, _quiet(self._lifted(row) if is_sure else row))
        return request, replace(row, changes=0, batch=number)

    def _new(self, held: Mapping[str, RelationVersion], whole: LogRange) -> set[str]:
        """Return the names of new tables, of which rows are added.

        A relation of which the log has nothing is a partition that is published as its root. It may
        also have changes that were pruned, of which a new mirror reports the error.
        """
        oids = {name: each.relation.oid for name, each in held.items() if name not in self._rows}
        unknown = set(oids.values()) - self._without_rows.keys()
        found = self._tables.among(unknown)
        for lsn in {self._without_rows[oid] for oid in oids.values() if oid not in unknown}:
            searched = {oid for oid in oids.values() if self._without_rows.get(oid) == lsn}
            if lsn < whole.until:
                found |= self._changed(max(lsn, self._log.begin.lsn), whole.until, searched)
        self._without_rows |= dict.fromkeys(set(oids.values()) - found, whole.until)
        begin = self._log.begin.lsn
        if not self._rows and begin:
            found |= set(self._log.relations_at(begin).relations)
        return {name for name, oid in oids.items() if oid in found}

    def _changed(self, after: int, until: int, oids: Collection[int]) -> set[int]:
        """Return those of some relations that may have changes in a range."""
        changed: set[int] = set()
        if oids:
            for each in self._log.plan(after, until, relation_oid=oids).changed:
                changed |= set(oids) if each is None else each & set(oids)
        return changed

    def _is_same(self, name: str) -> bool:
        """Return whether a table is as the mirror has left it; if not certain, it is planned."""
        row, relation = self._rows[name], self._held[name].relation
        try:
            return row.version is not None and self._context.lake.is_at(relation, row.version)
        except Exception:  # noqa: BLE001  (what is planned opens it, and reports the error)
            return False

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


def _is_news(before: TableStatus | None, row: TableStatus) -> bool:
    """Return whether people should see a status at once."""
    if before is None:
        return True
    return any(getattr(before, name) != getattr(row, name) for name in _NEWS)


def _quiet(row: TableStatus) -> Quiet | None:
    """Return the part of the log without changes that a status records."""
    if row.log_id is None or row.complete_lsn is None:
        return None
    return Quiet(row.log_id, row.relation_oid, row.commit_lsn, row.complete_lsn)
