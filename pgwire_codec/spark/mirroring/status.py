"""Status of a mirror: a row for each table, in a table of its own.

It is for readers, and written after the tables: it never has a commit that a table does not have.
The tables' own commits decide which changes are applied.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Final

import pyarrow as pa

from pgwire_codec.errors import PgwireError
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.spark.failures import cause_of
from pgwire_codec.spark.mirroring.lake_table import LakeTable

LOGGER: Final = logging.getLogger("pgwire_codec.spark.mirror")

#: State of a table that the mirror keeps up to date.
OK: Final = "ok"

#: State of a table that the mirror keeps up to date, and some of whose rows lack values.
INCOMPLETE: Final = "incomplete"

#: States of tables that the mirror keeps up to date.
CURRENT: Final = (OK, INCOMPLETE)

#: State of a table whose changes are not applied, because of an error.
SET_ASIDE: Final = "set aside"

#: Packages whose errors contain those of other processes.
_FROM_JAVA: Final = ("pyspark", "py4j")

#: Between the name of a column and an LSN.
_SINCE: Final = " since "

_ERROR_LENGTH: Final = 2000

#: State of a table whose name no relation has now: it was renamed.
GONE: Final = "gone"

#: State of a table that is to be resumed with the next batch.
RESUMING: Final = "resuming"

#: State of a table whose changes are to be applied again, from its first dead letter on.
REPLAYING: Final = "replaying"

#: States that a user has set, until the mirror has done the work.
REQUESTED: Final = (RESUMING, REPLAYING)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a table.

    Attributes
    ----------
    table : str
        ``schema.table``.
    relation_oid : int
        OID of the relation.
    state : {"ok", "incomplete", "gone", "set aside", "resuming", "replaying"}
    error, hint : str or None
        Reason for which the table is set aside, and what to do about that, or about
        :attr:`incomplete` columns.
    commit_lsn : int or None
        Commit LSN of the last transaction that the target has.
    commit_time : datetime.datetime or None
        Its time.
    whole_lsn : int or None
        The target has all transactions up to this commit LSN. It is the same for all tables in the
        state ``ok`` or ``incomplete``, unless one was just resumed.
    version : int or None
        Version of the target at ``whole_lsn``.
    batch : int or None
        Number of the last micro-batch with changes of the table.
    changes : int
        Number of its changes in that batch.
    evolutions : tuple of str
        Changes of the target's columns, oldest first.
    masks : tuple of str or None
        Masks with which its rows were written, ``COLUMN=MASK``, if that is known.
    row_columns : tuple of str or None
        Columns that the mirror added to its rows, if they are known.
    dead_letters : int
        Number of changes that the target lacks, because they did not decode.
    incomplete : tuple of str
        Columns that are null in rows from before they were there, as ``COLUMN since LSN``.
    """

    table: str
    relation_oid: int
    state: str = OK
    error: str | None = None
    hint: str | None = None
    commit_lsn: int | None = None
    commit_time: datetime | None = None
    whole_lsn: int | None = None
    version: int | None = None
    batch: int | None = None
    changes: int = 0
    evolutions: tuple[str, ...] = ()
    masks: tuple[str, ...] | None = None
    row_columns: tuple[str, ...] | None = None
    dead_letters: int = 0
    incomplete: tuple[str, ...] = ()

    @property
    def incomplete_columns(self) -> dict[str, int]:
        """Commit LSN since which each column of :attr:`incomplete` is there."""
        parts = (each.rpartition(_SINCE) for each in self.incomplete)
        return {name: parse_lsn(lsn) for name, _, lsn in parts}

    def kept(self, columns: Mapping[str, int]) -> TableStatus:
        """Return the status of a table that is up to date, but for values of some columns."""
        incomplete = tuple(f"{name}{_SINCE}{format_lsn(lsn)}" for name, lsn in columns.items())
        status = replace(self, incomplete=incomplete)
        if not columns:
            return replace(status, state=OK, error=None, hint=None)
        return replace(
            status,
            state=INCOMPLETE,
            error=None,
            hint="Rows from before a column was there have null in it, and the log does not have "
            f"their values ({', '.join(incomplete)}). On the server they have others if the column "
            "was renamed, or has a DEFAULT. Have the capture copy the table again: pgwire-codec "
            f"log add-table --table {shlex.quote(self.table)} LOG",
        )

    def of_another_relation(self, oid: int) -> TableStatus:
        """Return the status when another relation has the name: its own values do not fail."""
        return replace(self.kept({}), relation_oid=oid, whole_lsn=None)

    def set_aside(self, error: Exception) -> TableStatus:
        """Return the status after an error."""
        cause, hint = cause_of(str(error)), None
        if isinstance(error, PgwireError):
            cause, hint = cause_of(error.primary), error.hint
        elif type(error).__module__.partition(".")[0] not in _FROM_JAVA:
            cause = f"{type(error).__name__}: {cause}"
        return replace(self, state=SET_ASIDE, error=cause[:_ERROR_LENGTH], hint=hint)


_SCHEMA: Final = pa.schema(
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
        "evolutions": pa.list_(pa.string()),
        "masks": pa.list_(pa.string()),
        "row_columns": pa.list_(pa.string()),
        "dead_letters": pa.int64(),
        "incomplete": pa.list_(pa.string()),
    }
)


_NAMES: Final = [each.name for each in fields(TableStatus)]


@dataclass(slots=True)
class KnownStatus:
    """Rows of the status table that this process has read or written, and their version."""

    version: int | None = None
    rows: dict[str, TableStatus] = field(default_factory=dict)


class StatusTable:
    """Status table of a lake.

    Rows that are ``known`` are not read again, unless there is another version of the table: a
    micro-batch would pay for that as much as for a small merge.
    """

    def __init__(self, table: LakeTable, known: KnownStatus | None = None) -> None:
        self._table = table
        self._known = KnownStatus() if known is None else known

    def read(self) -> dict[str, TableStatus]:
        """Return the rows, by table; none if it does not exist."""
        version = self._table.version()
        if version is None or version != self._known.version:
            found = self._table.read(_NAMES)
            self._know(version, {} if found is None else _from_arrow(found))
        return dict(self._known.rows)

    def write(self, rows: Iterable[TableStatus]) -> dict[str, TableStatus] | None:
        """Replace the rows, which were read before.

        Return the rows of other processes that have written since they were read, by table: those
        with a request, or else the last ones. None if no other process has written, or if the
        table has no versions.
        """
        replaced = self._known.version
        written = {row.table: row for row in rows}
        self._know(None, {})
        self._table.overwrite(_to_arrow(written.values()))
        version = self._table.version()
        if replaced is None or version is None:
            return None
        if version == replaced + 1:
            self._know(version, written)
            return None
        others: dict[str, TableStatus] = {}
        for number in range(replaced + 1, version + 1):
            found = _from_arrow(self._table.read_version(number, _NAMES))
            self._know(number, found)
            requests = {name: row for name, row in others.items() if row.state in REQUESTED}
            others |= found | requests
        return others

    def tidy(self) -> None:
        """Remove versions of the table that are older than a day; warn if that fails."""
        try:
            self._table.tidy()
        except Exception as error:  # noqa: BLE001  (no row is lost)
            LOGGER.warning("old versions of the status table could not be removed: %s", error)

    def _know(self, version: int | None, rows: dict[str, TableStatus]) -> None:
        self._known.version, self._known.rows = version, rows


def _to_arrow(rows: Iterable[TableStatus]) -> pa.Table:
    found = []
    for row in sorted(rows, key=lambda each: each.table):
        values = asdict(row) | {
            f"{name}_text": None if lsn is None else format_lsn(lsn)
            for name, lsn in (("commit_lsn", row.commit_lsn), ("whole_lsn", row.whole_lsn))
        }
        found.append(values)
    return pa.Table.from_pylist(found, schema=_SCHEMA)


def _from_arrow(table: pa.Table) -> dict[str, TableStatus]:
    rows = table.to_pylist()
    for row in rows:
        for name in ("evolutions", "masks", "row_columns", "incomplete"):
            row[name] = None if row[name] is None else tuple(row[name])
    return {row["table"]: TableStatus(**row) for row in rows}
