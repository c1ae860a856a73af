"""The replication slot of a capture: checked, and created where asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that is ready to be read.

    Attributes
    ----------
    name : str
    confirmed_lsn : int
        From where the server sends: what ends before is not sent again.
    two_phase : bool
        Whether the slot itself is set to decode prepared transactions.
    is_new : bool
        Whether it was created just now.
    """

    name: str
    confirmed_lsn: int
    two_phase: bool
    is_new: bool


def ensure_slot(
    cursor: Any, name: str, *, create: bool, temporary: bool, two_phase: bool, patience: float
) -> Slot:
    """See that a slot exists, is pgoutput's, is this database's, is intact and is free.

    Parameters
    ----------
    cursor
        Of a connection in autocommit mode; a temporary slot lives as long as the connection.
    name
        The slot's name.
    create
        Whether to create it when it is missing. That waits for the end of every transaction that
        is writing at that moment.
    temporary, two_phase
        How to create it.
    patience
        Seconds to wait for a slot that is in use: a consumer that has just gone leaves it active
        for a moment.

    Raises
    ------
    CaptureError
        When it cannot be used; the text says what to do.
    """
    row = _read(cursor, name)
    if row is None:
        if not create:
            raise SlotMissing(
                f'Replication slot "{name}" does not exist. Pass `create_slot=True`, or run '
                f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput');"
            )
        return _create(cursor, name, temporary, two_phase)
    _check_kind(cursor, name, row)
    _check_intact(name, row)
    if temporary:
        raise CaptureError(
            f'Replication slot "{name}" exists already, and `temporary=True` creates one. Use '
            "another name, or leave it out to read the slot that is there."
        )
    deadline = time.monotonic() + patience
    while row["active"]:
        if time.monotonic() >= deadline:
            raise _in_use(name, row["active_pid"])
        time.sleep(_POLL_SECONDS)
        again = _read(cursor, name)
        if again is None:
            return ensure_slot(
                cursor, name, create=create, temporary=False, two_phase=two_phase, patience=patience
            )
        row = again
    return Slot(name, parse_lsn(row["confirmed_flush_lsn"]), bool(row.get("two_phase")), False)


class SlotMissing(CaptureError):
    """There is no slot of that name."""


def slot_exists(cursor: Any, name: str) -> bool:
    """Return whether there is a slot of that name, of any kind."""
    return _read(cursor, name) is not None


def is_replaceable(cursor: Any, name: str, confirmed_lsn: int) -> bool:
    """Return whether a new slot can take the place of one for whoever has confirmed so much.

    Not if somebody else has read from it, nor if it is a failover slot (PostgreSQL 17 on): the
    new one would not be.
    """
    row = _read(cursor, name)
    if row is None or row["confirmed_flush_lsn"] is None or row.get("failover"):
        return False
    return parse_lsn(row["confirmed_flush_lsn"]) <= confirmed_lsn


def drop_slot(cursor: Any, name: str, *, patience: float) -> None:
    """Drop a slot of this database and of pgoutput.

    Raises ``CaptureError`` when it is another's, or in use longer than ``patience``, in seconds.
    """
    deadline = time.monotonic() + patience
    while (row := _read(cursor, name)) is not None:
        _check_kind(cursor, name, row)
        if not row["active"]:
            cursor.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            return
        if time.monotonic() >= deadline:
            raise _in_use(name, row["active_pid"])
        time.sleep(_POLL_SECONDS)


def _in_use(name: str, pid: int) -> CaptureError:
    return CaptureError(
        f'Replication slot "{name}" is in use by process {pid}. Stop that consumer '
        f"(SELECT pg_terminate_backend({pid});), or use another slot.",
        is_transient=True,
    )


def _read(cursor: Any, name: str) -> dict[str, Any] | None:
    # As JSON: which columns the view has depends on the server's version.
    cursor.execute("SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s", (name,))
    row = cursor.fetchone()
    return None if row is None else row[0]


def _create(cursor: Any, name: str, temporary: bool, two_phase: bool) -> Slot:
    arguments: list[object] = [name, "pgoutput", temporary]
    if two_phase:
        arguments.append(True)  # the parameter came with PostgreSQL 14
    marks = ", ".join(["%s"] * len(arguments))
    cursor.execute(f"SELECT lsn FROM pg_create_logical_replication_slot({marks})", arguments)
    return Slot(name, parse_lsn(cursor.fetchone()[0]), two_phase, True)


def _check_kind(cursor: Any, name: str, row: dict[str, Any]) -> None:
    if row["slot_type"] != "logical":
        raise CaptureError(
            f'Replication slot "{name}" is a physical one. Use another name with '
            "`create_slot=True`."
        )
    if row["plugin"] != "pgoutput":
        raise CaptureError(
            f'Replication slot "{name}" was created for the plugin {row["plugin"]}; this reads '
            "pgoutput. Use another name with `create_slot=True`."
        )
    cursor.execute("SELECT current_database()")
    database = cursor.fetchone()[0]
    if row["database"] != database:
        raise CaptureError(
            f'Replication slot "{name}" belongs to database "{row["database"]}", and the DSN '
            f'connects to "{database}". Put dbname={row["database"]} into the DSN, or use another '
            "slot."
        )


def _check_intact(name: str, row: dict[str, Any]) -> None:
    reason = row.get("invalidation_reason")
    if reason is None and row.get("wal_status") == "lost":
        reason = "wal_removed"
    if reason is not None:
        raise CaptureError(
            f'Replication slot "{name}" was invalidated ({reason}): changes are lost. Run '
            f"SELECT pg_drop_replication_slot('{name}');, create it again and copy the tables "
            "anew. max_slot_wal_keep_size, and from PostgreSQL 18 idle_replication_slot_timeout, "
            "say how long the server keeps WAL for a slot."
        )
