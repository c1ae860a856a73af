"""plan: the next step of a table, from its state, the log and the options.

It changes nothing. The table's next state decides the step after that, also after an error, another
mirror's commit, or a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeAlias

import pyarrow as pa

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.changes.identity import column_names
from pgwire_codec.errors import LogError, TableError
from pgwire_codec.lake.evolution import COLUMN_LISTS, ColumnHistory, evolution_steps
from pgwire_codec.lake.log_range import LogRange, Piece, pieces_of
from pgwire_codec.lake.masks import CONSTANT, constant
from pgwire_codec.lake.mirror_options import MirrorOptions
from pgwire_codec.lake.requests import check_history, check_keys
from pgwire_codec.lake.row_form import RowForm
from pgwire_codec.lake.status import REPLAYING, RESUMING
from pgwire_codec.lake.table_state import TableRecord, TableState
from pgwire_codec.lake.tables.column_steps import AddColumn, ClearColumn, ColumnStep
from pgwire_codec.log.relation_history import VersionInForce
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion

#: Hint about a table of another log.
ANOTHER_LOG: Final = (
    "Mirror into another folder. Or replace the tables by those of this log with --replace "
    "(`replace=True`): it needs a log that begins with a snapshot."
)


@dataclass(frozen=True, slots=True)
class Quiet:
    """A part of the log without changes of a relation: a fact about the log alone."""

    log_id: str
    relation_oid: int
    commit_lsn: int | None  # of the last change before it, if there is one
    until: int


@dataclass(frozen=True, slots=True)
class Request:
    """The table as the log has it, and what is asked for it."""

    table: str  # ``schema.table``
    version: RelationVersion  # the relation that has the name at the range's end
    state: str  # of the status table: a user may have asked for the table
    quiet: Quiet | None = None
    letters_lsn: int | None = None  # commit LSN after which to read for a replay

    @property
    def oid(self) -> int:
        """OID of the relation."""
        return self.version.relation.oid


@dataclass(frozen=True, slots=True)
class Done:
    """The table has all changes up to a commit LSN."""

    complete_lsn: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The table is continued by a change after the range."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the table without rows."""

    schema: pa.Schema
    record: TableRecord


@dataclass(frozen=True, slots=True)
class Alter:
    """Change the columns of the table."""

    steps: tuple[ColumnStep, ...]
    constants: Mapping[str, pa.Scalar]  # values of new columns
    record: TableRecord
    evolutions: tuple[str, ...]  # for people


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the changes of a piece of the log in one commit."""

    piece: Piece
    form: RowForm
    schema: pa.Schema  # columns of the table after the commit
    record: TableRecord  # facts after the commit, before the changes decide on ``incomplete``
    replaces: bool = False  # all rows that the table has are replaced
    is_replay: bool = False
    #: Columns that rows lack only if a change precedes them.
    uncertain: frozenset[str] = frozenset()
    evolutions: tuple[str, ...] = field(default=())


Step: TypeAlias = Done | Wait | Create | Alter | Apply


def plan(state: TableState, request: Request, log: LogRange, options: MirrorOptions) -> Step:
    """Return the next step of a table.

    Raises ``TableError`` or ``LogError`` if it cannot be brought to the range's end.
    """
    return _Planner(state, request, log, options).step()


@dataclass(frozen=True, slots=True)
class _Start:
    after: int  # commit LSN after which changes are applied
    is_rebuilt: bool = False  # all rows are replaced by later ones
    is_replay: bool = False


class _Planner:
    def __init__(
        self, state: TableState, request: Request, log: LogRange, options: MirrorOptions
    ) -> None:
        self._state = state
        self._request = request
        self._log = log
        self._options = options
        self._oid = request.oid
        self._is_history = options.row_columns.is_history

    def step(self) -> Step:
        start, until = self._start(), self._log.until
        if start is None:
            return Wait()
        if start.after >= until:
            return Done(start.after) if self._state.schema is not None else self._create()
        versions = self._log.between(self._oid, start.after, until)
        if start.is_replay:
            check_history(self._request.table, versions)
            return self._apply(Piece(start.after, until, versions), start)
        *others, last = pieces_of(versions, start.after, until)
        # A piece without changes must not change columns: the target may have later ones.
        pieces = (piece for piece in others if self._log.has_changes(self._oid, piece))
        return self._apply(next(pieces, last), start)

    def _start(self) -> _Start | None:
        """Return where to begin; None if a later change replaces the rows."""
        request, log = self._request, self._log
        if self._is_of_another_log():
            return _Start(self._first(), is_rebuilt=self._state.schema is not None)
        has_rows_of = self._state.position.relation
        if (
            request.state == REPLAYING
            and request.letters_lsn is not None
            and has_rows_of == self._oid
        ):
            check_keys(request.table, request.version.relation, is_history=self._is_history)
            return _Start(min(request.letters_lsn, log.until), is_replay=True)
        if request.state == RESUMING and not self._is_history:
            has = self._state.position.commit_lsn if has_rows_of == self._oid else None
            truncated = log.last_truncate(self._oid, has or 0)
            if truncated is not None:
                return None if truncated > log.until else _Start(truncated - 1, is_rebuilt=True)
        return _Start(self._after())

    def _is_of_another_log(self) -> bool:
        """Return whether rows of another log are to be replaced; raise ``TableError`` if not."""
        state, log = self._state, self._log
        recorded = state.record.log
        if state.schema is None or state.position.commit_lsn is None or recorded == log.identity:
            return False
        table = self._request.table
        of_what = "another program" if recorded is None else str(recorded)
        if self._is_history:
            raise TableError(
                f"the history of {table} is from {of_what}, not from {log.identity}",
                hint="Mirror into another folder: a history is only appended to.",
            )
        if not self._options.replace:
            raise TableError(
                f"{table} has rows from {of_what}, not from {log.identity}", hint=ANOTHER_LOG
            )
        return True

    def _after(self) -> int:
        """Return the commit LSN up to which the table has the relation's changes.

        A history has those of the relation that had the name before, and needs only later ones.
        """
        position, quiet = self._state.position, self._request.quiet
        is_other = position.relation != self._oid and not self._is_history
        if self._state.schema is None or position.commit_lsn is None or is_other:
            if quiet is not None and self._is_valid(quiet, self._oid, None):
                return max(quiet.until, self._log.begin)
            return self._first()
        after = position.commit_lsn
        if quiet is not None and self._is_valid(quiet, position.relation, after):
            after = max(after, quiet.until)
        if after < self._log.begin:
            raise self._pruned()
        return after

    def _is_valid(self, quiet: Quiet, relation: int | None, commit_lsn: int | None) -> bool:
        known = quiet.log_id, quiet.relation_oid, quiet.commit_lsn
        return known == (self._log.identity.log_id, relation, commit_lsn)

    def _first(self) -> int:
        """Return the log's beginning, which has all changes of the relation."""
        if self._log.was_pruned(self._oid):
            raise self._pruned()
        return self._log.begin

    def _pruned(self) -> LogError:
        return LogError(
            f"earlier changes of {self._request.table} were pruned from {self._log.uri}, up to "
            f"{format_lsn(self._log.begin)}",
            hint=COPY_AGAIN,
        )

    def _create(self) -> Create:
        until, version = self._log.until, self._request.version
        piece = Piece(until, until, [VersionInForce(until, version)])
        rows = self._form(piece, of_log=True)
        rows.check_names()
        return Create(rows.columns, self._record(version.relation, TableRecord(), until))

    def _record(self, relation: Relation, former: TableRecord, columns_lsn: int) -> TableRecord:
        """Return the facts about a table that is written now."""
        options, names = self._options, _names(relation)
        return replace(
            former,
            log=self._log.identity,
            incomplete={name: lsn for name, lsn in former.incomplete.items() if name in names},
            masks=options.masks.recorded(self._request.table, relation),
            row_columns=options.row_columns.names,
            columns_lsn=max(columns_lsn, former.columns_lsn),
        )

    def _form(self, piece: Piece, *, of_log: bool) -> RowForm:
        """Return the form of the rows of a piece; its columns can have types for the whole log."""
        newest = piece.declared[-1]
        versions = self._log.versions(self._oid) if of_log else piece.declared
        return RowForm.create(
            self._request.table, newest, [*versions, newest], self._options, self._log
        )

    def _apply(self, piece: Piece, start: _Start) -> Apply | Alter:
        state, table, relation = self._state, self._request.table, piece.versions[-1]
        self._options.masks.check_versions(table, piece.versions)
        is_other = state.position.relation not in (None, self._oid)
        is_first = state.schema is None or is_other
        rows = self._form(piece, of_log=is_first and not start.is_rebuilt)
        replaces = state.schema is not None and not self._is_history
        replaces &= is_other or start.is_rebuilt
        policy = self._options.policies.of(table)
        evolutions: tuple[str, ...] = ()
        if is_other and policy == "fail":
            raise TableError(
                f"relation {self._oid} has the name {table} now, which relation "
                f"{state.position.relation} had",
                hint='Use `on_schema_change="evolve"`, and resume the table.',
            )
        if state.schema is None or (replaces and policy in ("evolve", "rename")):
            schema = rows.columns
            if replaces:
                evolutions = (self._replacement(piece, is_other=is_other),)
        else:
            altered = self._alter(piece, rows, is_other=is_other)
            if isinstance(altered, Alter):
                return altered
            schema, evolutions = state.schema, altered
            rows = rows.with_target(schema)
            self._options.row_columns.check_held(table, schema.names)
        rows.check_names()
        followed = piece.in_force[-1].commit_lsn
        if state.schema is None or replaces:
            new = _names(relation) - _names(piece.versions[0])
            lacking = {} if self._is_history else {name: piece.since(name) for name in sorted(new)}
            record = self._record(relation, TableRecord(incomplete=lacking), followed)
            uncertain = frozenset(lacking)
        else:
            moved = followed if len(piece.in_force) > 1 else 0
            record = self._record(relation, state.record, moved)
            uncertain = frozenset(record.incomplete if state.is_empty else ())
        return Apply(piece, rows, schema, record, replaces, start.is_replay, uncertain, evolutions)

    def _replacement(self, piece: Piece, *, is_other: bool) -> str:
        """Return what replaces the table's rows, for people."""
        if is_other:
            return f"replace relation {self._state.position.relation} by {self._oid}"
        return f"replace all rows by those after {format_lsn(piece.after)}"

    def _alter(self, piece: Piece, rows: RowForm, *, is_other: bool) -> Alter | tuple[str, ...]:
        """Return the change of the columns to those of a piece; without one, texts for people."""
        state, table, relation = self._state, self._request.table, piece.versions[-1]
        schema, record = state.schema, state.record
        assert schema is not None
        if state.position.commit_lsn is not None:
            form = self._options.row_columns
            form.check_recorded(table, record.row_columns, schema.names)
        policy = self._options.policies.of(table)
        versions = [relation] if is_other else self._unfollowed(piece)
        self._options.masks.check_recorded(table, record.masks, versions[0], relation)
        history = ColumnHistory.from_versions(
            versions, renames=policy == "rename" or self._log.server_version < COLUMN_LISTS
        )
        if history.renamed:
            self._check_renamed(piece, history)
        columns = {column.name: column.type for column in schema}
        wanted = {column.name: column.type for column in rows.columns}
        steps = evolution_steps(history, columns, wanted, policy)
        if self._is_history:  # older rows keep what they had
            steps = [step for step in steps if not isinstance(step, ClearColumn)]
        self._check_keys(steps, rows)
        dropped = tuple(f"drop column {name}, which is kept" for name in history.dropped)
        if not steps:
            return dropped
        former = {history.renamed.get(name, name): lsn for name, lsn in record.incomplete.items()}
        added = set(history.new) | (_names(relation) - {*schema.names, *history.renamed.values()})
        new = {} if self._is_history else {name: piece.since(name) for name in sorted(added)}
        constants = {
            step.name: constant(rows.masks[step.name], step.kind)
            for step in steps
            if isinstance(step, AddColumn) and rows.masks.get(step.name, "").startswith(CONSTANT)
        }
        record = replace(record, incomplete=former | new)
        return Alter(
            tuple(steps),
            constants,
            self._record(relation, record, piece.in_force[-1].commit_lsn),
            (*map(str, steps), *dropped),
        )

    def _unfollowed(self, piece: Piece) -> list[Relation]:
        """Return the versions of a piece from the one whose columns the table has."""
        followed = self._state.record.columns_lsn
        known = [each for each in piece.in_force if each.commit_lsn <= followed]
        later = [each for each in piece.in_force if each.commit_lsn > followed]
        return [each.relation for each in (*known[-1:], *later)]

    def _check_keys(self, steps: list[ColumnStep], rows: RowForm) -> None:
        """Raise ``TableError`` if a column of the key is null in rows that the table has."""
        new = {step.name for step in steps if isinstance(step, (AddColumn, ClearColumn))}
        keys = set(rows.keys or ())
        if not self._state.is_empty and not new.isdisjoint(keys):
            raise TableError(
                f"column {', '.join(sorted(new & keys))} of the replica identity is new: it "
                "is null in the rows of the target, which updates do not find by it",
                hint='If it was renamed, use `on_schema_change="rename"`, and resume the table. '
                f"Otherwise: {COPY_AGAIN}",
            )

    def _check_renamed(self, piece: Piece, history: ColumnHistory) -> None:
        """Raise ``TableError`` if the transaction of a rename has changes under the former name."""
        begin = piece.after + 1
        partitions = self._log.plan(self._oid, piece.after, begin).partitions
        for batch in chain.from_iterable(partition.decode() for partition in partitions):
            names = _names(batch.relation) & set(history.renamed)
            if batch.relation.oid == self._oid and names:
                raise TableError(
                    f"column {', '.join(sorted(names))} of {self._request.table} was renamed in "
                    f"the transaction with commit LSN {format_lsn(begin)}, after other changes of "
                    "the table in it",
                    hint=f"{COPY_AGAIN} Rename a column in a transaction of its own.",
                )


def lacking(step: Apply, first_lsn: int, truncated: int | None) -> dict[str, int]:
    """Return the columns that are null in rows from before they were there, after a step.

    ``first_lsn`` is that of the first change, -1 without one, and ``truncated`` that of the last
    truncate. Rows that the table still has decide on the rest: see ``TableFiles.has_nulls``.
    """
    found = {
        name: lsn
        for name, lsn in step.record.incomplete.items()
        if name not in step.uncertain or -1 < first_lsn < lsn
    }
    if truncated is not None:
        found = {name: lsn for name, lsn in found.items() if lsn > truncated}
    return found


def _names(relation: Relation) -> set[str]:
    return set(column_names(relation))
