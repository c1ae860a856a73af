"""Writing of data files again: as fewer and larger ones, without deleted rows, in other types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgwire_codec.lake.data_files import FileLayout, NewFile, write_data_files
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.table_files import DataFile, TableFiles, grouped
from pgwire_codec.lake.tables.column_steps import ColumnStep, former_names
from pgwire_codec.lake.tables.target import Commit, Target
from pgwire_codec.lake.vectors import StoredVector, serialize

if TYPE_CHECKING:
    from pyroaring import BitMap64

#: Bytes of files that become one.
_FILE_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class _RewriteTask:
    """Writes the rows of some files into a new one.

    Attributes
    ----------
    target : TableFiles
    held : pyarrow.Schema
        The table's columns.
    file_schema : pyarrow.Schema
        Columns of new files.
    names : dict of str to str or None
        Column of the table by that of new files; None for one without values.
    layout : FileLayout
    constants : dict of str to pyarrow.Scalar
        Values of new columns.
    """

    target: TableFiles
    held: pa.Schema
    file_schema: pa.Schema
    names: Mapping[str, str | None]
    layout: FileLayout
    constants: Mapping[str, pa.Scalar]

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


def rewrite(
    target: Target,
    runner: Runner,
    schema: pa.Schema,
    steps: Sequence[ColumnStep] = (),
    chosen: Sequence[DataFile] | None = None,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> None:
    """Write files of a table again, with the columns ``schema`` after some steps.

    Parameters
    ----------
    target : Target
    runner : Runner
    schema : pyarrow.Schema
    steps : sequence of ColumnStep
    chosen : sequence of DataFile, optional
        By default all files.
    constants : mapping of str to pyarrow.Scalar, optional
        Values of new columns.

    Raises
    ------
    CommitConflict
        If another commit has changed one of the files.
    """
    files, held = target.files, target.schema
    assert held is not None, "the table exists"
    chosen = files.files if chosen is None else chosen
    names = former_names(held, steps)
    task = _RewriteTask(
        files, held, target.file_schema(schema, steps), names, target.layout, constants or {}
    )
    written = runner.map(task, grouped(chosen, _FILE_BYTES), sum(file.size for file in chosen))
    target.commit(
        Commit(
            target.position,
            [file for files in written for file in files],
            removed=[file.path for file in chosen],
            schema=schema if steps else None,
            steps=steps,
            keeps_rows=not steps,
        )
    )


def copy_without(target: Target, runner: Runner, deleted: Mapping[str, BitMap64]) -> list[NewFile]:
    """Write files of a table again without some rows; return the new files.

    Parameters
    ----------
    target : Target
    runner : Runner
    deleted : mapping of str to BitMap64
        Positions of rows, by the file's path.
    """
    files, schema = target.files, target.schema
    assert schema is not None, "the table exists"
    touched = [
        replace(file, vector=StoredVector(inline=serialize(files.vector(file) | positions)))
        for file in files.files
        if (positions := deleted.get(file.path)) is not None
    ]
    names = {name: name for name in schema.names}
    task = _RewriteTask(files, schema, target.file_schema(schema), names, target.layout, {})
    size = sum(file.size for file in touched)
    return [
        file
        for written in runner.map(task, grouped(touched, _FILE_BYTES), size)
        for file in written
    ]
