"""IcebergTransaction: one commit of an Iceberg table, by Iceberg's Java API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.tables.column_steps import RenameColumn, WidenColumn
from pgwire_codec.lake.tables.iceberg_schema import (
    Columns,
    DeleteColumn,
    SchemaChange,
    from_json,
    to_json,
    type_json,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """Kind of a snapshot, and the names of Java's methods for it."""

    begin: str
    add: str
    remove: str = ""
    add_vector: str = ""
    remove_vector: str = ""


#: Files are added.
APPEND: Final = Operation("newAppend", "appendFile")
#: All files are removed, others are added.
REPLACE: Final = Operation("newOverwrite", "addFile")
#: The same rows are in other files.
REWRITE: Final = Operation("newRewrite", "addFile", "deleteFile", "addFile", "deleteFile")
#: Rows are deleted and added.
DELTA: Final = Operation("newRowDelta", "addRows", "removeRows", "addDeletes", "removeDeletes")


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes of a table's files by a snapshot."""

    operation: Operation
    added: Sequence[str] = ()  # new data files and vectors, as Iceberg parses them
    vectors: Sequence[str] = ()
    #: Scan tasks of the files that are removed, and of those that lose their vector.
    removed: Collection[Any] = ()
    unmarked: Collection[Any] = ()
    base: int | None = None  # ID of the snapshot that these changes were decided on


class IcebergTransaction:
    """A transaction: columns first, then one snapshot, then the table's properties."""

    def __init__(self, name: str, iceberg: Any, transaction: Any) -> None:
        self._name = name
        self._iceberg = iceberg
        self._transaction = transaction

    @property
    def table(self) -> Any:
        """The table as the transaction leaves it."""
        return self._transaction.table()

    def change_columns(self, changes: Iterable[SchemaChange]) -> None:
        """Change the columns, and have the transaction fail if the table is another one by then.

        Iceberg repeats a transaction on what other writers have committed meanwhile. An update of
        columns, even one without a change, does not fit another version of the metadata.
        """
        self._transaction.updateSchema().commit()
        for change in changes:
            update = self._transaction.updateSchema()
            self._change_column(update, change)
            update.commit()

    def check_columns(self, columns: Columns) -> None:
        """Raise ``TableError`` if the columns do not have the field IDs that data files have."""
        text = self._iceberg.SchemaParser.toJson(self.table.schema())
        if to_json(from_json(text)) != to_json(columns.schema):
            raise TableError(
                f"the catalog numbers the columns of {self._name} in a way of its own: {text}",
                hint="Report this with the name and the version of the catalog.",
            )

    def change_files(self, changes: FileChanges, properties: dict[str, str]) -> None:
        """Write the snapshot, with properties in its summary."""
        operation = changes.operation
        update = getattr(self._transaction, operation.begin)()
        if operation is REPLACE:
            update.overwriteByRowFilter(self._iceberg.expressions.Expressions.alwaysTrue())
        elif operation is DELTA:
            update.validateDeletedFiles()
        if operation is not APPEND and changes.base is not None:
            # Otherwise, all vectors since the table's first snapshot would be conflicts.
            update.validateFromSnapshot(changes.base)
        for task in changes.removed:
            getattr(update, operation.remove)(task.file())
        for task in changes.unmarked:
            getattr(update, operation.remove_vector)(task.deletes()[0])  # no file has more than one
        # py4j asks Java for each name: of many files, most of the time would be spent on that.
        parser, specs = self._iceberg.ContentFileParser, self.table.specs()
        mapper = self._iceberg.util.JsonUtil.mapper()
        for text in changes.added:
            getattr(update, operation.add)(parser.fromJson(mapper.readTree(text), specs))
        for text in changes.vectors:
            getattr(update, operation.add_vector)(parser.fromJson(mapper.readTree(text), specs))
        for name, value in properties.items():
            update.set(name, value)
        update.commit()

    def commit(self, properties: dict[str, str]) -> None:
        """Set properties of the table, and commit the transaction."""
        update = self._transaction.updateProperties()
        for name, value in properties.items():
            update.set(name, value)
        update.commit()
        self._transaction.commitTransaction()

    def _change_column(self, update: Any, change: SchemaChange) -> None:
        if isinstance(change, RenameColumn):
            update.renameColumn(change.old, change.new)
        elif isinstance(change, DeleteColumn):
            update.deleteColumn(change.name)
        elif isinstance(change, WidenColumn):
            update.updateColumn(change.name, self._type(change.kind))
        else:
            if change.replaces:
                update.deleteColumn(change.name)
            update.addColumn(None, change.name, self._type(change.kind))
            if change.replaces and change.after is None:
                update.moveFirst(change.name)
            elif change.replaces:
                update.moveAfter(change.name, change.after)

    def _type(self, kind: pa.DataType) -> Any:
        return self._iceberg.SchemaParser.fromJson(type_json(kind)).columns()[0].type()
