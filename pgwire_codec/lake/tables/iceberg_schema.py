"""Columns of Iceberg tables: their types in Iceberg's JSON, and in Arrow with field IDs.

An Arrow field has its ID in the metadata that Parquet's writer takes it from. IDs are assigned as
Iceberg does: to the columns of a new table in their order, then to the fields inside of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.row_types import sql_name
from pgwire_codec.lake.tables.column_steps import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    RenameColumn,
    WidenColumn,
    renamed,
)

_ID: Final = b"PARQUET:field_id"

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp": pa.timestamp("us"),
}
_NAMES: Final = {kind: name for name, kind in _PRIMITIVES.items()}
#: Types that Iceberg has a wider one for.
_WIDER: Final = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(frozen=True, slots=True)
class PutColumn:
    """Add a column."""

    name: str
    kind: pa.DataType
    replaces: bool = False  # True if another column with the name is deleted, whose place it gets
    after: str | None = None  # name of the column before it
    #: True if all files are to be written again, for the values of the other column.
    needs_files: bool = False

    def __str__(self) -> str:
        return f"change the type of column {self.name} to {sql_name(self.kind)}"


@dataclass(frozen=True, slots=True)
class DeleteColumn:
    """Delete a column."""

    name: str


SchemaChange: TypeAlias = PutColumn | DeleteColumn | RenameColumn | WidenColumn


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a table."""

    schema: pa.Schema  # with field IDs
    last_id: int  # highest field ID that the table has had

    @property
    def field_ids(self) -> dict[str, int]:
        """Field IDs by column."""
        return {column.name: field_id(column) for column in self.schema}


def field_id(field: pa.Field) -> int:
    """Return the ID of a field; -1 without one."""
    return int((field.metadata or {}).get(_ID, -1))


def new_columns(schema: pa.Schema) -> Columns:
    """Return the columns of a new table. Raises ``TableError`` for types that Iceberg lacks."""
    ids = count(1)
    fields = _with_ids([pa.field(column.name, column.type) for column in schema], ids)
    return Columns(pa.schema(fields), next(ids) - 1)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return columns without their field IDs."""
    return pa.schema([_plain(column) for column in schema])


def can_widen(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a column of a table can have another type, and its files stay."""
    new = _WIDER.get(new, new)
    if old == new:
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def check_fields(name: str, file: pa.Schema, columns: Columns) -> None:
    """Raise ``TableError`` if the fields of a data file are not columns of a table."""
    known = {field_id(column): column for column in columns.schema}
    for field in file:
        column = known.get(field_id(field))
        if (
            column is not None
            and column.name == field.name
            and (pa.types.is_nested(field.type) or can_widen(field.type, column.type))
        ):
            continue
        raise TableError(
            f"a data file has the column {field.name} of type {sql_name(field.type)} with the field"
            f" ID {field_id(field)}, which is not a column of {name}",
            hint="Write the file with the columns that file_schema returns.",
        )


def needs_files(change: SchemaChange) -> bool:
    """Return whether all files are to be written again for a change."""
    return isinstance(change, PutColumn) and change.needs_files


def changed_columns(
    columns: Columns,
    schema: pa.Schema | None,
    steps: Sequence[ColumnStep] = (),
    *,
    deletes: bool = False,
) -> tuple[Columns, list[SchemaChange]]:
    """Return columns after some steps, and the changes that lead there.

    Then columns that only ``schema`` has are added, and those whose type cannot have the values of
    its type are replaced. Columns that it lacks are deleted if ``deletes``.
    """
    editor = _Editor(columns)
    for step in steps:
        editor.apply(step)
    if schema is not None:
        editor.match(schema, deletes)
    columns = Columns(pa.schema(list(editor.fields.values())), next(editor.ids) - 1)
    return columns, editor.changes


class _Editor:
    def __init__(self, columns: Columns) -> None:
        self.fields = {column.name: column for column in columns.schema}
        self.ids = count(columns.last_id + 1)
        self.changes: list[SchemaChange] = []

    def apply(self, step: ColumnStep) -> None:
        if isinstance(step, RenameColumn):
            self.fields = renamed(self.fields, step)
            self.changes.append(step)
        elif isinstance(step, AddColumn):
            self._put(step.name, step.kind)
        elif isinstance(step, ClearColumn):
            self._put(step.name, _plain_type(self.fields[step.name].type))
        else:
            self._change(step.name, step.kind)

    def match(self, schema: pa.Schema, deletes: bool) -> None:
        for name in [name for name in self.fields if deletes and name not in schema.names]:
            del self.fields[name]
            self.changes.append(DeleteColumn(name))
        for column in schema:
            if column.name in self.fields:
                self._change(column.name, column.type)
            else:
                self._put(column.name, column.type)

    def _change(self, name: str, kind: pa.DataType) -> None:
        field = self.fields[name]
        old, new = _plain_type(field.type), _plain_type(_new_field(name, kind, count(1)).type)
        if can_widen(new, old):
            return
        if not can_widen(old, new):
            self._put(name, kind, needs_files=True)
            return
        self.fields[name] = field.with_type(new)
        self.changes.append(WidenColumn(name, new))

    def _put(self, name: str, kind: pa.DataType, needs_files: bool = False) -> None:
        """Add a column, with the place of the one that has its name."""
        names = list(self.fields)
        replaces = name in self.fields
        place = names.index(name) if replaces else len(names)
        self.fields[name] = _new_field(name, kind, self.ids)
        after = names[place - 1] if place else None
        kind = _plain_type(self.fields[name].type)
        self.changes.append(PutColumn(name, kind, replaces, after, needs_files))


def _new_field(name: str, kind: pa.DataType, ids: Iterator[int]) -> pa.Field:
    return _with_ids([pa.field(name, kind)], ids)[0]


def _with_ids(fields: Sequence[pa.Field], ids: Iterator[int]) -> list[pa.Field]:
    """Return fields of a struct with IDs: first their own, then those of what is in them."""
    numbers = [next(ids) for _ in fields]
    return [
        _field(field.name, _type_with_ids(field.name, field.type, ids), number)
        for field, number in zip(fields, numbers, strict=True)
    ]


def _type_with_ids(name: str, kind: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    kind = _WIDER.get(kind, kind)
    if pa.types.is_list(kind):
        number = next(ids)
        element = _type_with_ids(name, kind.value_type, ids)
        return pa.list_(_field("element", element, number))
    if pa.types.is_struct(kind):
        return pa.struct(_with_ids(list(kind), ids))
    if kind in _NAMES or pa.types.is_decimal128(kind):
        return kind
    raise TableError(f"column {name} of type {kind} cannot be in an Iceberg table")


def _field(name: str, kind: pa.DataType, number: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={_ID: str(number).encode()})


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain_type(field.type), field.nullable)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain(member) for member in kind])
    return kind


def to_json(schema: pa.Schema) -> str:
    """Return columns with field IDs as Iceberg's metadata have them."""
    return json.dumps({"type": "struct", "fields": [_json_field(column) for column in schema]})


def type_json(kind: pa.DataType) -> str:
    """Return a schema with one column of a type."""
    return to_json(pa.schema([_new_field("column", kind, count(1))]))


def from_json(text: str) -> pa.Schema:
    """Return the Arrow schema of Iceberg's JSON, with field IDs.

    Raises ``TableError`` for types that tables of this package do not have.
    """
    return pa.schema([_arrow_field(field) for field in json.loads(text)["fields"]])


def _json_field(field: pa.Field) -> dict[str, Any]:
    return {
        "id": field_id(field),
        "name": field.name,
        "required": not field.nullable,
        "type": _json_type(field.type),
    }


def _json_type(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return {
            "type": "list",
            "element-id": field_id(kind.value_field),
            "element": _json_type(kind.value_type),
            "element-required": not kind.value_field.nullable,
        }
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_json_field(member) for member in kind]}
    return _NAMES[kind]


def _arrow_field(field: dict[str, Any]) -> pa.Field:
    kind = _arrow_type(field["name"], field["type"])
    return _field(field["name"], kind, field["id"], not field["required"])


def _arrow_type(name: str, kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
    elif kind["type"] == "list":
        element, nullable = _arrow_type(name, kind["element"]), not kind["element-required"]
        return pa.list_(_field("element", element, kind["element-id"], nullable))
    elif kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    raise TableError(
        f"unsupported type {kind} of column {name} in an Iceberg table",
        hint="Drop the column, or have the mirror write another table.",
    )
