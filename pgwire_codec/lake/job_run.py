"""JobRun: jobs of tables side by side, whose tasks read the log once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake.mirror_options import MirrorContext
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.status import LOGGER, TableStatus
from pgwire_codec.lake.table_job import TableJob
from pgwire_codec.lake.tables.target import CommitConflict
from pgwire_codec.lake.task_errors import ends_all, error_of
from pgwire_codec.lake.tasks import ChangeFacts, DecodeTask, MergeOutcome, MergeTask, TableWork
from pgwire_codec.log import Log, LogPlan
from pgwire_codec.log.dead_letters import names_of

#: Attempts at a table that other writers change meanwhile, and after an error of another program.
_ATTEMPTS: Final = 5
_ATTEMPTS_AFTER_ERRORS: Final = 2

#: Facts and outcomes of tasks, by the relation's OID.
_Results: TypeAlias = "dict[int, tuple[ChangeFacts, list[MergeOutcome]]]"


class JobRun:
    """Runs the jobs of a turn. The log must not be refreshed meanwhile.

    ``threads`` open and commit tables side by side.
    """

    def __init__(self, log: Log, context: MirrorContext, threads: Threads) -> None:
        self._log = log
        self._context = context
        self._threads = threads
        self._errors: dict[int, PgwireError] = {}
        self._attempts: dict[int, int] = {}
        self._repeated: list[TableJob] = []

    def run(self, jobs: Mapping[str, TableJob]) -> dict[str, TableStatus | PgwireError]:
        """Apply the changes of tables; return their statuses, or their errors.

        Raises ``PgwireError`` for an error that concerns all tables, such as a full disk.
        """
        active = self._all(TableJob.open, list(jobs.values()))
        while groups := self._groups(active):
            for place, group in groups.items():
                self._exchange(group, place)
            again, self._repeated = self._repeated, []
            reopened = {id(job) for job in self._all(TableJob.open, again)}
            dropped = {id(job) for job in again} - reopened
            active = [
                job for job in active if job.oid not in self._errors and id(job) not in dropped
            ]
        done = {job.oid for job in self._all(TableJob.close, active)}
        return {
            name: self._errors.get(job.oid, job.status)
            for name, job in jobs.items()
            if job.oid in done or job.oid in self._errors
        }

    def _all(self, step: Callable[[TableJob], object], jobs: Sequence[TableJob]) -> list[TableJob]:
        """Do a step of jobs side by side; return those for which it was done."""
        done = self._threads.map(lambda job: self._attempt(job, step), jobs)
        return [job for job, is_done in zip(jobs, done, strict=True) if is_done]

    def _attempt(self, job: TableJob, step: Callable[[TableJob], object]) -> bool:
        """Return whether a step of a job was done. After an error it may be repeated.

        An error that is not one of this package may pass.
        """
        try:
            return step(job) is not False
        except Exception as error:
            found = error_of(error, job.status.table)
            if ends_all(found):
                raise found from error
            self._context.lake.forget(job.relation)
            attempts = self._attempts[job.oid] = self._attempts.get(job.oid, 0) + 1
            most = _ATTEMPTS_AFTER_ERRORS
            if isinstance(error, PgwireError):
                most = _ATTEMPTS if isinstance(error, CommitConflict) else 0
            if attempts >= most:
                self._errors[job.oid] = found
            else:
                LOGGER.warning("%s failed, and is tried again: %s", job.status.table, error)
                self._repeated.append(job)
            return False

    @staticmethod
    def _groups(jobs: Sequence[TableJob]) -> dict[tuple[int, int], list[TableJob]]:
        """Return jobs by the range of their next pieces."""
        groups: dict[tuple[int, int], list[TableJob]] = {}
        for job in jobs:
            if job.pieces:
                groups.setdefault((job.pieces[0].after, job.pieces[0].until), []).append(job)
        return groups

    def _exchange(self, jobs: Sequence[TableJob], place: tuple[int, int]) -> None:
        """Decode a range, and merge the changes of tables whose next piece it is."""
        oids = [job.oid for job in jobs]
        plan = self._log.plan(
            *place, relation_oid=oids, on_error=self._context.options.decoder.on_error
        )
        sizes, changed = self._sizes(plan, oids)
        works: dict[int, TableWork] = {}

        def prepare(job: TableJob) -> None:
            works[job.oid] = job.prepare(sizes[job.oid], inserts_only=job.oid not in changed)

        ready = self._all(prepare, jobs)
        if not ready:
            return
        works = {job.oid: works[job.oid] for job in ready}
        results = self._run(plan, works)
        self._record_unnamed(results, works)

        def finish(job: TableJob) -> None:
            result = results[job.oid]
            try:
                job.finish(*result)
            except Exception:
                if not job.may_be_committed:
                    _discard(works[job.oid], *result)
                raise

        self._all(finish, ready)

    def _run(self, plan: LogPlan, works: Mapping[int, TableWork]) -> _Results:
        """Run the tasks; return their results by relation."""
        results = self._run_once(plan, works)
        moved: dict[int, TableWork] = {}
        for oid, work in works.items():
            facts, _ = results[oid]
            if facts.moved and work.buckets > 1:
                keys = pa.concat_tables(facts.moved).drop_columns("_commit_lsn")
                moved[oid] = replace(work, pinned=keys)
        if moved:  # what was not sent is in the bucket of another key
            for oid, work in moved.items():
                _discard(work, *results[oid])
            again = self._run_once(plan, moved)
            results |= {oid: again[oid] for oid in moved}
        return results

    def _run_once(self, plan: LogPlan, works: Mapping[int, TableWork]) -> _Results:
        names: dict[int, str] = {}
        if self._context.options.dead_letters:
            names = names_of(self._log.relations_at(plan.until))
        lean = {oid: work.without_files() for oid, work in works.items()}
        decode = DecodeTask(lean, self._context.options.decoder, names)
        partitions = [
            partition
            for partition, changed in zip(plan.partitions, plan.changed, strict=True)
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

    def _sizes(self, plan: LogPlan, oids: Collection[int]) -> tuple[dict[int, int], set[int]]:
        """Return bytes of tables' messages at most, and the tables with others than inserts."""
        sizes = dict.fromkeys(oids, 0)
        numbers = {self._log.number_of(each.first_ordinal) for each in plan.partitions}
        for partition, changed in zip(plan.partitions, plan.changed, strict=True):
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
                self._context.letters.record(facts.letters)
                LOGGER.warning("messages that do not decode belong to no known table")


def _discard(work: TableWork, facts: ChangeFacts, outcomes: Sequence[MergeOutcome]) -> None:
    """Remove the data files of a commit that does not come."""
    files = [*facts.files, *(file for outcome in outcomes for file in outcome.files)]
    for file in files:
        work.target.folder.remove(file.path)
