"""Writing of data files again: as fewer and larger ones, without deleted rows, in other types.

Upkeep does it after turns. Changes of columns and copy-on-write need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgwire_codec.lake.data_files import FileLayout, NewFile, write_data_files
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.status import LOGGER
from pgwire_codec.lake.table_files import DataFile, TableFiles, grouped
from pgwire_codec.lake.table_state import TableState
from pgwire_codec.lake.tables.column_steps import ColumnStep, changed_schema, former_names
from pgwire_codec.lake.tables.target import Commit, CommitConflict, Target
from pgwire_codec.lake.task_errors import ends_all, error_of
from pgwire_codec.lake.tasks import MergeOutcome, deleted_rows
from pgwire_codec.lake.vectors import StoredVector, serialize
from pgwire_codec.protocol.messages import Relation

if TYPE_CHECKING:
    from pyroaring import BitMap64

_FILE_BYTES: Final = 128 << 20  # bytes of files that become one

#: Bytes of a file that is written again with others, and number of them from which on they are.
_SMALL_BYTES: Final = 16 << 20
_SMALL_FILES: Final = 50

_DELETED: Final = 0.2  # share of a file's rows that may be deleted


@dataclass(frozen=True)
class _RewriteTask:
    """Writes the rows of some files into a new one."""

    target: TableFiles
    held: pa.Schema  # the table's columns
    file_schema: pa.Schema  # columns of new files
    #: Column of the table by that of new files; None for one without values.
    names: Mapping[str, str | None]
    layout: FileLayout
    constants: Mapping[str, pa.Scalar]  # values of new columns

    def __call__(self, files: Sequence[DataFile]) -> list[NewFile]:
        former = {old: new for new, old in self.names.items() if old is not None}
        read = pa.schema([column for column in self.held if column.name in former])
        batches = (
            self._with_constants(batch.rename_columns([former[name] for name in read.names]))
            for file in files
            for batch in self.target.batches(file, read)
        )
        return write_data_files(self.target.folder, self.file_schema, batches, self.layout)

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants.items():
            batch = batch.append_column(name, pa.repeat(value, len(batch)))
        return batch


def keep_up(lake: Lake, runner: Runner, relation: Relation) -> None:
    """Write files of a table again, after a turn that changed it.

    Raises ``PgwireError`` for an error that concerns all tables, such as a full disk. After another
    one, the table remains as it is.
    """
    try:
        target = lake.open(relation)
        is_table = target.schema is not None and target.deletes
        if is_table and (chosen := files_to_rewrite(target.files.files)):
            record = TableState.from_target(target).record.to_text()
            rewrite(target, runner, chosen=chosen, record=record)
    except CommitConflict as conflict:
        LOGGER.info("files are not written again: %s", conflict.primary)
    except Exception as error:
        found = error_of(error, lake.path(relation))
        if ends_all(found):
            raise found from error
        LOGGER.warning("files of %s are not written again: %s", lake.path(relation), found)


def files_to_rewrite(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that are to be written again: many small ones, and those with few rows."""
    small = [file for file in files if file.size < _SMALL_BYTES]
    large = [file for file in files if file.size >= _SMALL_BYTES]
    worn = [file for file in large if file.rows and file.deleted > _DELETED * file.rows]
    return [*worn, *small] if len(small) > _SMALL_FILES else worn


def rewrite(
    target: Target,
    runner: Runner,
    steps: Sequence[ColumnStep] = (),
    chosen: Sequence[DataFile] | None = None,
    constants: Mapping[str, pa.Scalar] | None = None,
    record: str | None = None,
) -> None:
    """Write files of a table again, by default all, with its columns after some steps.

    ``constants`` are values of new columns, and ``record`` are the facts that the table records
    then. Raises ``CommitConflict`` if another commit has changed
    one of the files.
    """
    chosen = target.files.files if chosen is None else chosen
    added = _written(target, runner, chosen, steps, constants or {})
    schema = changed_schema(_columns(target), steps) if steps else None
    target.commit(
        Commit(
            target.position,
            added,
            removed=[file.path for file in chosen],
            schema=schema,
            steps=steps,
            keeps_rows=not steps,
            record=record,
        )
    )


def copy_without(target: Target, runner: Runner, deleted: Mapping[str, BitMap64]) -> list[NewFile]:
    """Write files of a table again without some rows; return the new files.

    ``deleted`` are positions of rows, by the file's path.
    """
    files = target.files
    touched = [
        replace(file, vector=StoredVector(inline=serialize(files.vector(file) | positions)))
        for file in files.files
        if (positions := deleted.get(file.path)) is not None
    ]
    return _written(target, runner, touched, (), {})


def commit_of(
    target: Target,
    runner: Runner,
    position: Position,
    outcomes: list[MergeOutcome],
    appended: Sequence[NewFile] = (),
    *,
    replaces: bool,
    schema: pa.Schema | None,
    record: str | None = None,
) -> Commit:
    """Return the commit of what tasks have written, and files that they ``appended``.

    ``replaces`` says whether others are removed. If rows are not deleted in vectors, their files
    are written again, which joins the outcomes.
    """
    deleted = {} if replaces else deleted_rows(outcomes)
    removed: tuple[str, ...] = ()
    if deleted and not target.marks:
        outcomes.append(MergeOutcome(-1, copy_without(target, runner, deleted)))
        deleted, removed = {}, (*deleted,)
    return Commit(
        position,
        [*appended, *(file for outcome in outcomes for file in outcome.files)],
        deleted,
        removed,
        replaces=replaces and target.schema is not None,
        schema=None if schema == target.schema else schema,
        counts={
            "numTargetRowsInserted": sum(each.inserted for each in outcomes)
            + sum(file.rows for file in appended),
            "numTargetRowsUpdated": sum(each.updated for each in outcomes),
            "numTargetRowsDeleted": sum(each.removed for each in outcomes),
        },
        record=record,
        base=target.position,
    )


def discard(target: TableFiles, outcomes: Iterable[MergeOutcome], files: Iterable[NewFile]) -> None:
    """Remove the data files of a commit that does not come."""
    for file in (*files, *(file for outcome in outcomes for file in outcome.files)):
        target.folder.remove(file.path)


def _written(
    target: Target,
    runner: Runner,
    files: Sequence[DataFile],
    steps: Sequence[ColumnStep],
    constants: Mapping[str, pa.Scalar],
) -> list[NewFile]:
    """Write the rows of some files into new ones, which are returned."""
    held = _columns(target)
    file_schema = target.file_schema(changed_schema(held, steps), steps)
    names = former_names(held, steps)
    task = _RewriteTask(target.files, held, file_schema, names, target.layout, constants)
    size = sum(file.size for file in files)
    return [
        file for written in runner.map(task, grouped(files, _FILE_BYTES), size) for file in written
    ]


def _columns(target: Target) -> pa.Schema:
    schema = target.schema
    assert schema is not None, "the table exists"
    return schema
