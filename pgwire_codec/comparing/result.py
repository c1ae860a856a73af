"""Result of a comparison: the state of each table, and rows that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: States of tables. The rows in the target are those of the server; or but for columns that follow,
#: which cannot be compared.
EQUAL: Final = "equal"
EQUAL_EXCEPT: Final = "equal, except: "
#: The target has other rows, and no change in the log explains it.
DIFFERS: Final = "differs"
#: Without a difference, but the target lacks changes.
BEHIND: Final = "behind"
#: Without a difference, but some rows changed whenever the table was compared.
CHANGING: Final = "changing"
#: The mirror has set it aside. It is not compared.
SET_ASIDE: Final = "set aside"
#: The target does not have it.
MISSING: Final = "missing"
#: The server does not have it, or does not publish it.
GONE: Final = "gone"
#: It was not compared, because of an error.
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs.

    Attributes
    ----------
    row : mapping of str to object
        Values of the columns that identify it: those of the replica identity, or all columns.
    server, target : int
        Number of such rows that one side has and the other one does not. Rows with the same key
        and other values count on both sides.
    columns : mapping of str to tuple
        Values on the server and in the target, of the columns that differ. Empty unless each side
        has one row of the key.
    """

    row: Mapping[str, Any]
    server: int
    target: int
    columns: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Result of the comparison of a table.

    Attributes
    ----------
    table : str
        ``schema.table``.
    state : str
        ``equal``, ``equal, except: COLUMN, …``, ``differs``, ``behind``, ``changing``,
        ``set aside``, ``missing``, ``gone`` or ``failed``; see :func:`compare`.
    lsn : int or None
        LSN of the server at which its rows were read last.
    target_lsn : int or None
        Commit LSN up to which the target had all transactions then.
    version : int or None
        Version of the target that was read.
    server_rows, target_rows : int or None
        Number of rows.
    differing : int
        Number of keys with rows that differ or, without keys, of such distinct rows.
    unsettled : int
        Number of others that differ, but may be equal when the target has their last changes.
    differences : tuple of RowDifference
        Some of those that differ or, without any, of the unsettled ones.
    ignored : tuple of str
        Columns that only the target has.
    uncompared : mapping of str to str
        Columns of the table that cannot be compared, each with the reason.
    error, hint : str or None
        Reason why the table was not compared; advice.
    """

    table: str
    state: str
    lsn: int | None = None
    target_lsn: int | None = None
    version: int | None = None
    server_rows: int | None = None
    target_rows: int | None = None
    differing: int = 0
    unsettled: int = 0
    differences: tuple[RowDifference, ...] = ()
    ignored: tuple[str, ...] = ()
    uncompared: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of :func:`compare`.

    Attributes
    ----------
    tables : tuple of TableComparison
        By name.
    """

    tables: tuple[TableComparison, ...]

    @property
    def is_equal(self) -> bool:
        """True if every table is equal."""
        return all(each.state == EQUAL for each in self.tables)
