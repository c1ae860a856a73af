"""Columns of a DataFrame of changes: the table's, the keys, the metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.changes.metadata import RELATION_OID, metadata_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Metadata columns of the change that left a row in its last state.
ROW_METADATA: Final = (
    "_xid", "_lsn", "_commit_lsn", "_commit_time", "_seq", "_origin", RELATION_OID,
)  # fmt: skip

_REQUIRED: Final = ("_op", "_commit_lsn", "_seq", "_unchanged")


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Columns of a DataFrame of changes.

    A table's columns can have any names, also names that differ in case only, which Spark cannot
    tell apart. So :meth:`numbered` names them by their number in :attr:`table`, and the metadata
    columns without further underscores.

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
    """

    table: tuple[str, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    metadata: dict[str, str]
    before: tuple[str, ...]

    @classmethod
    def of(cls, changes: DataFrame, keys: Sequence[str] | None) -> ChangeColumns:
        """Find the columns. Raises ``ValueError`` for a DataFrame without changes.

        Without keys, all columns are values.
        """
        from pyspark.sql import DataFrame

        if not isinstance(changes, DataFrame):
            raise TypeError(f"changes must be a Spark DataFrame, not {type(changes).__name__}")
        if keys is None:
            keys = ()
        elif isinstance(keys, str) or not keys:
            raise ValueError(
                f"keys must name at least one column in a list, or be None for a table without a "
                f"key, not {keys!r}"
            )
        present = changes.columns
        metadata = metadata_names(present)
        if missing := [name for name in _REQUIRED if name not in metadata]:
            raise ValueError(
                f"not a DataFrame of changes, as decode_changes returns: it has no "
                f"{', '.join(missing)}; it has: {', '.join(present)}"
            )
        table = tuple(name for name in present if name not in metadata.values())
        if unknown := [name for name in keys if name not in table]:
            raise ValueError(
                f"the table has no key column {', '.join(unknown)}; it has: {', '.join(table)}"
            )
        before: tuple[str, ...] = ()
        if "_before" in metadata:
            kind: Any = changes.schema.fields[present.index(metadata["_before"])].dataType
            before = tuple(kind.fieldNames())
        if before and (unknown := [name for name in keys if name not in before]):
            raise ValueError(
                f"key column {', '.join(unknown)} is not in the table's replica identity: _before "
                f"has {', '.join(sorted(before))}, so that a change of the key would go unseen"
            )
        values = tuple(number for number, name in enumerate(table) if name not in keys)
        return cls(table, tuple(map(table.index, keys)), values, metadata, before)

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

    @property
    def numbers(self) -> list[str]:
        """Names of the table's columns in :meth:`numbered`."""
        return [f"c{number}" for number in range(len(self.table))]

    @property
    def row_metadata(self) -> list[str]:
        """Those of :data:`ROW_METADATA` that are present."""
        return [name for name in ROW_METADATA if name in self.metadata]

    def in_before(self, number: int) -> bool:
        """Return whether ``_before`` has a column."""
        return self.table[number] in self.before

    def key(self, number: int) -> Column:
        """Return a key column after a change: a long one may be sent with the old key only."""
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
            # The server refuses updates of a table without replica identity: _before was left out.
            no_before = functions.raise_error(
                functions.lit(
                    "an update without _before, by which a change of the key is seen: decode with "
                    'before="key"'
                )
            )
            return functions.when(updated, no_before).otherwise(self.key(number))
        before = functions.col("_before")
        has_before = updated & before.isNotNull()
        return functions.when(has_before, before[f"c{number}"]).otherwise(self.key(number))
