"""Status of a mirror: a row for each table, in a table of its own.

It is for people, and written after the tables. The tables' own commits decide which changes are
applied. A mirror reads requests in it, which tables failed, and parts of the log without changes of
a relation: these are facts about the log, whatever the table has.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from typing import Final

import pyarrow as pa

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake.system_table import DamagedRowsError, SystemTable
from pgwire_codec.lake.tables.target import CommitConflict
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

# States of a table.
OK: Final = "ok"  # the mirror keeps it up to date
INCOMPLETE: Final = "incomplete"  # the same, and some of its rows lack values
MODIFIED: Final = "modified"  # the same, and another program has changed some of its rows
RETRYING: Final = "retrying"  # its changes are not applied, because of an error that may pass
SET_ASIDE: Final = "set aside"  # its changes are not applied, because of an error
GONE: Final = "gone"  # no relation has its name now: it was renamed
RESUMING: Final = "resuming"  # it is to be resumed with the next batch
REPLAYING: Final = "replaying"  # its changes are to be applied again, from its first dead letter on

#: States of tables that the mirror keeps up to date.
CURRENT: Final = (OK, INCOMPLETE, MODIFIED)

#: States that a user has set, until the mirror has done the work.
REQUESTED: Final = (RESUMING, REPLAYING)

_SINCE: Final = " since "  # between the name of a column and an LSN

_ERROR_LENGTH: Final = 2000


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a table."""

    table: str
    relation_oid: int
    state: str = OK  # one of the states above
    since: datetime | None = None  # time of the first failure, if it fails
    error: str | None = None  # reason for which it fails, or is modified
    hint: str | None = None  # what to do about that, or about ``incomplete`` columns
    log_id: str | None = None  # of the log that it has the changes of
    commit_lsn: int | None = None  # of the last transaction that the target has
    commit_time: datetime | None = None
    #: The target has all transactions up to this commit LSN. It is the same for all tables that
    #: are :data:`CURRENT`, unless one was just resumed.
    complete_lsn: int | None = None
    version: int | None = None  # version of the target after its last change
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

    def current(self, incomplete: Mapping[str, int], others: Sequence[str] = ()) -> TableStatus:
        """Return the status of a table that has all changes.

        ``incomplete`` are columns that lack values, and ``others`` commits of other programs.
        """
        columns = tuple(f"{name}{_SINCE}{format_lsn(lsn)}" for name, lsn in incomplete.items())
        state, error, hint = OK, None, None
        copy = f"pgwire-codec log add-table --table {shlex.quote(self.table)} LOG"
        if incomplete:
            state = INCOMPLETE
            hint = (
                "Rows from before a column was there have null in it, and the log does not have "
                f"their values ({', '.join(columns)}). On the server they have others if the "
                "column was renamed, or has a DEFAULT. Have the capture copy the table again: "
                f"{copy}"
            )
        if others:
            state = MODIFIED
            error = f"another program has changed rows: {', '.join(others)}"[:_ERROR_LENGTH]
            copied = f"Compare it with the server's, and have the capture copy it again: {copy}"
            hint = copied if hint is None else f"{copied}. {hint}"
        return replace(self, incomplete=columns, state=state, since=None, error=error, hint=hint)

    def of_another_relation(self, oid: int) -> TableStatus:
        """Return the status when another relation has the name: its own values do not fail."""
        return replace(self.current({}), relation_oid=oid, complete_lsn=None)

    def failed(self, error: PgwireError, *, may_pass: bool = False) -> TableStatus:
        """Return the status after an error."""
        return replace(
            self,
            state=RETRYING if may_pass else SET_ASIDE,
            since=self.since or datetime.now(timezone.utc),
            error=error.primary[:_ERROR_LENGTH],
            hint=error.hint,
        )


_TEXTS: Final = pa.list_(pa.field("element", pa.string()))

#: Columns of the status table.
STATUS: Final = pa.schema(
    {
        "table": pa.string(),
        "relation_oid": pa.int64(),
        "state": pa.string(),
        "since": pa.timestamp("us", "UTC"),
        "error": pa.string(),
        "hint": pa.string(),
        "log_id": pa.string(),
        "commit_lsn": pa.int64(),
        "commit_lsn_text": pa.string(),
        "commit_time": pa.timestamp("us", "UTC"),
        "complete_lsn": pa.int64(),
        "complete_lsn_text": pa.string(),
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
        """Return the rows, by table; none if it does not exist, or its rows are damaged."""
        try:
            table = self._table.read()
        except DamagedRowsError as error:
            LOGGER.warning("the status table is written again: %s", error.primary)
            return {}
        if table is not self._read:
            self._read, self._rows = table, _from_arrow(table.select(_NAMES))
        return dict(self._rows)

    def changes(self) -> dict[str, TableStatus] | None:
        """Return the rows if another process has written since they were read or written."""
        before = self._read
        rows = self.read()
        return None if self._read is before else rows

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
        lsns = {"commit_lsn_text": row.commit_lsn, "complete_lsn_text": row.complete_lsn}
        texts = {name: None if lsn is None else format_lsn(lsn) for name, lsn in lsns.items()}
        values.append(asdict(row) | texts)
    return pa.Table.from_pylist(values, schema=STATUS)


def _from_arrow(table: pa.Table) -> dict[str, TableStatus]:
    rows = table.to_pylist()
    for row in rows:
        for name in ("evolutions", "masks", "row_columns", "incomplete"):
            row[name] = None if row[name] is None else tuple(row[name])
    return {row["table"]: TableStatus(**row) for row in rows}
