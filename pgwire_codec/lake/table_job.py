"""TableJob: the changes of one table, from where its target is to a commit LSN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Final

import pyarrow as pa

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.changes.identity import column_names, key_columns
from pgwire_codec.errors import LogError, TableError
from pgwire_codec.lake.evolution import COLUMN_LISTS, ColumnHistory, evolution_steps
from pgwire_codec.lake.log_range import LogRange, Piece, pieces_of
from pgwire_codec.lake.masks import CONSTANT, constant
from pgwire_codec.lake.mirror_options import MirrorContext
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.requests import check_history, check_keys, moved_without_values
from pgwire_codec.lake.rewriting import copy_without, rewrite
from pgwire_codec.lake.row_columns import DELETED
from pgwire_codec.lake.row_form import RowForm
from pgwire_codec.lake.status import LOGGER, REPLAYING, RESUMING, TableStatus
from pgwire_codec.lake.tables.column_steps import AddColumn, ClearColumn, changed_schema
from pgwire_codec.lake.tables.target import Commit, CommitConflict, Target
from pgwire_codec.lake.tasks import ChangeFacts, MergeOutcome, TableWork, deleted_rows
from pgwire_codec.log.relation_history import VersionInForce
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: Bytes of a table's messages that one task merges.
_BUCKET_BYTES: Final = 16 << 20


class TableJob:
    """Applies changes of a table, piece by piece.

    ``status`` is that before the changes, and ``version`` is the relation that has the name at the
    range's end.
    """

    def __init__(
        self, status: TableStatus, version: RelationVersion, whole: LogRange, context: MirrorContext
    ) -> None:
        #: State after the pieces until now.
        self.status = status
        self.oid = version.relation.oid
        #: Pieces that remain.
        self.pieces: list[Piece] = []
        #: True if the target may have the data files of the piece.
        self.may_be_committed = False
        self._version = version
        self._range = whole
        self._context = context
        self._options = context.options
        self._letters = context.letters
        self._target: Target | None = None
        self._begin = 0
        self._is_rebuilt = False  # by a truncate at the beginning of the range
        self._is_replay = False
        self._replaces = False
        self._columns = pa.schema([])
        self._altered: dict[str, None] = {}  # changes of the columns, in order
        self._since: dict[str, int] = {}  # columns that may lack values
        self._uncertain: frozenset[str] = frozenset()  # those only if a change precedes them

    @property
    def relation(self) -> Relation:
        """The relation, as of the range's end."""
        return self._version.relation

    @property
    def target(self) -> Target:
        """The table of the lake, in its newest state when the piece was prepared."""
        assert self._target is not None
        return self._target

    @property
    def _is_history(self) -> bool:
        return self._options.row_columns.is_history

    def _count_letters(self) -> None:
        self.status = replace(self.status, dead_letters=self._letters.count(self.oid))

    def open(self) -> bool:
        """Find the pieces that remain; return False if the table waits for a later range."""
        self._target = self._context.lake.open(self.relation)
        until, state = self._range.until, self.status.state
        if state == REPLAYING and (begin := self._replay_from()) is not None:
            self._begin, self._is_replay = begin, True
        elif state == RESUMING and not self._is_history and (place := self._truncated()):
            if place > until:
                return False
            self._begin, self._is_rebuilt = place - 1, True
        else:
            self._begin = self._after()
        self._recover_columns()
        self.status = replace(self.status, relation_oid=self.oid)
        is_written_again = self.target.schema is None and self._begin != self.status.whole_lsn
        if self._options.dead_letters and is_written_again:
            self._letters.replace(self.oid, None)
            self._count_letters()
        if self._begin < until:
            versions = self._range.between(self.oid, self._begin, until)
            if self._is_replay:
                check_history(self.status.table, versions)
            *others, last = pieces_of(versions, self._begin, until)
            # A piece without changes must not change columns: the target may have later ones.
            self.pieces = [each for each in others if self._range.has_changes(self.oid, each)]
            self.pieces.append(last)
        return True

    def _recover_columns(self) -> None:
        """Find the columns that rows lack since a turn whose status was not written."""
        position, status = self.target.position, self.status
        known = status.whole_lsn if status.relation_oid == self.oid else None
        known = max(known or 0, self._range.begin)
        lsn = position.commit_lsn or 0
        if self._is_history or position.relation != self.oid or lsn <= known:
            return
        found = pieces_of(self._range.between(self.oid, known, lsn), known, lsn)
        names = _names(found[-1].versions[-1]) if found else set()
        since = {
            name: piece.since(name)
            for piece in found
            for name in _names(piece.versions[-1]) - _names(piece.versions[0])
        }
        lacking = {name: since[name] for name in sorted(since.keys() & names)}
        if lacking:
            lacking = self._with_nulls(found[-1].versions[-1], lacking)
            self.status = self.status.kept(self.status.incomplete_columns | lacking)

    def prepare(self, message_bytes: int, *, inserts_only: bool) -> TableWork:
        """Prepare the target for the next piece; return the work of tasks.

        ``message_bytes`` are those of the piece. With ``inserts_only``, it has no other changes.
        """
        piece = self.pieces[0]
        target = self._target = self._context.lake.open(self.relation)
        relation, table = piece.versions[-1], self.status.table
        self._options.masks.check_versions(table, piece.versions)
        is_other = target.position.relation not in (None, self.oid)
        is_first = target.schema is None or is_other
        rows = self._form(piece, of_log=is_first and not self._is_rebuilt)
        self._replaces, self._since, self._uncertain = False, {}, frozenset()
        self.may_be_committed = False
        held = target.schema
        if held is None:
            self._warn_of_appends(relation)
            columns = rows.columns
            added = _names(relation) - _names(piece.versions[0])
        else:
            columns, added = self._fit(piece, rows, held, is_other=is_other)
            if columns is not rows.columns:
                rows = rows.with_target(columns)
        rows.check_names()
        empties = self._replaces or held is None
        files = replace(target.files, files=()) if empties else target.files
        if not self._is_history:
            new = {name: piece.since(name) for name in sorted(added)}
            self._since = new if empties else self.status.incomplete_columns | new
            self._uncertain = frozenset(new if files.is_empty else ())
        appends = self._is_history or (inserts_only and (rows.keys is None or files.is_empty))
        buckets = 1 if appends else max(1, -(-message_bytes // _BUCKET_BYTES))
        self._columns = columns
        file_schema = target.file_schema(columns)
        return TableWork(rows, file_schema, files, target.layout, appends, buckets)

    def finish(self, facts: ChangeFacts, outcomes: list[MergeOutcome]) -> None:
        """Commit the results of the piece's tasks.

        Files that replace others are added to the outcomes. Raises ``CommitConflict`` if the piece
        is to be prepared again.
        """
        piece = self.pieces[0]
        if facts.letters is not None and not self._is_replay:
            # Before their changes are missing in the target.
            self._letters.record(facts.letters)
            self._count_letters()
            LOGGER.warning("changes of %s do not decode, and are left out", self.status.table)
        if self._is_replay and facts.moved:
            raise moved_without_values(
                self.status.table, facts.moved[0].column("_commit_lsn")[0].as_py()
            )
        error = facts.error or next((each.error for each in outcomes if each.error), None)
        if error is not None:
            raise error
        former = self.target.position.relation
        if facts.rows:
            self._commit(facts, outcomes)
        if self._is_replay:
            self._letters.replace(self.oid, facts.letters)
            self._count_letters()
        if not self._is_history:
            if self.status.dead_letters:
                truncated = None if facts.truncated is None else facts.truncated.commit_lsn
                self._letters.delete_lost(self.oid, former, truncated)
                self._count_letters()
            self.status = self.status.kept(self._lacking(piece, facts))
        for step in self._altered:
            LOGGER.warning("%s: %s", self.status.table, step)
        time = self.status.commit_time
        if facts.rows:
            time = _EPOCH + timedelta(microseconds=facts.last_time)
        self.status = replace(
            self.status,
            masks=self._options.masks.recorded(self.status.table, piece.versions[-1]),
            row_columns=self._options.row_columns.names,
            commit_time=time,
            changes=self.status.changes + facts.rows,
            evolutions=(*self.status.evolutions, *self._altered),
        )
        self._altered.clear()
        self.pieces.pop(0)

    def _lacking(self, piece: Piece, facts: ChangeFacts) -> dict[str, int]:
        """Return the columns that are null in rows from before they were there."""
        lacking = {
            name: lsn
            for name, lsn in self._since.items()
            if name not in self._uncertain or -1 < facts.first_lsn < lsn
        }
        if facts.truncated is not None:
            truncated = facts.truncated.commit_lsn
            lacking = {name: lsn for name, lsn in lacking.items() if lsn > truncated}
        return self._with_nulls(piece.versions[-1], lacking) if lacking else {}

    def close(self) -> None:
        """Create a missing target, without rows, and complete the status."""
        target = self._target = self._context.lake.open(self.relation)
        if target.schema is None:
            self._create(target)
        if self._options.dead_letters:
            self._count_letters()
        self.status = replace(
            self.status.kept(self.status.incomplete_columns),
            commit_lsn=target.position.commit_lsn,
            version=target.version,
            whole_lsn=max(self._begin, self._range.until),
        )

    def _create(self, target: Target) -> None:
        until = self._range.until
        rows = self._form(Piece(until, until, [VersionInForce(until, self._version)]), of_log=True)
        rows.check_names()
        target.commit(Commit(Position(until, self.oid), schema=rows.columns))
        self.status = replace(
            self.status,
            masks=self._options.masks.recorded(self.status.table, self.relation),
            row_columns=self._options.row_columns.names,
        )

    def _form(self, piece: Piece, *, of_log: bool) -> RowForm:
        """Return the form of the rows of a piece; its columns can have types for the whole log."""
        newest = piece.declared[-1]
        versions = self._range.versions(self.oid) if of_log else piece.declared
        return RowForm.create(
            self.status.table, newest, [*versions, newest], self._options, self._range
        )

    def _fit(
        self, piece: Piece, rows: RowForm, held: pa.Schema, *, is_other: bool
    ) -> tuple[pa.Schema, set[str]]:
        """Have the target's columns follow those of a piece.

        Return the target's columns for the new rows, and the columns that older rows lack.
        """
        table, target, relation = self.status.table, self.target, piece.versions[-1]
        form, policy = self._options.row_columns, self._options.policies.of(table)
        evolves = policy in ("evolve", "rename")
        if target.position.commit_lsn is not None:
            form.check_recorded(table, self.status.row_columns, held.names)
        if is_other and policy == "fail":
            raise TableError(
                f"relation {self.oid} has the name {table} now, which relation "
                f"{target.position.relation} had",
                hint='Use `on_schema_change="evolve"`, and resume the table.',
            )
        self._replaces = (is_other or self._is_rebuilt) and not self._is_history
        if self._replaces and evolves:
            step = f"replace all rows by those after {format_lsn(piece.after)}"
            if is_other:
                step = f"replace relation {target.position.relation} by {self.oid}"
            self._altered[step] = None
            return rows.columns, _names(relation) - _names(piece.versions[0])
        self._options.masks.check_recorded(table, self.status.masks, piece.versions[0], relation)
        history = ColumnHistory.of(
            [relation] if is_other else piece.versions,
            renames=policy == "rename" or self._range.server_version < COLUMN_LISTS,
        )
        if history.renamed:
            self._check_renamed(piece, history)
            known = self.status.incomplete_columns.items()
            self.status = self.status.kept(
                {history.renamed.get(name, name): lsn for name, lsn in known}
            )
        added = set(history.new) | (_names(relation) - {*held.names, *history.renamed.values()})
        self._alter(history, rows, held)
        changed = self.target.schema
        assert changed is not None
        form.check_held(table, changed.names)
        return changed, added

    def _alter(self, history: ColumnHistory, rows: RowForm, held: pa.Schema) -> None:
        """Change the columns of the target."""
        keys = set(rows.keys or ())
        columns = {column.name: column.type for column in held}
        wanted = {column.name: column.type for column in rows.columns}
        steps = evolution_steps(
            history, columns, wanted, self._options.policies.of(self.status.table)
        )
        if self._is_history:  # older rows keep what they had
            steps = [step for step in steps if not isinstance(step, ClearColumn)]
        new = {step.name for step in steps if isinstance(step, (AddColumn, ClearColumn))}
        if not self.target.files.is_empty and not new.isdisjoint(keys):
            raise TableError(
                f"column {', '.join(sorted(new & keys))} of the replica identity is new: it "
                "is null in the rows of the target, which updates do not find by it",
                hint='If it was renamed, use `on_schema_change="rename"`, and resume the table. '
                f"Otherwise: {COPY_AGAIN}",
            )
        dropped = [f"drop column {name}, which is kept" for name in history.dropped]
        self._altered |= dict.fromkeys([*map(str, steps), *dropped])
        if steps:
            target = self.target
            constants = {
                step.name: constant(rows.masks[step.name], step.kind)
                for step in steps
                if isinstance(step, AddColumn)
                and rows.masks.get(step.name, "").startswith(CONSTANT)
            }
            if target.takes(steps) and not constants:
                schema = changed_schema(held, steps)
                target.commit(Commit(target.position, schema=schema, steps=steps))
            else:
                rewrite(target, self._context.runner, steps, constants=constants)

    def _commit(self, facts: ChangeFacts, outcomes: list[MergeOutcome]) -> None:
        target, before = self.target, self.target.position
        lsn = facts.last_lsn
        if before.relation == self.oid and before.commit_lsn is not None:
            lsn = max(lsn, before.commit_lsn)  # a replay ends where the target is
        replaces = self._replaces or (facts.truncated is not None and not self._is_history)
        changed = target.schema is None or self._columns != target.schema
        deleted = {} if replaces else deleted_rows(outcomes)
        removed: tuple[str, ...] = ()
        if deleted and not target.marks:
            copies = copy_without(target, self._context.runner, deleted)
            outcomes.append(MergeOutcome(self.oid, copies))
            deleted, removed = {}, (*deleted,)
        commit = Commit(
            Position(lsn, self.oid),
            [*facts.files, *(file for outcome in outcomes for file in outcome.files)],
            deleted,
            removed,
            replaces=replaces and target.schema is not None,
            schema=self._columns if changed else None,
            counts={
                "numTargetRowsInserted": sum(each.inserted for each in outcomes)
                + sum(file.rows for file in facts.files),
                "numTargetRowsUpdated": sum(each.updated for each in outcomes),
                "numTargetRowsDeleted": sum(each.removed for each in outcomes),
            },
        )
        self.may_be_committed = True
        try:
            target.commit(commit)
        except CommitConflict:
            self.may_be_committed = False
            raise

    def _warn_of_appends(self, relation: Relation) -> None:
        has_identity = key_columns(relation) or relation.replica_identity == "f"
        if not self._is_history and not has_identity:
            LOGGER.warning("%s has no replica identity: its rows are appended", self.status.table)

    def _replay_from(self) -> int | None:
        """Return the commit LSN from which on changes are applied again; None for none."""
        oid, until = self.oid, self._range.until
        begin = self._letters.first_lsn(oid)
        self._count_letters()
        if begin is None or self.target.position.relation != oid:
            return None
        check_keys(self.status.table, self.relation, is_history=self._is_history)
        return min(begin, until)

    def _truncated(self) -> int | None:
        """Return the commit LSN of the log's last truncate that the target does not have."""
        position = self.target.position
        after = position.commit_lsn if position.relation == self.oid else None
        return self._range.last_truncate(self.oid, after or 0)

    def _after(self) -> int:
        """Return the commit LSN up to which the target has the relation's changes.

        A history has those of the relation that had the name before, and needs only later ones.
        """
        oid, status, target = self.oid, self.status, self.target
        whole = status.whole_lsn or 0
        # Such a table has no changes up to then, or only dead letters.
        is_new = target.schema is None and (status.relation_oid, status.commit_lsn) == (oid, None)
        if is_new and whole >= self._range.begin:
            return whole
        position = target.position
        is_other = position.relation != oid and not self._is_history
        if target.schema is None or position.commit_lsn is None or is_other:
            if self._range.was_pruned(oid):
                raise self._pruned()
            return self._range.begin
        known = status.relation_oid, status.commit_lsn
        is_known = known == (position.relation, position.commit_lsn)
        begin = (status.whole_lsn if is_known else None) or position.commit_lsn
        if begin < self._range.begin:
            raise self._pruned()
        return begin

    def _pruned(self) -> LogError:
        return LogError(
            f"earlier changes of {self.status.table} were pruned from {self._range.uri}, up to "
            f"{format_lsn(self._range.begin)}",
            hint=COPY_AGAIN,
        )

    def _check_renamed(self, piece: Piece, history: ColumnHistory) -> None:
        """Raise ``TableError`` if the transaction of a rename has changes under the former name."""
        begin = piece.after + 1
        partitions = self._range.plan(self.oid, piece.after, begin).partitions
        for batch in chain.from_iterable(partition.decode() for partition in partitions):
            names = _names(batch.relation) & set(history.renamed)
            if batch.relation.oid == self.oid and names:
                raise TableError(
                    f"column {', '.join(sorted(names))} of {self.status.table} was renamed in the "
                    f"transaction with commit LSN {format_lsn(begin)}, after other changes of the "
                    "table in it",
                    hint=f"{COPY_AGAIN} Rename a column in a transaction of its own.",
                )

    def _with_nulls(self, relation: Relation, columns: Mapping[str, int]) -> dict[str, int]:
        """Return those of some columns that the table still has, and that are null in a row."""
        target = self._context.lake.open(self.relation)
        schema = target.schema
        if schema is None:
            return {}
        held = _names(relation) & set(schema.names)
        deleted = DELETED if self._options.row_columns.keeps_deleted else None
        return {
            name: lsn
            for name, lsn in columns.items()
            if name in held and target.files.has_nulls(schema.field(name), deleted)
        }


def _names(relation: Relation) -> set[str]:
    return set(column_names(relation))
