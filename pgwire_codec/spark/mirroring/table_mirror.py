"""TableMirror: the changes of one table, applied to its table of the lake."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pgwire_codec.changes.metadata import metadata_names
from pgwire_codec.errors import LogError, TableError
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.dead_letters import letters_between
from pgwire_codec.spark.failures import COPY_AGAIN
from pgwire_codec.spark.formats.identity import key_columns
from pgwire_codec.spark.mirroring.alignment import align, table_columns
from pgwire_codec.spark.mirroring.column_history import COLUMN_LISTS, ColumnHistory
from pgwire_codec.spark.mirroring.dead_letters import DeadLetters
from pgwire_codec.spark.mirroring.evolution import Policy, evolution_steps
from pgwire_codec.spark.mirroring.lake import Lake
from pgwire_codec.spark.mirroring.lake_rows import target_rows
from pgwire_codec.spark.mirroring.masks import Masks
from pgwire_codec.spark.mirroring.pieces import Piece, pieces_of
from pgwire_codec.spark.mirroring.replay import check_history, check_keys, check_moves
from pgwire_codec.spark.mirroring.row_columns import DELETED, RowColumns
from pgwire_codec.spark.mirroring.status import LOGGER, RESUMING, TableStatus
from pgwire_codec.spark.mirroring.table_batch import TableBatch
from pgwire_codec.spark.options import parse_options
from pgwire_codec.spark.reduction.change_columns import columns_of
from pgwire_codec.spark.sinks.columns import AddColumn, ClearColumn
from pgwire_codec.spark.sinks.merge import apply_changes, check_names, create_table
from pgwire_codec.spark.sinks.sql import quoted
from pgwire_codec.spark.sinks.survey import Survey
from pgwire_codec.spark.tables import LogTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgwire_codec.spark.sinks.target import Target


class TableMirror:
    """Applies changes of tables up to a commit LSN, at which the log is read.

    Parameters
    ----------
    spark : SparkSession
        Session of the micro-batch.
    log : Log
        Must not be refreshed meanwhile.
    lake : Lake
    policy : {"evolve", "rename", "freeze", "fail"}
        What to do when a table's columns change.
    masks : Masks
    row_columns : RowColumns
    options : mapping of str to str
        Options of ``format("pgoutput")`` for tables that are read from the log.
    until : int
        Commit LSN up to which the tables are to be whole.
    collects_letters : bool
        Whether changes that do not decode are recorded as dead letters, and left out.

    Attributes
    ----------
    letters : DeadLetters
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        lake: Lake,
        policy: Policy,
        masks: Masks,
        row_columns: RowColumns,
        options: Mapping[str, str],
        until: int,
        collects_letters: bool = False,
    ) -> None:
        self._spark = spark
        self._log = log
        self._lake = lake
        self._policy = policy
        self._masks = masks
        self._row_columns = row_columns
        self._options = options
        self._until = until
        self._collects_letters = collects_letters
        self.letters = DeadLetters(lake.dead_letters(spark), hides_values=bool(masks.patterns))
        self._history = RelationHistory(log)
        self._renames = policy == "rename" or log.source.server_version < COLUMN_LISTS
        self._reading = threading.Lock()  # a Log keeps what it has read, and not for many threads

    def apply(self, status: TableStatus, tables: LogTables) -> TableStatus:
        """Apply the changes of a table in a micro-batch; return its status after them.

        If the target does not have all changes before them, those are read from the log.
        """
        batch = TableBatch.of(tables, status.table)
        whole = batch.range
        target = self._lake.open(self._spark, whole.relation)
        with self._reading:
            begin = self._begin(target, whole.relation, status)
            oid = whole.relation.oid
            if begin < whole.after and not self._has_changes(oid, begin, whole.after):
                begin = whole.after
        # A batch has all changes of a relation that is new to the target.
        is_new = target.applied.relation not in (None, oid) and self._row_columns.is_history
        usable = batch if begin >= whole.after and not is_new else None
        return self._apply(status, target, whole.relation, begin, usable)

    def catch_up(self, status: TableStatus) -> TableStatus:
        """Apply the changes of a table that its target does not have, from the log.

        A table that is resumed begins with its last truncate, such as that of a later copy: what
        was before needs no repair. If the truncate comes after ``until``, the table waits for it.
        """
        relation = self._relation(status.table)
        target = self._lake.open(self._spark, relation)
        if status.state == RESUMING and not self._row_columns.is_history:
            truncated = self._last_truncate(target, relation)
            if truncated is not None and truncated > self._until:
                return status
            if truncated is not None:
                begin = truncated - 1
                return self._apply(status, target, relation, begin, None, is_afresh=True)
        with self._reading:
            begin = self._begin(target, relation, status)
        return self._apply(status, target, relation, begin, None)

    def replay(self, status: TableStatus) -> TableStatus:
        """Apply the changes of a table again, from the one before its first dead letter on.

        They leave every row that they change in its last state. So rows that have later changes
        already end up as if no change had been left out.

        Raises ``TableError`` if the last states are not certain; see :mod:`.replay`.
        """
        relation = self._relation(status.table)
        begin = self.letters.first_lsn(relation.oid)
        target = self._lake.open(self._spark, relation)
        status = replace(status, relation_oid=relation.oid)
        status = replace(status, dead_letters=self.letters.count(relation.oid))
        if begin is None:
            return self.catch_up(status)
        if target.applied.relation != relation.oid:  # it is written from the log's beginning
            status = replace(status, whole_lsn=None)
            letters = self._read_letters(status, self._log.begin.lsn)
            return self.letters.replaced(self.catch_up(status), letters)
        check_keys(status.table, relation, self._row_columns)
        with self._reading:
            versions = self._history.between(relation.oid, begin, self._until)
        check_history(status.table, versions)
        [piece] = pieces_of(versions, begin, self._until)
        changes = self._read(relation.oid, piece, "range")
        check_moves(status.table, changes)
        letters = self._read_letters(status, begin)
        status = self._merge(status, target, relation, changes, piece, None, is_again=True)
        status = self.letters.replaced(status, letters)
        return self._whole(status, self._lake.open(self._spark, relation), begin)

    def _relation(self, table: str) -> Relation:
        """Return the relation that has a name at the end."""
        with self._reading:
            version = self._log.relations_at(self._until).named(table)
        if version is None:
            raise TableError(f"no relation has the name {table} at {format_lsn(self._until)}")
        return version.relation

    def _last_truncate(self, target: Target, relation: Relation) -> int | None:
        """Return the commit LSN of the log's last truncate that a target does not have."""
        from pyspark.sql import functions

        applied = target.applied
        after = applied.commit_lsn if applied.relation == relation.oid else None
        begin = max(after or 0, self._log.begin.lsn)
        options = {
            **self._options,
            "path": self._log.uri,
            "relationOid": str(relation.oid),
            "startingLsn": str(begin),
            "endingLsn": str(self._log.end.lsn),
            # A truncate is found in spite of columns and values that cannot be read.
            "types": "text",
            "before": "none",
            "onError": "skip",
        }
        changes = self._spark.read.format("pgoutput").options(**options).load()
        names = metadata_names(changes.columns)
        truncates = changes.where(functions.col(names["_op"]) == "T")
        found = truncates.agg(functions.max(names["_commit_lsn"])).first()
        return None if found is None or found[0] is None else int(found[0])

    def _begin(self, target: Target, relation: Relation, status: TableStatus) -> int:
        """Return the commit LSN up to which a target has a relation's changes.

        A history has those of the relation that had the name before, and needs only later ones.
        """
        log, oid = self._log, relation.oid
        whole = status.whole_lsn or 0
        # Such a table has no changes up to then, or only dead letters.
        is_new = target.schema is None and (status.relation_oid, status.commit_lsn) == (oid, None)
        if is_new and whole >= log.begin.lsn:
            return whole
        applied = target.applied
        is_other = applied.relation != oid and not self._row_columns.is_history
        if target.schema is None or applied.commit_lsn is None or is_other:
            if log.begin.lsn and oid in log.relations_at(log.begin.lsn).relations:
                raise self._pruned(status)
            return log.begin.lsn
        is_known = status.whole_lsn is not None and (
            (status.relation_oid, status.commit_lsn) == (applied.relation, applied.commit_lsn)
        )
        begin = status.whole_lsn if is_known and status.whole_lsn else applied.commit_lsn
        if begin < log.begin.lsn:
            raise self._pruned(status)
        return begin

    def _pruned(self, status: TableStatus) -> LogError:
        return LogError(
            f"earlier changes of {status.table} were pruned from {self._log.uri}, up to "
            f"{format_lsn(self._log.begin.lsn)}",
            hint=COPY_AGAIN,
        )

    def _has_changes(self, oid: int, after: int, until: int) -> bool:
        """Return whether a range of the log may have changes of a relation."""
        # A part of the log goes on after the range, and may have messages that do not decode.
        is_known = oid in self._log.relations_at(until).relations
        return any(
            changed is None or (is_known and oid in changed)
            for changed in self._log.plan(after, until, relation_oid=oid).changed
        )

    def _apply(
        self,
        status: TableStatus,
        target: Target,
        relation: Relation,
        begin: int,
        batch: TableBatch | None,
        *,
        is_afresh: bool = False,
    ) -> TableStatus:
        """Apply the changes after ``begin``; with ``is_afresh``, they do not need the target's."""
        status = replace(status, relation_oid=relation.oid)
        pieces = self._pieces(relation, begin)
        appends = self._row_columns.is_history
        is_whole = (
            batch is not None and len(pieces) == 1 and (appends or not batch.facts.other_identity)
        )
        if self._collects_letters:
            letters = batch.letters_after(begin) if batch is not None else None
            if pieces and not is_whole:
                letters = self._read_letters(status, begin)
            # A target that is written again, from the log's beginning, may lack fewer changes.
            is_again = target.schema is None and begin != status.whole_lsn
            record = self.letters.replaced if is_again else self.letters.recorded
            status = status if letters is None else record(status, letters)
        for piece in pieces:
            afresh = is_afresh and piece is pieces[0]
            if batch is not None and is_whole:
                survey = batch.survey_after(target.applied.commit_lsn, self._row_columns)
                status = self._merge(status, target, relation, batch.changes, piece, survey)
            else:
                # Columns of a new target have types for the rest of the log, too.
                is_new = target.applied.relation != relation.oid and not afresh
                changes = self._read(relation.oid, piece, "log" if is_new else "range")
                status = self._merge(
                    status, target, relation, changes, piece, None, is_afresh=afresh
                )
            target = self._lake.open(self._spark, relation)
        if target.schema is None:
            status = self._create(status, target, relation)
            target = self._lake.open(self._spark, relation)
        return self._whole(status, target, begin)

    def _create(self, status: TableStatus, target: Target, relation: Relation) -> TableStatus:
        """Create the target of a table without rows."""
        piece = Piece(self._until, self._until, [relation], [self._until])
        changes = self._read(relation.oid, piece, "log")
        changes, keys = self._rows_of(status, changes, relation)
        columns = columns_of(changes, keys)
        check_names(columns, status.table)
        create_table(target, changes, columns, self._until, relation.oid)
        return self._written(status, relation)

    def _rows_of(
        self, status: TableStatus, changes: DataFrame, relation: Relation
    ) -> tuple[DataFrame, list[str] | None]:
        """Return changes as the target has their rows, and the columns that identify a row."""
        keys = key_columns(relation)
        changes = self._masks.apply(status.table, changes, keys or [])
        if not table_columns(changes):
            raise TableError(
                f"{status.table} has no columns to mirror, and a target has at least one",
                hint="Leave the table out: name the others as `tables`.",
            )
        changes = self._row_columns.add(status.table, changes, relation)
        return changes, None if self._row_columns.is_history else keys

    def _written(self, status: TableStatus, relation: Relation) -> TableStatus:
        """Return the status of a target whose rows have the mirror's form."""
        return replace(
            status,
            masks=self._masks.recorded(status.table, relation),
            row_columns=self._row_columns.names,
        )

    def _whole(self, status: TableStatus, target: Target, begin: int) -> TableStatus:
        """Return the status of a target that has all changes; those up to ``begin``, it had."""
        return replace(
            status.kept(status.incomplete_columns),
            commit_lsn=target.applied.commit_lsn,
            version=target.version,
            whole_lsn=max(begin, self._until),
        )

    def _pieces(self, relation: Relation, begin: int) -> list[Piece]:
        """Return the pieces of the log from a commit LSN on."""
        if begin >= self._until:
            return []
        with self._reading:
            versions = self._history.between(relation.oid, begin, self._until)
        return pieces_of(versions, begin, self._until)

    def _read_letters(self, status: TableStatus, begin: int) -> DataFrame:
        """Return the changes of a table, from a commit LSN on, that do not decode."""
        oid = status.relation_oid
        given = {**self._options, "path": self._log.uri, "relationOid": str(oid)}
        options, names = parse_options(given), {oid: status.table}
        with self._reading:
            return letters_between(
                self._spark, self._log, options, begin, self._until, names.keys(), names
            )

    def _read(self, oid: int, piece: Piece, types_of: str) -> DataFrame:
        """Return the changes of a relation in a part of the log."""
        options = {
            **self._options,
            "path": self._log.uri,
            "relationOid": str(oid),
            "startingLsn": str(piece.after),
            "endingLsn": str(piece.until),
            "withRelationOid": "true",
            "checkIdentity": str(not self._row_columns.is_history).lower(),
            "typesOf": types_of,
        }
        return self._spark.read.format("pgoutput").options(**options).load()

    def _merge(
        self,
        status: TableStatus,
        target: Target,
        newest: Relation,
        changes: DataFrame,
        piece: Piece,
        survey: Survey | None,
        *,
        is_afresh: bool = False,
        is_again: bool = False,
    ) -> TableStatus:
        """Merge the changes of a piece into the target, which has the name of ``newest``.

        With ``is_again``, the target has changes of the piece already.
        """
        relation = piece.versions[-1]
        is_history = self._row_columns.is_history
        self._masks.check_versions(status.table, piece.versions)
        changes, keys = self._rows_of(status, changes, relation)
        replaces = False
        evolutions: Sequence[str] = ()
        is_new = target.schema is None
        known = status.incomplete_columns
        added = _names(relation) - _names(piece.versions[0])
        if target.schema is None:
            if not is_history and keys is None and relation.replica_identity != "f":
                LOGGER.warning("%s has no replica identity: its rows are appended", status.table)
        else:
            is_other = target.applied.relation not in (None, relation.oid)
            evolves = self._policy in ("evolve", "rename")
            replaces = (is_other or is_afresh) and evolves and not is_history
            if target.applied.commit_lsn is not None:
                self._row_columns.check_recorded(status.table, status.row_columns, _columns(target))
            if is_other and self._policy == "fail":
                raise TableError(
                    f"relation {relation.oid} has the name {status.table} now, which relation "
                    f"{target.applied.relation} had",
                    hint='Use `on_schema_change="evolve"`, and resume the table.',
                )
            if replaces and is_other:
                evolutions = [f"replace relation {target.applied.relation} by {relation.oid}"]
            elif replaces:
                evolutions = [f"replace all rows by those after {format_lsn(piece.after)}"]
            else:
                before = piece.versions[0]
                self._masks.check_recorded(status.table, status.masks, before, relation)
                versions = [relation] if is_other else piece.versions
                history = ColumnHistory.of(versions, renames=self._renames)
                if history.renamed:
                    self._check_renamed(status, piece, history)
                    known = {history.renamed.get(name, name): lsn for name, lsn in known.items()}
                added = set(history.new) | (
                    _names(relation) - {*_columns(target), *history.renamed.values()}
                )
                evolutions = self._evolve(target, changes, history, keys or [])
                target = self._lake.open(self._spark, newest)
                self._row_columns.check_held(status.table, _columns(target))
                changes = align(changes, _columns(target), fills=keys is not None)
        lacking: dict[str, int] = {}
        if not is_history:
            lacking = {} if replaces or is_new else known
            has_rows = not (target.is_empty or replaces)
            since = {name: piece.since(name) for name in sorted(added)}
            lacking |= {
                name: lsn
                for name, lsn in since.items()
                if has_rows or _changed_before(changes, lsn)
            }
        deleted = DELETED if self._row_columns.keeps_deleted else None
        columns = columns_of(changes, keys, deleted)
        check_names(columns, status.table)
        held = target.applied.relation
        _, survey = apply_changes(
            target, changes, columns, replaces=replaces, appends=is_history, survey=survey,
            after=piece.after if is_again else None,
        )  # fmt: skip
        if status.dead_letters and not is_history:
            status = self.letters.without_lost(status, held, survey)
        if lacking and survey is not None:
            if survey.truncated is not None:
                lacking = {name: lsn for name, lsn in lacking.items() if lsn > survey.truncated[0]}
            lacking = self._with_nulls(newest, relation, lacking)
        status = status.kept(lacking)
        for evolution in evolutions:
            LOGGER.warning("%s: %s", status.table, evolution)
        return replace(
            self._written(status, relation),
            commit_time=status.commit_time if survey is None else survey.commit_time,
            changes=status.changes + (0 if survey is None else survey.rows),
            evolutions=(*status.evolutions, *evolutions),
        )

    def _with_nulls(
        self, newest: Relation, relation: Relation, columns: Mapping[str, int]
    ) -> dict[str, int]:
        """Return those of some columns that the table still has, and that are null in a row."""
        from pyspark.sql import functions

        target = self._lake.open(self._spark, newest)
        held = _names(relation) & _columns(target).keys()
        found = {name: lsn for name, lsn in columns.items() if name in held}
        if not found or target.version is None:
            return {}
        rows = target_rows(self._spark, self._lake, newest, target.version)
        if self._row_columns.keeps_deleted:
            rows = rows.where(f"{DELETED} IS NOT TRUE")
        rows = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
        places = {name: f"c{place}" for place, name in enumerate(_columns(target))}
        return {
            name: lsn
            for name, lsn in found.items()
            if rows.where(functions.col(places[name]).isNull()).select(places[name]).head(1)
        }

    def _check_renamed(self, status: TableStatus, piece: Piece, history: ColumnHistory) -> None:
        """Raise ``TableError`` if the transaction of a rename has changes under the former name."""
        oid, begin = piece.versions[-1].oid, piece.after + 1
        with self._reading:
            partitions = self._log.plan(piece.after, begin, relation_oid=oid).partitions
        for batch in chain.from_iterable(partition.decode() for partition in partitions):
            names = {column.name for column in batch.relation.columns} & set(history.renamed)
            if batch.relation.oid == oid and names:
                raise TableError(
                    f"column {', '.join(sorted(names))} of {status.table} was renamed in the "
                    f"transaction with commit LSN {format_lsn(begin)}, after other changes of the "
                    "table in it",
                    hint=f"{COPY_AGAIN} Rename a column in a transaction of its own.",
                )

    def _evolve(
        self, target: Target, changes: DataFrame, history: ColumnHistory, keys: Sequence[str]
    ) -> list[str]:
        """Change the columns of a target to those of the changes; return the steps."""
        held, wanted = _columns(target), table_columns(changes)
        steps = evolution_steps(history, held, wanted, self._policy)
        if self._row_columns.is_history:  # older rows keep what they had
            steps = [step for step in steps if not isinstance(step, ClearColumn)]
        new = {step.name for step in steps if isinstance(step, (AddColumn, ClearColumn))}
        if not target.is_empty and not new.isdisjoint(keys):
            raise TableError(
                f"column {', '.join(sorted(new & set(keys)))} of the replica identity is new: it "
                "is null in the rows of the target, which updates do not find by it",
                hint='If it was renamed, use `on_schema_change="rename"`, and resume the table. '
                f"Otherwise: {COPY_AGAIN}",
            )
        dropped = [f"drop column {name}, which is kept" for name in history.dropped]
        if steps:
            target.alter(steps)
        return [*map(str, steps), *dropped]


def _names(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns}


def _changed_before(changes: DataFrame, lsn: int) -> bool:
    """Return whether a transaction before a commit LSN has changes."""
    name = metadata_names(changes.columns)["_commit_lsn"]
    return bool(changes.where(f"{quoted(name)} < {lsn}").select(name).head(1))


def _columns(target: Target) -> dict[str, Any]:
    return {} if target.schema is None else {each.name: each.dataType for each in target.schema}
