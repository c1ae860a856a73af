"""Columns of changes: the table's, the keys, the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pgwire_codec.changes.metadata import RELATION_OID, metadata_names
from pgwire_codec.errors import OptionError, TableError

#: Metadata columns of the change that left a row in its last state.
ROW_METADATA: Final = (
    "_xid", "_lsn", "_commit_lsn", "_commit_time", "_seq", "_origin", RELATION_OID,
)  # fmt: skip

_REQUIRED: Final = ("_op", "_commit_lsn", "_seq", "_unchanged")


def check_names(names: Iterable[str], hint: Callable[[str], str]) -> None:
    """Raise ``TableError`` for columns that have the same name in a lakehouse.

    ``hint`` returns the advice about one of them.
    """
    of_name: dict[str, list[str]] = {}
    for name in names:
        of_name.setdefault(name.lower(), []).append(name)
    for same in of_name.values():
        if len(same) > 1:
            raise TableError(
                f"columns {', '.join(same)} differ in case only, which lakehouses do not support",
                hint=hint(same[-1]),
            )


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Columns of changes.

    A table's columns can have any names, even names that differ in case only, which are the same to
    Spark. So *numbered* changes name them by their number in :attr:`table`: ``c0``, ``c1``, …; and
    the metadata columns without further underscores. The fields of ``_before`` have the names of
    their columns.
    """

    table: tuple[str, ...]
    keys: tuple[int, ...]  # numbers of the columns that identify a row
    #: Names of the metadata columns that are present, by the name without further underscores.
    metadata: dict[str, str]
    before: tuple[str, ...]  # fields of ``_before``
    #: A boolean column that is true in rows that were deleted. Such a row has only a key if an
    #: earlier change, and the target, have none of its values.
    deleted: str | None = None

    @classmethod
    def from_names(
        cls, names: Sequence[str], before: Sequence[str], keys: Sequence[str] | None
    ) -> ChangeColumns:
        """Find the columns of changes with the fields ``before``, by key or without one.

        Raises ``TableError`` for columns that are not those of changes.
        """
        if keys is None:
            keys = ()
        elif isinstance(keys, str) or not keys:
            raise OptionError(
                f"keys must be a list of at least one column, or None, not {keys!r}",
                hint="None is for a table without a key.",
            )
        metadata = metadata_names(names)
        if missing := [name for name in _REQUIRED if name not in metadata]:
            raise TableError(
                f"changes has no column {', '.join(missing)}",
                hint="Use a DataFrame of changes, as decode_changes returns. The columns of this "
                f"one are {', '.join(names)}.",
            )
        table = tuple(name for name in names if name not in metadata.values())
        if unknown := [name for name in keys if name not in table]:
            raise TableError(
                f"the table has no key column {', '.join(unknown)}",
                hint=f"Its columns are {', '.join(table)}.",
            )
        if before and (unknown := [name for name in keys if name not in before]):
            raise TableError(
                f"key column {', '.join(unknown)} is not in the table's replica identity: changes "
                "of the key cannot be detected",
                hint=f"The columns of _before are {', '.join(sorted(before))}.",
            )
        return cls(table, tuple(map(table.index, keys)), metadata, tuple(before))

    def without_row_metadata(self) -> ChangeColumns:
        """Return the columns without the metadata that a target has no columns for."""
        needed = (*_REQUIRED, "_before")
        metadata = {name: actual for name, actual in self.metadata.items() if name in needed}
        return replace(self, metadata=metadata)

    @property
    def values(self) -> list[int]:
        """Numbers of the columns that do not identify a row."""
        return [number for number in range(len(self.table)) if number not in self.keys]

    @property
    def key_numbers(self) -> list[str]:
        """Names of the columns that identify a row in numbered changes."""
        return [f"c{number}" for number in self.keys]

    @property
    def numbers(self) -> list[str]:
        """Names of the table's columns in numbered changes."""
        return [f"c{number}" for number in range(len(self.table))]

    @property
    def row_metadata(self) -> list[str]:
        """Present columns of :data:`ROW_METADATA`."""
        return [name for name in ROW_METADATA if name in self.metadata]

    def in_before(self, number: int) -> bool:
        """Return whether ``_before`` has a column."""
        return self.table[number] in self.before
