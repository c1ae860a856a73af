"""Status of a replication slot on its server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgwire_codec.protocol.lsn import parse_lsn


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

    Notes
    -----
    PostgreSQL documentation, "pg_replication_slots".
    """

    active: bool
    wal_status: str | None
    safe_wal_size: int | None
    retained_bytes: int | None

    @classmethod
    def of(cls, row: dict[str, Any], lsn: int) -> SlotStatus:
        """Return the status for a row of ``pg_replication_slots`` and the end of the WAL."""
        restart = row["restart_lsn"]
        return cls(
            active=row["active"],
            wal_status=row.get("wal_status"),
            safe_wal_size=row.get("safe_wal_size"),
            retained_bytes=None if restart is None else max(0, lsn - parse_lsn(restart)),
        )
