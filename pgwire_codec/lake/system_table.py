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

    @property
    def version(self) -> int | None:
        """Number of the last commit; None if the table does not exist."""
        return self._target.version

    def refresh(self) -> int | None:
        """Read the commits that were added since; return :attr:`version`."""
        self._target.refresh()
        return self.version

    def read(self) -> pa.Table:
        """Return the rows."""
        files = self._target.files
        batches = [batch for file in files.files for batch in files.batches(file, self._schema)]
        return pa.Table.from_batches(batches, self._schema)

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows.

        Raises ``CommitConflict`` if another process has written since the last refresh.
        """
        self._commit(rows, replaces=True)

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
