"""Plans of snapshots in the record of a log, and the check that one can be continued.

Rows that are copied after a restart have to be of the same snapshot as those before, because the
log contains the state of the tables at one LSN. So a snapshot is continued only if the session that
keeps it is alive. Otherwise it is taken again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pgwire_codec.capture.catalog.sessions import ServerSession
from pgwire_codec.capture.catalog.slots import read_slot
from pgwire_codec.capture.snapshot.logged_rows import LoggedRows, NotResumable
from pgwire_codec.capture.snapshot.table_ranges import TableRange
from pgwire_codec.protocol.lsn import parse_lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from pgwire_codec.capture.catalog.published_tables import PublishedTable
    from pgwire_codec.capture.snapshot.kept_snapshot import KeptSnapshot
    from pgwire_codec.log.snapshot_record import SnapshotPlan


def plan_of(
    kept: KeptSnapshot,
    tables: Sequence[PublishedTable],
    ranges: Sequence[TableRange],
    *,
    lsn: int,
    time: np.datetime64,
    binary: bool,
) -> SnapshotPlan:
    """Return the plan to record for a snapshot."""
    from pgwire_codec.log.snapshot_record import SnapshotPlan

    return SnapshotPlan(
        lsn=lsn,
        commit_time=int(time.astype("datetime64[us]").astype(int)),
        name=kept.name,
        keeper_pid=kept.keeper.pid,
        keeper_start=kept.keeper.start,
        tables=_checksum(tables, binary=binary),
        ranges=[each.planned for each in ranges],
    )


def ranges_of(plan: SnapshotPlan, tables: Sequence[PublishedTable]) -> list[TableRange]:
    """Return the ranges of a plan."""
    by_oid = {table.relation.oid: table for table in tables}
    return [
        TableRange(number, by_oid[each.relation_oid], each)
        for number, each in enumerate(plan.ranges)
    ]


def check_slot(cursor: Any, slot: str, plan: SnapshotPlan) -> None:
    """Raise ``NotResumable`` unless the slot is as it was created, and its snapshot is kept."""
    row = read_slot(cursor, slot)
    if row is None or parse_lsn(row["confirmed_flush_lsn"] or "0/0") != plan.lsn:
        raise NotResumable(f'its replication slot "{slot}" is gone')
    # The name of a snapshot is not enough: the server can use it again after a restart.
    if not keeper_of(plan).is_alive(cursor):
        raise NotResumable("the server does not have its snapshot any more")


def keeper_of(plan: SnapshotPlan) -> ServerSession:
    """Return the session that keeps the snapshot."""
    return ServerSession(plan.keeper_pid, plan.keeper_start)


def check_tables(plan: SnapshotPlan, tables: Sequence[PublishedTable], *, binary: bool) -> None:
    """Raise ``NotResumable`` unless the same rows and columns are published, in the same form."""
    if _checksum(tables, binary=binary) != plan.tables:
        raise NotResumable("other tables, columns or rows are published now")


def check_rows(plan: SnapshotPlan, logged: LoggedRows) -> None:
    """Raise ``NotResumable`` when a range that is partly in the log cannot be continued."""
    for number, rows in logged.rows.items():
        planned = plan.ranges[number]
        if rows and number not in logged.complete and not planned.has_order:
            raise NotResumable(f"the rows of {planned.source} have no order")


def _checksum(tables: Sequence[PublishedTable], *, binary: bool) -> str:
    """Return a checksum of all that determines the messages of the tables."""
    found = hashlib.sha256()
    for table in sorted(tables, key=lambda each: each.relation.oid):
        for part in (*table.description(), table.query("", binary=binary).encode()):
            found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
