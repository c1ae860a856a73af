"""ComparisonRun: the snapshots of one comparison, until each table is settled, and its options."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pgwire_codec.changes.identity import column_names
from pgwire_codec.comparing.compared_columns import ComparedColumns, uncompared_columns
from pgwire_codec.comparing.log_changes import ChangedRows, changed_rows, unlogged_relations
from pgwire_codec.comparing.result import (
    DIFFERS,
    FAILED,
    GONE,
    SET_ASIDE,
    Comparison,
    TableComparison,
)
from pgwire_codec.comparing.row_differences import (
    BUCKETS,
    Balance,
    Checksum,
    Differences,
    KeyChoice,
    RowCount,
    RowSplit,
    SideRows,
)
from pgwire_codec.comparing.server_state import ServerRows, ServerState, schema_of
from pgwire_codec.comparing.table_check import Reading, TableCheck
from pgwire_codec.comparing.target_table import TargetTable, open_version
from pgwire_codec.errors import OptionError
from pgwire_codec.lake import status
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.status import TableStatus
from pgwire_codec.lake.table_names import TableNames, no_table
from pgwire_codec.lake.task_errors import error_of
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.log.tables_with_rows import TablesWithRows
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.messages import Relation

#: Defaults: seconds for the log and the target to reach the server, number of connections that read
#: a table, and number of its rows that are shown.
WAIT: Final = 60.0
JOBS: Final = 4
MAX_ROWS: Final = 10

_PART_BYTES: Final = 32 << 20  # bytes of rows, of buckets that differ, that one task counts

_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison, as :func:`compare` has them. Raises ``OptionError`` for others."""

    tables: str | Sequence[str]
    publication: str | Sequence[str]
    wait: float
    jobs: int
    max_rows: int
    #: With which values of both sides are decoded.
    decoder: DecoderOptions = field(default_factory=partial(DecoderOptions, arrow_types=ROW_TYPES))

    def __post_init__(self) -> None:
        for name, least in (("wait", 0), ("jobs", 1), ("max_rows", 0)):
            value = getattr(self, name)
            if value < least:
                raise OptionError(f"{name} must be at least {least}, not {value}")

    @property
    def names(self) -> Sequence[str]:
        """Names and patterns of tables."""
        if isinstance(self.tables, str):
            return [name.strip() for name in self.tables.split(",")]
        return self.tables

    @property
    def publications(self) -> Sequence[str]:
        """Names of the publications; none for those of the log's last session."""
        return [self.publication] if isinstance(self.publication, str) else self.publication


class ComparisonRun:
    """Comparison of the tables of a lake with a server, whose tasks a runner runs."""

    def __init__(
        self,
        runner: Runner,
        log: str | os.PathLike[str] | Log,
        lake: Lake,
        dsn: str,
        options: ComparisonOptions,
    ) -> None:
        self._runner = runner
        self._log = log if isinstance(log, Log) else Log(os.fspath(log))
        self._lake = lake
        self._dsn = dsn
        self._options = options
        self._names = TableNames.parse(options.names)
        self._publications = options.publications or self._log.source.publications
        self._checks: dict[str, TableCheck] = {}
        self._relations: dict[str, Relation] = {}
        self._logged: dict[str, Relation] = {}

    def run(self) -> Comparison:
        """Compare at least twice, and until time is up, unless each table is settled before."""
        deadline = time.monotonic() + self._options.wait
        self._compare(deadline)
        while self._left:
            self._await_targets(deadline)
            self._compare(deadline)
            if time.monotonic() > deadline:
                break
        for check in self._left:
            check.give_up()
        rows = self._lake.status().read()
        results = [
            _with_cause(check.result, check.others, rows.get(check.table))
            for check in self._checks.values()
            if check.result is not None
        ]
        return Comparison(tuple(sorted(results, key=lambda result: result.table)))

    @property
    def _left(self) -> list[TableCheck]:
        return [check for check in self._checks.values() if check.result is None]

    def _compare(self, deadline: float) -> None:
        """Compare the tables that are left with a new snapshot.

        Those end without a verdict whose last changes on the server the log does not have by the
        deadline.
        """
        self._log.refresh()
        selected = self._names.select(self._log, None)
        self._logged = {name: version.relation for name, version in selected.items()}
        columns = {
            name: (relation.oid, column_names(relation)) for name, relation in self._logged.items()
        }
        with ServerState(self._dsn, self._publications, columns) as server:
            if not self._checks:
                self._begin(server)
            # Before the snapshot, which then has all that the targets have, but for commits that
            # are not visible yet.
            targets = self._open_targets(server)
            server.take()
            differing = self._balance(server, targets)
            if differing:
                self._match(server, differing, deadline)

    def _balance(self, server: ServerState, targets: dict[str, TargetTable]) -> dict[str, Reading]:
        """Compare numbers and checksums of rows; return the readings that differ."""
        read: dict[str, Reading] = {}
        for check in self._left:
            with _failing(check, server):
                read[check.table] = self._read(server, check.table, targets[check.table])
        _drop_changed(read, server)
        for name, reading in read.items():
            if name not in self._logged and reading.is_empty:
                del self._checks[name]  # the mirror gets it with its first change
            elif not reading.differs:
                self._checks[name].agree(reading)
        return {name: reading for name, reading in read.items() if reading.differs}

    def _match(self, server: ServerState, read: dict[str, Reading], deadline: float) -> None:
        """Find the rows that differ, and judge them by the log's changes."""
        unlogged = self._unlogged(server.lsn, deadline)
        history = RelationHistory(self._log)
        judged: dict[str, tuple[ChangedRows, KeyChoice]] = {}
        for name, reading in list(read.items()):
            check, oid = self._checks[name], server.tables[name].relation.oid
            final = KeyChoice()
            with _failing(check, server):
                if unlogged is not None and oid not in unlogged:
                    changed = self._changed(history, server, oid, reading)
                    final = check.final_keys(changed, is_quiet=server.is_quiet)
                    judged[name] = changed, final
                read[name] = replace(reading, differences=self._differences(oid, reading, final))
        _drop_changed(read, server)
        for name, reading in read.items():
            check = self._checks[name]
            if reading.differences is None:  # the table failed, or was dropped meanwhile
                continue
            if name in judged:
                check.judge(reading, *judged[name])
            else:
                check.give_up(reading)

    def _begin(self, server: ServerState) -> None:
        """Begin the checks of the tables; finish those of tables that cannot be compared."""
        leaves = {relation.oid for relation in self._logged.values()} & server.partitions
        leaves -= TablesWithRows(self._log).among(leaves)
        self._relations = {
            name: relation for name, relation in self._logged.items() if relation.oid not in leaves
        }
        for name, table in server.tables.items():
            if self._names.match(name):
                self._relations[name] = table.relation
        if not self._relations:
            raise no_table(self._options.names, self._log)
        rows = self._lake.status().read()
        for name in self._relations:
            check = self._checks[name] = TableCheck(name, self._options.max_rows)
            row = rows.get(name)
            if name not in server.tables:
                check.result = TableComparison(name, GONE)
            elif row is not None and row.state in (status.SET_ASIDE, status.RETRYING):
                check.result = TableComparison(
                    name, SET_ASIDE, target_lsn=row.commit_lsn, error=row.error, hint=row.hint
                )

    def _open_targets(self, server: ServerState) -> dict[str, TargetTable]:
        rows = self._lake.status().read()
        targets = {}
        for check in self._left:
            with _failing(check):
                targets[check.table] = open_version(
                    self._lake, self._relations[check.table], rows.get(check.table)
                )
        return targets

    def _read(self, server: ServerState, name: str, target: TargetTable) -> Reading:
        """Sum up the rows of a table on both sides."""
        table, options = server.tables[name], self._options
        schema = schema_of(table, options.decoder)
        kinds = {field.name: field.type for field in schema.arrow}
        columns = ComparedColumns.choose(table.relation, kinds, target.columns, target.masked)
        ranges = server.ranges(name)
        parts: list[SideRows] = [
            ServerRows(
                self._dsn,
                server.snapshot,
                tuple(ranges[number :: options.jobs]),
                options.decoder,
                columns.with_texts(schema),
            )
            for number in range(min(options.jobs, len(ranges)))
        ]
        if target.version is not None:
            parts += target.rows(columns.types)
        uncompared = uncompared_columns(
            column_names(self._logged[name]) if name in self._logged else (),
            schema.columns,
            None if target.version is None else target.columns,
            target.masked,
        )
        size = sum(part.size for part in parts)
        balance = Balance.from_checksums(self._runner.map(Checksum(columns), parts, size))
        return Reading(server.lsn, target, columns, parts, balance, uncompared)

    def _differences(self, oid: int, reading: Reading, final: KeyChoice) -> Differences:
        """Find the rows of a reading that differ."""
        columns, different = reading.columns, reading.balance.different
        share = reading.size * int(different.sum()) // BUCKETS
        split = RowSplit(oid, columns, different, min(1 + share // _PART_BYTES, BUCKETS))
        count = RowCount(columns, final, self._options.max_rows)
        _, parts = self._runner.exchange(split, reading.parts, count, reading.size)
        return count.join(parts)

    def _changed(
        self, history: RelationHistory, server: ServerState, oid: int, reading: Reading
    ) -> ChangedRows:
        """Return the rows that the log changes between the target and the snapshot."""
        target = reading.target
        is_other = target.relation not in (None, oid)
        return changed_rows(
            self._runner,
            self._log,
            history,
            oid,
            self._log.begin.lsn if is_other else max(target.applied, self._log.begin.lsn),
            server.lsn,
            None if is_other else reading.columns,  # the next batch replaces all rows
            self._options.decoder,
        )

    def _unlogged(self, lsn: int, deadline: float) -> frozenset[int] | None:
        """Return the relations of which the log lacks changes before an LSN; None: maybe all.

        Wait until the log lacks nothing. On an idle server, the LSN goes on without changes, and no
        capture need run.
        """
        unlogged = self._peek(lsn)
        while unlogged is None or unlogged:
            if time.monotonic() > deadline:
                return self._peek(lsn)
            time.sleep(_POLL_SECONDS)
            if self._log_reaches(lsn):
                return frozenset()
        return unlogged

    def _peek(self, lsn: int) -> frozenset[int] | None:
        if self._log_reaches(lsn):
            return frozenset()
        log = self._log
        return unlogged_relations(self._dsn, log.source, self._publications, log.end.lsn, lsn)

    def _log_reaches(self, lsn: int) -> bool:
        """Return whether the log has everything before an LSN."""
        self._log.refresh()
        return max(self._log.confirm_lsn, self._log.end.lsn) >= lsn

    def _await_targets(self, deadline: float) -> None:
        """Wait until the targets have the changes of the rows that are left."""
        while time.monotonic() < deadline and not all(map(self._has_wanted, self._left)):
            time.sleep(_POLL_SECONDS)

    def _has_wanted(self, check: TableCheck) -> bool:
        target = self._lake.open(self._relations[check.table])
        return (target.position.commit_lsn or 0) >= check.wanted_lsn


def _drop_changed(read: dict[str, Reading], server: ServerState) -> None:
    """Remove the readings of tables that were truncated or altered: they are of no snapshot."""
    for name in server.changed():
        read.pop(name, None)


def _with_cause(
    result: TableComparison, others: tuple[str, ...], row: TableStatus | None
) -> TableComparison:
    """Return a result, of a table that differs with what other programs did to it."""
    if not others or result.state != DIFFERS:
        return result
    row = row or TableStatus(result.table, 0)
    modified = row.current(row.incomplete_columns, others)
    return replace(result, error=modified.error, hint=modified.hint)


@contextmanager
def _failing(check: TableCheck, server: ServerState | None = None) -> Iterator[None]:
    """Finish a check with the error that a table raises, unless it changed on the ``server``."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (the other tables go on)
        if server is not None and check.table in server.changed():
            return
        failure = error_of(error, check.table)
        check.result = TableComparison(
            check.table, FAILED, error=failure.primary, hint=failure.hint
        )
