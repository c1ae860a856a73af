"""ComparisonRun: the snapshots of one comparison, until each table is settled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake import status
from pgwire_codec.lake.identity import column_names
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.row_columns import DELETED
from pgwire_codec.lake.table_names import TableNames, no_table
from pgwire_codec.log import Log
from pgwire_codec.log.relation_history import RelationHistory
from pgwire_codec.log.tables_with_rows import TablesWithRows
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.spark.comparing.compared_columns import ComparedColumns
from pgwire_codec.spark.comparing.log_changes import ChangedRows, changed_rows
from pgwire_codec.spark.comparing.result import FAILED, GONE, SET_ASIDE, Comparison, TableComparison
from pgwire_codec.spark.comparing.row_differences import count_rows
from pgwire_codec.spark.comparing.server_rows import schema_of, server_rows
from pgwire_codec.spark.comparing.server_state import ServerState
from pgwire_codec.spark.comparing.table_check import Reading, TableCheck
from pgwire_codec.spark.comparing.target_rows import TargetTable, open_version
from pgwire_codec.spark.comparing.uncompared import uncompared_columns
from pgwire_codec.spark.comparing.unlogged import unlogged_relations
from pgwire_codec.spark.failures import failure_of
from pgwire_codec.spark.file_rows import file_rows
from pgwire_codec.spark.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS: Final = 0.5


class ComparisonRun:
    """Comparison of the tables of a lake with a server; see :func:`compare`."""

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        lake: Lake,
        dsn: str,
        names: Sequence[str],
        publications: Sequence[str],
        jobs: int,
        max_rows: int,
        options: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._log = log
        self._lake = lake
        self._dsn = dsn
        self._texts = names
        self._names = TableNames.parse(names)
        self._publications = publications or log.source.publications
        self._jobs = jobs
        self._max_rows = max_rows
        self._options = options
        self._decoder = parse_options({**options, "path": log.uri, "relationOid": "1"}).decoder
        self._checks: dict[str, TableCheck] = {}
        self._relations: dict[str, Relation] = {}
        self._logged: dict[str, Relation] = {}

    def run(self, deadline: float) -> Comparison:
        """Compare at least twice, and until the deadline, unless each table is settled before."""
        is_first = True
        try:
            while True:
                self._compare(deadline)
                if not self._left:
                    break
                if not is_first and time.monotonic() > deadline:
                    for check in self._left:
                        check.give_up(is_complete=True)
                    break
                self._await_targets(deadline)
                is_first = False
            results = [check.result for check in self._checks.values()]
        finally:
            for check in self._checks.values():
                check.release()
        found = [each for each in results if each is not None]
        return Comparison(tuple(sorted(found, key=lambda each: each.table)))

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
        self._logged = {name: each.relation for name, each in selected.items()}
        columns = {name: (each.oid, column_names(each)) for name, each in self._logged.items()}
        read: dict[str, Reading] = {}
        with ServerState(self._dsn, self._publications, columns) as server:
            if not self._checks:
                self._begin(server)
            # Before the snapshot, which then has all that the targets have, but for commits that
            # are not visible yet.
            targets = self._open_targets(server)
            server.take()
            for check in self._left:
                with _failing(check, server):
                    read[check.table] = self._read(server, check.table, targets[check.table])
            for name in server.changed():
                read.pop(name, None)  # truncated or altered: its rows are of no snapshot
        for name, reading in read.items():
            if name not in self._logged and reading.is_empty:
                del self._checks[name]  # the mirror gets it with its first change
        differing = {
            check.table: check
            for check in self._left
            if check.table in read and check.differs(read[check.table])
        }
        if not differing:
            return
        unlogged = self._unlogged(server.lsn, deadline)
        history = RelationHistory(self._log)
        for name, check in differing.items():
            with _failing(check):
                if unlogged is None or server.tables[name].relation.oid in unlogged:
                    check.give_up(is_complete=False)
                else:
                    check.judge(self._changed(history, server, name, read[name]))

    def _begin(self, server: ServerState) -> None:
        """Begin the checks of the tables; finish those of tables that cannot be compared."""
        leaves = {oid for each in self._logged.values() if (oid := each.oid) in server.partitions}
        leaves -= TablesWithRows(self._log).among(leaves)
        logged = {name: each for name, each in self._logged.items() if each.oid not in leaves}
        self._relations = logged | {
            name: table.relation for name, table in server.tables.items() if self._names.match(name)
        }
        if not self._relations:
            raise no_table(self._texts, self._log)
        rows = self._lake.status().read()
        for name in self._relations:
            check = self._checks[name] = TableCheck(name, self._max_rows)
            row = rows.get(name)
            if name not in server.tables:
                check.result = TableComparison(name, GONE)
            elif row is not None and row.state == status.SET_ASIDE:
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
        """Read the rows of a table on both sides, and keep those that differ."""
        table = server.tables[name]
        schema = schema_of(table, self._decoder, target.columns)
        columns = ComparedColumns.of(table.relation, schema, target.columns, target.masked)
        ours = columns.rows(
            server_rows(
                self._spark,
                self._dsn,
                server.snapshot,
                server.ranges(name),
                schema,
                self._decoder,
                self._jobs,
            )
        )
        theirs = ours.limit(0)
        if target.version is not None:
            found = file_rows(self._spark, target.files, target.schema)
            if target.keeps_deleted:
                found = found.where(f"{DELETED} IS NOT TRUE")
            theirs = columns.rows(found)
        counted = count_rows(ours, theirs, columns)
        if counted.differing is not None:
            counted.differing.persist().count()
        uncompared = uncompared_columns(
            column_names(self._logged[name]) if name in self._logged else (),
            schema.columns,
            None if target.version is None else target.columns,
            target.masked,
        )
        return Reading(server.lsn, server.is_quiet, target, columns, counted, uncompared)

    def _changed(
        self, history: RelationHistory, server: ServerState, name: str, reading: Reading
    ) -> ChangedRows | None:
        """Return the rows that the log changes between the target and the snapshot."""
        oid, target = server.tables[name].relation.oid, reading.target
        is_other = target.relation not in (None, oid)
        return changed_rows(
            self._spark,
            self._log,
            history,
            oid,
            self._log.begin.lsn if is_other else max(target.applied, self._log.begin.lsn),
            server.lsn,
            None if is_other else reading.columns,  # the next batch replaces all rows
            self._options,
        )

    def _unlogged(self, lsn: int, deadline: float) -> frozenset[int] | None:
        """Return the relations of which the log lacks changes before an LSN; None: maybe all.

        Wait until the log lacks nothing. On an idle server, the LSN goes on without changes, and no
        capture need run.
        """
        found = self._peek(lsn)
        while found is None or found:
            if time.monotonic() > deadline:
                return self._peek(lsn)
            time.sleep(_POLL_SECONDS)
            if self._log_reaches(lsn):
                return frozenset()
        return found

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


@contextmanager
def _failing(check: TableCheck, server: ServerState | None = None) -> Iterator[None]:
    """Finish a check with the error that a table raises, unless it changed on the ``server``."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (the other tables go on)
        if server is not None and check.table in server.changed():
            return
        failure = error if isinstance(error, PgwireError) else failure_of(str(error))
        check.result = TableComparison(
            check.table, FAILED, error=failure.primary, hint=failure.hint
        )
