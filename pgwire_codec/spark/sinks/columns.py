"""Steps that change the columns of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a column, which is null in existing rows."""

    name: str
    kind: DataType

    def __str__(self) -> str:
        return f"add column {self.name} {self.kind.simpleString()}"


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
    kind: DataType

    def __str__(self) -> str:
        return f"widen column {self.name} to {self.kind.simpleString()}"


ColumnStep: TypeAlias = AddColumn | ClearColumn | RenameColumn | WidenColumn


def changed_columns(
    schema: StructType, steps: Sequence[ColumnStep]
) -> tuple[StructType, dict[str, str]]:
    """Return the columns of a target after some steps, and the new names of renamed ones."""
    from pyspark.sql.types import StructField, StructType

    fields, renamed = {field.name: field for field in schema.fields}, {}
    for step in steps:
        if isinstance(step, RenameColumn):
            fields[step.new] = StructField(step.new, fields.pop(step.old).dataType)
            renamed[step.old] = step.new
        elif not isinstance(step, ClearColumn):
            fields[step.name] = StructField(step.name, step.kind)
    return StructType(list(fields.values())), renamed
