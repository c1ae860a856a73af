"""SystemTable: a table of a mirror's own, with few rows."""

from __future__ import annotations

import pyarrow as pa

from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.target import Commit, Target


class SystemTable:
    """Table of a mirror's own with the columns ``schema``, which need not exist."""

    def __init__(self, target: Target, schema: pa.Schema) -> None:
        self._target = target
        self._schema = schema
        self._known: tuple[int | None, pa.Table] = None, schema.empty_table()

    def read(self) -> pa.Table:
        """Return the rows; the same object until a commit changes them."""
        target = self._target
        target.refresh()
        if target.version != self._known[0]:
            files = target.files
            batches = [batch for file in files.files for batch in files.batches(file, self._schema)]
            self._known = target.version, pa.Table.from_batches(batches, self._schema)
        return self._known[1]

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows.

        Raises ``CommitConflict`` if another process has written since they were read.
        """
        self._commit(rows, replaces=True)
        self._known = self._target.version, rows

    def append(self, rows: pa.Table) -> None:
        """Add rows."""
        self._commit(rows, replaces=False)

    def _commit(self, rows: pa.Table, *, replaces: bool) -> None:
        target = self._target
        schema = self._schema if target.schema is None else None
        added = write_data_files(
            target.files.folder, target.file_schema(self._schema), rows.to_batches(), target.layout
        )
        target.commit(Commit(Position(), added, replaces=replaces, schema=schema))
