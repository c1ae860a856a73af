"""Status of a mirror: a row for each table, in a table of its own.

It is for readers, and written after the tables: it never has a commit that a table does not have.
The tables' own commits decide which changes are applied.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Final

import pyarrow as pa

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake.system_table import SystemTable
from pgwire_codec.lake.tables.target import CommitConflict
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

# States of a table.
OK: Final = "ok"  # the mirror keeps it up to date
INCOMPLETE: Final = "incomplete"  # the same, and some of its rows lack values
SET_ASIDE: Final = "set aside"  # its changes are not applied, because of an error
GONE: Final = "gone"  # no relation has its name now: it was renamed
RESUMING: Final = "resuming"  # it is to be resumed with the next batch
REPLAYING: Final = "replaying"  # its changes are to be applied again, from its first dead letter on

#: States of tables that the mirror keeps up to date.
CURRENT: Final = (OK, INCOMPLETE)

#: States that a user has set, until the mirror has done the work.
REQUESTED: Final = (RESUMING, REPLAYING)

#: Between the name of a column and an LSN.
_SINCE: Final = " since "

_ERROR_LENGTH: Final = 2000


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a table."""

    table: str
    relation_oid: int
    state: str = OK  # one of the states above
    error: str | None = None  # reason for which the table is set aside
    hint: str | None = None  # what to do about that, or about ``incomplete`` columns
    commit_lsn: int | None = None  # of the last transaction that the target has
    commit_time: datetime | None = None
    #: The target has all transactions up to this commit LSN. It is the same for all tables that
    #: are :data:`CURRENT`, unless one was just resumed.
    whole_lsn: int | None = None
    version: int | None = None  # version of the target at ``whole_lsn``
    batch: int | None = None  # number of the last micro-batch with changes of the table
    changes: int = 0  # number of its changes in that batch
    evolutions: tuple[str, ...] = ()  # changes of the target's columns, oldest first
    #: ``COLUMN=MASK``, with which its rows were written, if that is known.
    masks: tuple[str, ...] | None = None
    #: Columns that the mirror added to its rows, if they are known.
    row_columns: tuple[str, ...] | None = None
    dead_letters: int = 0  # number of changes that the target lacks, because they did not decode
    #: Columns that are null in rows from before they were there, as ``COLUMN since LSN``.
    incomplete: tuple[str, ...] = ()

    @property
    def incomplete_columns(self) -> dict[str, int]:
        """Commit LSN since which each column of :attr:`incomplete` is there."""
        parts = (each.rpartition(_SINCE) for each in self.incomplete)
        return {name: parse_lsn(lsn) for name, _, lsn in parts}

    def kept(self, columns: Mapping[str, int]) -> TableStatus:
        """Return the status of a table that is up to date, but for values of some columns."""
        incomplete = tuple(f"{name}{_SINCE}{format_lsn(lsn)}" for name, lsn in columns.items())
        state, hint = OK, None
        if columns:
            state = INCOMPLETE
            hint = (
                "Rows from before a column was there have null in it, and the log does not have "
                f"their values ({', '.join(incomplete)}). On the server they have others if the "
                "column was renamed, or has a DEFAULT. Have the capture copy the table again: "
                f"pgwire-codec log add-table --table {shlex.quote(self.table)} LOG"
            )
        return replace(self, incomplete=incomplete, state=state, error=None, hint=hint)

    def of_another_relation(self, oid: int) -> TableStatus:
        """Return the status when another relation has the name: its own values do not fail."""
        return replace(self.kept({}), relation_oid=oid, whole_lsn=None)

    def set_aside(self, error: Exception) -> TableStatus:
        """Return the status after an error."""
        cause, hint = f"{type(error).__name__}: {error}", None
        if isinstance(error, PgwireError):
            cause, hint = error.primary, error.hint
        return replace(self, state=SET_ASIDE, error=cause[:_ERROR_LENGTH], hint=hint)


_TEXTS: Final = pa.list_(pa.field("element", pa.string()))

#: Columns of the status table.
STATUS: Final = pa.schema(
    {
        "table": pa.string(),
        "relation_oid": pa.int64(),
        "state": pa.string(),
        "error": pa.string(),
        "hint": pa.string(),
        "commit_lsn": pa.int64(),
        "commit_lsn_text": pa.string(),
        "commit_time": pa.timestamp("us", "UTC"),
        "whole_lsn": pa.int64(),
        "whole_lsn_text": pa.string(),
        "version": pa.int64(),
        "batch": pa.int64(),
        "changes": pa.int64(),
        "evolutions": _TEXTS,
        "masks": _TEXTS,
        "row_columns": _TEXTS,
        "dead_letters": pa.int64(),
        "incomplete": _TEXTS,
    }
)

_NAMES: Final = [each.name for each in fields(TableStatus)]


class StatusTable:
    """Status table of a lake. Its rows are read again only if another process has written."""

    def __init__(self, table: SystemTable) -> None:
        self._table = table
        self._read: pa.Table | None = None
        self._rows: dict[str, TableStatus] = {}

    def read(self) -> dict[str, TableStatus]:
        """Return the rows, by table; none if it does not exist."""
        table = self._table.read()
        if table is not self._read:
            self._read, self._rows = table, _from_arrow(table.select(_NAMES))
        return dict(self._rows)

    def write(self, rows: Iterable[TableStatus]) -> bool:
        """Replace the rows; return False if another process has written since they were read."""
        written = {row.table: row for row in rows}
        table = _to_arrow(written.values())
        try:
            self._table.overwrite(table)
        except CommitConflict:
            return False
        self._read, self._rows = table, written
        return True


def _to_arrow(rows: Iterable[TableStatus]) -> pa.Table:
    values = []
    for row in sorted(rows, key=lambda each: each.table):
        lsns = {"commit_lsn_text": row.commit_lsn, "whole_lsn_text": row.whole_lsn}
        texts = {name: None if lsn is None else format_lsn(lsn) for name, lsn in lsns.items()}
        values.append(asdict(row) | texts)
    return pa.Table.from_pylist(values, schema=STATUS)


def _from_arrow(table: pa.Table) -> dict[str, TableStatus]:
    rows = table.to_pylist()
    for row in rows:
        for name in ("evolutions", "masks", "row_columns", "incomplete"):
            row[name] = None if row[name] is None else tuple(row[name])
    return {row["table"]: TableStatus(**row) for row in rows}
