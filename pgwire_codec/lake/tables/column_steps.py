"""Steps that change the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from pgwire_codec.lake.row_types import sql_name


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a column, which is null in existing rows."""

    name: str
    kind: pa.DataType

    def __str__(self) -> str:
        return f"add column {self.name} {sql_name(self.kind)}"


@dataclass(frozen=True, slots=True)
class ClearColumn:
    """Set a column to null in all rows: another column had its name before."""

    name: str

    def __str__(self) -> str:
        return f"clear column {self.name}"


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"rename column {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Change the type of a column to a wider one."""

    name: str
    kind: pa.DataType

    def __str__(self) -> str:
        return f"widen column {self.name} to {sql_name(self.kind)}"


ColumnStep: TypeAlias = AddColumn | ClearColumn | RenameColumn | WidenColumn


def changed_schema(schema: pa.Schema, steps: Sequence[ColumnStep]) -> pa.Schema:
    """Return the columns of a table after some steps."""
    fields = {field.name: field for field in schema}
    for step in steps:
        if isinstance(step, RenameColumn):
            fields = renamed(fields, step)
        elif isinstance(step, (AddColumn, WidenColumn)):
            fields[step.name] = pa.field(step.name, step.kind)
    return pa.schema(list(fields.values()))


def renamed(fields: Mapping[str, pa.Field], step: RenameColumn) -> dict[str, pa.Field]:
    """Return fields by their names after a step, in their order."""
    names = {step.old: step.new}
    columns = (field.with_name(names.get(name, name)) for name, field in fields.items())
    return {column.name: column for column in columns}


def former_names(schema: pa.Schema, steps: Sequence[ColumnStep]) -> dict[str, str | None]:
    """Return by column the name that it has before some steps; None for one without values."""
    names: dict[str, str | None] = {name: name for name in schema.names}
    for step in steps:
        if isinstance(step, RenameColumn):
            names[step.new] = names.pop(step.old)
        elif isinstance(step, (AddColumn, ClearColumn)):
            names[step.name] = None
    return names
