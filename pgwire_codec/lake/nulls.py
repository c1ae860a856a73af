"""Search for a null in a column of a table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.table_files import DataFile, TableFiles


def has_nulls(files: TableFiles, column: pa.Field, deleted: str | None) -> bool:
    """Return whether a column is null in a row.

    Rows with true in the boolean column ``deleted`` do not count, if a name is given.
    """
    return any(_file_has_nulls(files, file, column, deleted) for file in files.files)


def _file_has_nulls(
    files: TableFiles, file: DataFile, column: pa.Field, deleted: str | None
) -> bool:
    if file.rows is not None and file.rows == file.deleted:
        return False
    if file.bounds.nulls.get(column.name) == 0:
        return False
    fields = [column] if deleted is None else [column, pa.field(deleted, pa.bool_())]
    for batch in files.batches(file, pa.schema(fields)):
        is_null = batch.column(0).is_null()
        if deleted is not None:
            is_null = pc.and_not(is_null, batch.column(1).fill_null(False))
        if pc.any(is_null).as_py():
            return True
    return False
