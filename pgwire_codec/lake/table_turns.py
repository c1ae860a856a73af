"""TableTurns: tables that are brought to the end of a range of the log, each step by step.

The next step of a table is planned from its own state, tasks do the work, and a commit makes it
another state. The tasks of tables with the same piece of the log read it once for all of them.
After an error, a table goes on from the state that it has then.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Final, TypeAlias

import pyarrow as pa

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.log_range import LogRange
from pgwire_codec.lake.mirror_options import MirrorContext
from pgwire_codec.lake.plan import Alter, Apply, Create, Done, Quiet, Request, Step, lacking, plan
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.requests import moved_without_values
from pgwire_codec.lake.rewriting import commit_of, discard, rewrite
from pgwire_codec.lake.row_columns import DELETED
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import LOGGER, OK, REPLAYING, TableStatus
from pgwire_codec.lake.table_state import TableState
from pgwire_codec.lake.tables.column_steps import changed_schema
from pgwire_codec.lake.tables.target import Commit, CommitConflict, Target
from pgwire_codec.lake.task_errors import ends_all, error_of, may_pass
from pgwire_codec.lake.tasks import (
    ChangeFacts,
    DecodeTask,
    MergeOutcome,
    MergeTask,
    TableWork,
)
from pgwire_codec.log import Log, LogPlan
from pgwire_codec.log.dead_letters import names_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: Attempts at a table that other writers change meanwhile, and after other errors.
_ATTEMPTS_AFTER_CONFLICTS: Final = 20
_ATTEMPTS: Final = 3

#: Seconds before the second attempt; those before later ones are longer.
_PAUSE: Final = 0.05

#: Bytes of a table's messages that one task merges.
_BUCKET_BYTES: Final = 16 << 20

#: Facts and outcomes of tasks, by the relation's OID.
_Results: TypeAlias = "dict[int, tuple[ChangeFacts, list[MergeOutcome]]]"


@dataclass(slots=True)
class _Table:
    """A table in a turn."""

    request: Request
    status: TableStatus
    step: Step | None = None
    attempts: int = 0
    error: PgwireError | None = None
    _opened: tuple[Target, TableState] | None = None

    @property
    def oid(self) -> int:
        return self.request.oid

    @property
    def name(self) -> str:
        return self.request.table

    @property
    def work(self) -> Apply:
        assert isinstance(self.step, Apply)
        return self.step

    @property
    def target(self) -> Target:
        """The table of the lake, as of the state that its step was planned on."""
        assert self._opened is not None
        return self._opened[0]

    @property
    def state(self) -> TableState:
        """State that its step was planned on."""
        assert self._opened is not None
        return self._opened[1]

    def open(self, lake: Lake) -> None:
        """Read the newest state of the table."""
        target = lake.open(self.request.version.relation)
        self._opened = target, TableState.from_target(target)


class TableTurns:
    """Brings tables to the end of a range. The log must not be refreshed meanwhile.

    ``threads`` open and commit tables side by side.
    """

    def __init__(self, log: Log, whole: LogRange, context: MirrorContext, threads: Threads) -> None:
        self._log = log
        self._whole = whole
        self._context = context
        self._options = context.options
        self._letters = context.letters
        self._threads = threads

    def run(self, requests: Mapping[str, tuple[Request, TableStatus]]) -> dict[str, TableStatus]:
        """Apply the changes of tables; return their statuses, but for tables that wait.

        Raises ``PgwireError`` for an error that concerns all tables, such as a full disk.
        """
        tables = {name: _Table(*each) for name, each in requests.items()}
        active = list(tables.values())
        while active:
            self._all(self._advance, active)
            groups: dict[tuple[int, int], list[_Table]] = {}
            for table in active:
                if isinstance(table.step, Apply):
                    piece = table.step.piece
                    groups.setdefault((piece.after, piece.until), []).append(table)
            for bounds, group in groups.items():
                self._exchange(group, bounds)
            active = [
                table
                for table in active
                if table.error is None and (table.step is None or isinstance(table.step, Apply))
            ]
        return {
            name: table.status
            for name, table in tables.items()
            if table.error is not None or isinstance(table.step, Done)
        }

    def _all(self, act: Callable[[_Table], None], tables: Sequence[_Table]) -> list[_Table]:
        """Act on tables side by side; return those for which nothing failed."""
        done = self._threads.map(lambda table: self._attempt(table, act), tables)
        return [table for table, is_done in zip(tables, done, strict=True) if is_done]

    def _attempt(self, table: _Table, act: Callable[[_Table], None]) -> bool:
        """Return whether an action did not fail. After most errors, the table is planned again."""
        try:
            act(table)
        except Exception as error:
            found = error_of(error, table.name)
            if ends_all(found):
                raise found from error
            self._context.lake.forget(table.request.version.relation)
            table.step = None
            table.attempts += 1
            is_conflict = isinstance(found, CommitConflict)
            most = _ATTEMPTS_AFTER_CONFLICTS if is_conflict else _ATTEMPTS
            # Errors of other programs may pass; a later version may not have a missing file.
            is_repeated = is_conflict or found.is_transient or not isinstance(error, PgwireError)
            if is_repeated and table.attempts < most:
                level = logging.INFO if is_conflict else logging.WARNING
                LOGGER.log(level, "%s failed, and is tried again: %s", table.name, found.primary)
                time.sleep(_PAUSE * min(table.attempts, 10) * random.random())
                return False
            table.error = found
            table.status = self._failed(table, found)
            return False
        return True

    def _failed(self, table: _Table, error: PgwireError) -> TableStatus:
        status = replace(table.status, relation_oid=table.oid)
        if (quiet := table.request.quiet) is not None and quiet.relation_oid == table.oid:
            status = replace(
                status,
                log_id=quiet.log_id,
                commit_lsn=quiet.commit_lsn,
                complete_lsn=quiet.until,
            )
        if self._options.dead_letters:  # they may have been recorded before the error
            status = replace(status, dead_letters=self._letters.count(table.oid))
        return status.failed(error, may_pass=may_pass(error))

    def _advance(self, table: _Table) -> None:
        """Plan the next step; do those that read no changes, until one does or none is left."""
        while True:
            table.open(self._context.lake)
            step = plan(table.state, self._with_letters(table), self._whole, self._options)
            if isinstance(step, Create):
                position = Position(self._whole.until, table.oid)
                text = step.record.to_text()
                table.target.commit(Commit(position, schema=step.schema, record=text))
            elif isinstance(step, Alter):
                self._alter(table, step)
            else:
                break
        table.step = step
        if isinstance(step, Done):
            self._done(table, table.state, step.complete_lsn)
        elif isinstance(step, Apply) and self._options.dead_letters:
            self._forget_letters_of_former(table)

    def _with_letters(self, table: _Table) -> Request:
        if table.request.state != REPLAYING:
            return table.request
        return replace(table.request, letters_lsn=self._letters.first_lsn(table.oid))

    def _alter(self, table: _Table, step: Alter) -> None:
        target, schema, text = table.target, table.state.schema, step.record.to_text()
        assert schema is not None
        if target.takes(step.steps) and not step.constants:
            changed = changed_schema(schema, step.steps)
            target.commit(Commit(target.position, schema=changed, steps=step.steps, record=text))
        else:
            runner = self._context.runner
            rewrite(target, runner, step.steps, constants=step.constants, record=text)
        self._record_evolutions(table, step.evolutions)

    def _record_evolutions(self, table: _Table, evolutions: tuple[str, ...]) -> None:
        for text in evolutions:
            LOGGER.warning("%s: %s", table.name, text)
        table.status = replace(table.status, evolutions=(*table.status.evolutions, *evolutions))

    def _done(self, table: _Table, state: TableState, complete_lsn: int) -> None:
        """Complete the status of a table that has all changes of the range."""
        table.step = Done(complete_lsn)
        record, status = state.record, table.status
        if self._options.dead_letters:
            status = replace(status, dead_letters=self._letters.count(table.oid))
        lacks = {} if self._options.row_columns.is_history else record.incomplete
        table.status = replace(
            status.current(lacks, record.others),
            relation_oid=table.oid,
            log_id=self._whole.identity.log_id,
            commit_lsn=state.position.commit_lsn,
            version=state.version,
            complete_lsn=complete_lsn,
            masks=record.masks,
            row_columns=record.row_columns,
        )

    def _exchange(self, tables: Sequence[_Table], bounds: tuple[int, int]) -> None:
        """Decode a range, and apply the changes of tables whose next piece it is."""
        by_oid = {table.oid: table for table in tables}
        plan_ = self._log.plan(
            *bounds, relation_oid=[*by_oid], on_error=self._options.decoder.on_error
        )
        sizes, changed = self._sizes(plan_, by_oid)
        works: dict[int, TableWork] = {}

        def prepare(table: _Table) -> None:
            inserts_only = table.oid not in changed
            works[table.oid] = self._work(table, sizes[table.oid], inserts_only=inserts_only)

        ready = self._all(prepare, tables)
        if not ready:
            return
        results = self._run(plan_, works)
        self._record_unnamed(results, works)

        def finish(table: _Table) -> None:
            self._finish(table, works[table.oid], *results[table.oid])

        self._all(finish, ready)

    def _work(self, table: _Table, message_bytes: int, *, inserts_only: bool) -> TableWork:
        """Return the work of tasks; ``message_bytes`` are those of the piece at most."""
        step, target = table.work, table.target
        empties = step.replaces or target.schema is None
        files = replace(target.files, files=()) if empties else target.files
        has_no_keys = step.form.keys is None
        appends = self._options.row_columns.is_history
        appends |= inserts_only and (has_no_keys or files.is_empty)
        buckets = 1 if appends else max(1, -(-message_bytes // _BUCKET_BYTES))
        schema = target.file_schema(step.schema)
        return TableWork(step.form, schema, files, target.layout, appends, buckets)

    def _finish(
        self, table: _Table, work: TableWork, facts: ChangeFacts, outcomes: list[MergeOutcome]
    ) -> None:
        """Commit the results of a piece's tasks, and record how far the table is."""
        try:
            commit = self._commit_of(table, facts, outcomes)
        except Exception:
            discard(work.target, outcomes, facts.files)
            raise
        step, target = table.work, table.target
        former = target.position.relation
        if commit is not None:
            try:
                target.commit(commit)
            except CommitConflict:
                discard(work.target, outcomes, facts.files)
                raise
            self._complete_columns(target)
        self._forget_letters(table, facts, former)
        self._record_evolutions(table, step.evolutions)
        if facts.rows:
            last = _EPOCH + timedelta(microseconds=facts.last_time)
            changes = table.status.changes + facts.rows
            table.status = replace(table.status, commit_time=last, changes=changes)
        state, request = TableState.from_target(target), table.request
        lsn = None if state.schema is None else state.position.commit_lsn
        relation = request.oid if lsn is None else state.position.relation
        until = max(step.piece.until, lsn or 0)
        quiet = Quiet(self._whole.identity.log_id, relation or 0, lsn, until)
        table.request = replace(request, quiet=quiet, state=OK)  # what was asked for is done
        table.attempts = 0
        if until >= self._whole.until and state.schema is not None:
            self._done(table, state, until)

    def _commit_of(
        self, table: _Table, facts: ChangeFacts, outcomes: list[MergeOutcome]
    ) -> Commit | None:
        """Return the commit of a piece; None without changes.

        Files that replace others are added to the outcomes. Raises the error of a task.
        """
        step = table.work
        if facts.letters is not None and not step.is_replay:
            # Before their changes are missing in the target.
            self._letters.record(facts.letters)
            LOGGER.warning("changes of %s do not decode, and are left out", table.name)
        if step.is_replay and facts.moved:
            raise moved_without_values(table.name, facts.moved[0].column("_commit_lsn")[0].as_py())
        error = facts.error or next((each.error for each in outcomes if each.error), None)
        if error is not None:
            raise error
        if not facts.rows:
            return None
        target, before, lsn = table.target, table.state.position, facts.last_lsn
        if step.is_replay:
            lsn = max(lsn, before.commit_lsn or 0)  # it ends where the table is
        is_history = self._options.row_columns.is_history
        replaces = step.replaces or (facts.truncated is not None and not is_history)
        truncated = None if facts.truncated is None else facts.truncated.commit_lsn
        record = step.record
        if not is_history:
            record = replace(record, incomplete=lacking(step, facts.first_lsn, truncated))
        if replaces:
            record = replace(record, others=())
        return commit_of(
            target,
            self._context.runner,
            Position(lsn, table.oid),
            outcomes,
            facts.files,
            replaces=replaces,
            schema=step.schema,
            record=record.to_text(),
        )

    def _complete_columns(self, target: Target) -> None:
        """Record which of the incomplete columns are still null in a row."""
        state = TableState.from_target(target)
        columns, schema = state.record.incomplete, state.schema
        if not columns or schema is None:
            return
        deleted = DELETED if self._options.row_columns.keeps_deleted else None
        left = {
            name: lsn
            for name, lsn in columns.items()
            if name in schema.names and target.files.has_nulls(schema.field(name), deleted)
        }
        if left != columns:
            record = replace(state.record, incomplete=left).to_text()
            target.commit(Commit(state.position, record=record, keeps_rows=True))

    def _forget_letters_of_former(self, table: _Table) -> None:
        """Delete the letters of a table that is written again from the log's beginning."""
        quiet = table.request.quiet
        if table.state.schema is None and (quiet is None or quiet.until != table.work.piece.after):
            self._letters.replace(table.oid, None)

    def _forget_letters(self, table: _Table, facts: ChangeFacts, former: int | None) -> None:
        """Delete the letters of changes that the table has now, and of rows that are gone."""
        if table.work.is_replay:
            self._letters.replace(table.oid, facts.letters)
        if table.status.dead_letters or self._options.dead_letters:
            if not self._options.row_columns.is_history:
                truncated = None if facts.truncated is None else facts.truncated.commit_lsn
                self._letters.delete_lost(table.oid, former, truncated)
            count = self._letters.count(table.oid)
            table.status = replace(table.status, dead_letters=count)

    def _run(self, plan_: LogPlan, works: Mapping[int, TableWork]) -> _Results:
        """Run the tasks; return their results by relation."""
        results = self._run_once(plan_, works)
        moved: dict[int, TableWork] = {}
        for oid, work in works.items():
            facts, _ = results[oid]
            if facts.moved and work.buckets > 1:
                keys = pa.concat_tables(facts.moved).drop_columns("_commit_lsn")
                moved[oid] = replace(work, pinned=keys)
        if moved:  # what was not sent is in the bucket of another key
            for oid, work in moved.items():
                facts, outcomes = results[oid]
                discard(work.target, outcomes, facts.files)
            again = self._run_once(plan_, moved)
            results |= {oid: again[oid] for oid in moved}
        return results

    def _run_once(self, plan_: LogPlan, works: Mapping[int, TableWork]) -> _Results:
        names: dict[int, str] = {}
        if self._options.dead_letters:
            names = names_of(self._log.relations_at(plan_.until))
        lean = {oid: work.without_files() for oid, work in works.items()}
        decode = DecodeTask(lean, self._options.decoder, names)
        partitions = [
            partition
            for partition, changed in zip(plan_.partitions, plan_.changed, strict=True)
            if changed is None or not changed.isdisjoint(works)
        ]
        size = sum(extent.length for each in partitions for extent in each.extents)
        found, merged = self._context.runner.exchange(decode, partitions, MergeTask(works), size)
        results: _Results = {oid: (ChangeFacts(oid), []) for oid in works}
        for facts in found:
            oid = facts.relation_oid
            results.setdefault(oid, (ChangeFacts(oid), []))[0].join(facts)
        for outcome in merged:
            results[outcome.relation_oid][1].append(outcome)
        return results

    def _sizes(self, plan_: LogPlan, oids: Collection[int]) -> tuple[dict[int, int], set[int]]:
        """Return bytes of tables' messages at most, and the tables with others than inserts."""
        sizes = dict.fromkeys(oids, 0)
        numbers = {self._log.number_of(each.first_ordinal) for each in plan_.partitions}
        for partition, changed in zip(plan_.partitions, plan_.changed, strict=True):
            size = sum(extent.length for extent in partition.extents)
            for oid in sizes if changed is None else changed & sizes.keys():
                sizes[oid] += size
        others: set[int] = set()
        counted = dict.fromkeys(oids, 0)
        for segment in map(self._log.segment, numbers):
            for count in segment.tables:
                if not count.relation_oid:
                    others |= sizes.keys()
                if count.updates or count.deletes or count.truncates:
                    others.add(count.relation_oid)
                if count.relation_oid in counted:
                    counted[count.relation_oid] += count.bytes
        return {oid: min(size, counted[oid]) for oid, size in sizes.items()}, others

    def _record_unnamed(self, results: _Results, works: Mapping[int, TableWork]) -> None:
        """Record the dead letters that belong to no table of the mirror."""
        known = self._log.relations_at().relations
        for oid, (facts, _) in results.items():
            if facts.letters is not None and oid not in works and oid not in known:
                self._letters.record(facts.letters)
                LOGGER.warning("messages that do not decode belong to no known table")
