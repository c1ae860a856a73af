"""Columns of a DataFrame of changes: the table's, the keys, the metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.changes.metadata import RELATION_OID, metadata_names
from pgwire_codec.errors import OptionError, TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

#: Metadata columns of the change that left a row in its last state.
ROW_METADATA: Final = (
    "_xid", "_lsn", "_commit_lsn", "_commit_time", "_seq", "_origin", RELATION_OID,
)  # fmt: skip

_REQUIRED: Final = ("_op", "_commit_lsn", "_seq", "_unchanged")


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Columns of a DataFrame of changes.

    A table's columns can have any names, even names that differ in case only, which are the same to
    Spark. So :meth:`numbered` names them by their number in :attr:`table`, and the metadata columns
    without further underscores.

    Attributes
    ----------
    table : tuple of str
        The table's columns.
    keys, values : tuple of int
        Numbers of the columns that identify a row, and of the others.
    metadata : dict of str to str
        Names of the metadata columns that are present, by the name without further underscores.
    before : tuple of str
        Fields of ``_before``.
    deleted : int or None
        Number of a boolean column, if there is one, that is true in rows that were deleted. Such a
        row has only a key if an earlier change, and the target, have none of its values.
    """

    table: tuple[str, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    metadata: dict[str, str]
    before: tuple[str, ...]
    deleted: int | None = None

    @classmethod
    def of(
        cls, changes: DataFrame, keys: Sequence[str] | None, deleted: str | None = None
    ) -> ChangeColumns:
        """Find the columns. Raises ``TableError`` for a DataFrame that is not one of changes.

        Without keys, all columns are values. ``deleted`` is the name of :attr:`deleted`.
        """
        from pyspark.sql import DataFrame

        if not isinstance(changes, DataFrame):
            raise TypeError(f"changes must be a Spark DataFrame, not {type(changes).__name__}")
        if keys is None:
            keys = ()
        elif isinstance(keys, str) or not keys:
            raise OptionError(
                f"keys must be a list of at least one column, or None, not {keys!r}",
                hint="None is for a table without a key.",
            )
        present = changes.columns
        metadata = metadata_names(present)
        if missing := [name for name in _REQUIRED if name not in metadata]:
            raise TableError(
                f"changes has no column {', '.join(missing)}",
                hint="Use a DataFrame of changes, as decode_changes returns. The columns of this "
                f"one are {', '.join(present)}.",
            )
        table = tuple(name for name in present if name not in metadata.values())
        if unknown := [name for name in keys if name not in table]:
            raise TableError(
                f"the table has no key column {', '.join(unknown)}",
                hint=f"Its columns are {', '.join(table)}.",
            )
        before: tuple[str, ...] = ()
        if "_before" in metadata:
            kind: Any = changes.schema.fields[present.index(metadata["_before"])].dataType
            before = tuple(kind.fieldNames())
        if before and (unknown := [name for name in keys if name not in before]):
            raise TableError(
                f"key column {', '.join(unknown)} is not in the table's replica identity: changes "
                "of the key cannot be detected",
                hint=f"The columns of _before are {', '.join(sorted(before))}.",
            )
        values = tuple(number for number, name in enumerate(table) if name not in keys)
        number = None if deleted is None else table.index(deleted)
        return cls(table, tuple(map(table.index, keys)), values, metadata, before, number)

    def numbered(self, changes: DataFrame) -> DataFrame:
        """Return the changes with ``c0``, ``c1``, … for the table's columns.

        The metadata columns are ``_op``, ``_xid`` and so on; the fields of ``_before`` have the
        names of their columns.
        """
        from pyspark.sql import functions
        from pyspark.sql.types import StructField, StructType

        numbers = {name: f"c{number}" for number, name in enumerate(self.table)}
        numbers |= {actual: name for name, actual in self.metadata.items()}
        renamed = changes.toDF(*(numbers[name] for name in changes.columns))
        if not self.before:
            return renamed
        kind: Any = renamed.schema["_before"].dataType
        fields = [
            StructField(numbers.get(field.name, f"dropped{place}"), field.dataType)
            for place, field in enumerate(kind.fields)
        ]
        return renamed.withColumn("_before", functions.col("_before").cast(StructType(fields)))

    def schema(self, rows: DataFrame) -> StructType:
        """Return the schema of the table, of rows with its columns by number."""
        from pyspark.sql.types import StructField, StructType

        kinds = {field.name: field.dataType for field in rows.schema}
        named = zip(self.table, self.numbers, strict=True)
        return StructType([StructField(name, kinds[number]) for name, number in named])

    def without_row_metadata(self) -> ChangeColumns:
        """Return the columns without the metadata that a target has no columns for."""
        needed = (*_REQUIRED, "_before")
        metadata = {name: actual for name, actual in self.metadata.items() if name in needed}
        return replace(self, metadata=metadata)

    @property
    def numbers(self) -> list[str]:
        """Names of the table's columns in :meth:`numbered`."""
        return [f"c{number}" for number in range(len(self.table))]

    @property
    def row_metadata(self) -> list[str]:
        """Present columns of :data:`ROW_METADATA`."""
        return [name for name in ROW_METADATA if name in self.metadata]

    def in_before(self, number: int) -> bool:
        """Return whether ``_before`` has a column."""
        return self.table[number] in self.before

    def key(self, number: int) -> Column:
        """Return a key column after a change. A long key may be sent in the old tuple only."""
        from pyspark.sql import functions

        sent = functions.col(f"c{number}")
        if not self.in_before(number):
            return sent
        is_unchanged = functions.array_contains("_unchanged", self.table[number])
        return functions.when(is_unchanged, functions.col("_before")[f"c{number}"]).otherwise(sent)

    def old_key(self, number: int) -> Column:
        """Return a key column before a change."""
        from pyspark.sql import functions

        updated = functions.col("_op") == "U"
        if not self.before:
            # The server refuses updates without a replica identity, so _before was left out.
            no_before = functions.raise_error(
                functions.lit(
                    "update without _before: changes of the key cannot be detected — hint: Decode "
                    'with `before="key"`.'
                )
            )
            return functions.when(updated, no_before).otherwise(self.key(number))
        before = functions.col("_before")
        has_before = updated & before.isNotNull()
        return functions.when(has_before, before[f"c{number}"]).otherwise(self.key(number))
