"""SystemTable: a table of a mirror's own, with few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.target import Commit, CommitConflict, Target
from pgwire_codec.lake.task_errors import ends_all, error_of, may_pass


class DamagedRowsError(TableError):
    """The rows of a table cannot be read, and can be replaced."""


class SystemTable:
    """Table of a mirror's own with the columns ``schema``, which need not exist.

    ``open_target`` opens it, and ``hint`` is what to do if it is damaged. Errors are those of this
    package: ``TableError``, which may pass, or ``PgwireError`` for a full disk.
    """

    def __init__(
        self, name: str, open_target: Callable[[], Target], schema: pa.Schema, hint: str
    ) -> None:
        self._name = name
        self._open = open_target
        self._hint = hint
        self._opened: Target | None = None
        self._schema = schema
        self._known: tuple[int | None, pa.Table] = None, schema.empty_table()

    def read(self) -> pa.Table:
        """Return the rows; the same object until a commit changes them."""
        with self._checked(TableError):
            target = self._target
            target.refresh()
        if target.version != self._known[0]:
            with self._checked(DamagedRowsError):
                files = target.files
                batches = [
                    batch for file in files.files for batch in files.batches(file, self._schema)
                ]
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

    @property
    def _target(self) -> Target:
        self._opened = self._opened or self._open()
        return self._opened

    def _commit(self, rows: pa.Table, *, replaces: bool) -> None:
        with self._checked(TableError):
            target = self._target
            schema = self._schema if target.schema is None else None
            folder, form = target.files.folder, target.file_schema(self._schema)
            added = write_data_files(folder, form, rows.to_batches(), target.layout)
            target.commit(Commit(Position(), added, replaces=replaces, schema=schema))

    @contextmanager
    def _checked(self, kind: type[TableError]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            found = error_of(error, self._name)
            if isinstance(found, CommitConflict):
                raise
            if ends_all(found) or may_pass(found):
                raise found from error
            raise kind(found.primary, hint=self._hint) from error
