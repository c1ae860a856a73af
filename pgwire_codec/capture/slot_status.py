"""Status of a replication slot on its server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.protocol.quoting import quote_literal


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """Status of a replication slot.

    Attributes
    ----------
    active : bool
        Whether a walsender reads it.
    wal_status : str or None
        ``reserved``, ``extended``, ``unreserved`` or ``lost``. None before PostgreSQL 13.
    safe_wal_size : int or None
        Bytes of WAL that can be written before the slot may be lost. None without a limit, for a
        lost slot, and before PostgreSQL 13.
    retained_bytes : int or None
        Bytes of WAL that the server keeps for it. None for a lost slot.
    waits_for : str or None
        The transaction whose end its creation waits for, and how to end it, in words.

    Notes
    -----
    PostgreSQL documentation, "pg_replication_slots".
    """

    active: bool
    wal_status: str | None
    safe_wal_size: int | None
    retained_bytes: int | None
    waits_for: str | None = None

    @classmethod
    def of(cls, row: dict[str, Any], lsn: int, waits_for: str | None = None) -> SlotStatus:
        """Return the status for a row of ``pg_replication_slots`` and the end of the WAL."""
        restart = row["restart_lsn"]
        return cls(
            active=row["active"],
            wal_status=row.get("wal_status"),
            safe_wal_size=row.get("safe_wal_size"),
            retained_bytes=None if restart is None else max(0, lsn - parse_lsn(restart)),
            waits_for=waits_for,
        )


def read_blocker(cursor: Any, row: dict[str, Any]) -> str | None:
    """Return the transaction that the creation of a slot waits for; None if it does not wait.

    ``row`` is of ``pg_replication_slots``. A slot begins where all transactions have ended that
    were writing when it was created, in all databases.
    """
    if row["confirmed_flush_lsn"] is not None or row["active_pid"] is None:
        return None
    cursor.execute(
        "SELECT gid, database, pid, datname, date_trunc('second', xact_start)::text"
        " FROM (SELECT transactionid FROM pg_locks"
        " WHERE pid = %s AND locktype = 'transactionid' AND NOT granted) waits"
        " LEFT JOIN pg_stat_activity ON backend_xid = transactionid"
        " LEFT JOIN pg_prepared_xacts ON transaction = transactionid"
        " WHERE gid IS NOT NULL OR pid IS NOT NULL",
        (row["active_pid"],),
    )
    found = cursor.fetchone()
    if found is None:
        return None
    gid, of_prepared, pid, database, start = found
    if gid is not None:
        return (
            "the creation of the slot waits for the end of the prepared transaction "
            f'{quote_literal(gid)} of database "{of_prepared}": {ending_prepared(gid)}'
        )
    return (
        f"the creation of the slot waits for the end of the transaction of process {pid} in "
        f'database "{database}", which began at {start}. {ending_session(pid)}'
    )


def ending_session(pid: int) -> str:
    """Return the remedy for a session whose transaction does not end."""
    return f"If it was forgotten: SELECT pg_terminate_backend({pid});"


def ending_prepared(gid: str) -> str:
    """Return the remedy for a prepared transaction, for a session of its database."""
    name = quote_literal(gid)
    return f"COMMIT PREPARED {name}; or ROLLBACK PREPARED {name};"
