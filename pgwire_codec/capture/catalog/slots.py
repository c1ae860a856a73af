"""Replication slots: check, create and drop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec.capture.catalog.failover import check_failover_supported
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.protocol.quoting import quote_literal

_POLL_SECONDS: Final = 0.02
_OTHER_NAME: Final = "Use another slot."


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that is ready to be read.

    Attributes
    ----------
    name : str
    confirmed_lsn : int
        LSN at which the server starts to send.
    two_phase : bool
        Whether the slot itself is set to decode prepared transactions.
    failover : bool
        Whether standbys synchronize it.
    is_new : bool
        Whether it has just been created.
    """

    name: str
    confirmed_lsn: int
    two_phase: bool
    failover: bool
    is_new: bool


def ensure_slot(
    cursor: Any,
    name: str,
    *,
    create: bool,
    temporary: bool,
    two_phase: bool,
    failover: bool,
    timeout: float,
) -> Slot:
    """Check that a slot exists, is pgoutput's and this database's, is intact and is free.

    Parameters
    ----------
    cursor
        Of a connection in autocommit mode; a temporary slot lives as long as the connection.
    name
        The slot's name.
    create
        Create it if it does not exist. That waits for the end of every transaction that has
        written.
    temporary, two_phase, failover
        Properties of a new slot.
    timeout
        Seconds to wait for a slot that is in use: it stays active for a moment after its consumer
        has gone.

    Raises
    ------
    CaptureError
        When it cannot be used, with a hint on what to do.
    """
    if failover:
        check_failover_supported(cursor.connection.server_version)
    if temporary and slot_exists(cursor, name):
        raise CaptureError(
            f'replication slot "{name}" already exists, and `temporary=True` creates one',
            hint="Use another name, or omit the option to read the existing slot.",
        )
    try:
        return existing_slot(cursor, name, timeout, "Pass `create_slot=True`, or run")
    except SlotMissing:
        if not create:
            raise
    return _create(cursor, name, temporary, two_phase, failover)


def existing_slot(cursor: Any, name: str, timeout: float, advice: str = "Run") -> Slot:
    """Check a slot as :func:`ensure_slot` does; raise ``SlotMissing`` if it does not exist.

    ``advice`` precedes the SQL that creates one.
    """
    row = read_slot(cursor, name)
    if row is not None:
        check_kind(cursor, name, row)
        _check_not_synchronized(cursor, name, row)
        check_intact(name, row)
        row = _wait_until_free(cursor, name, row, timeout)
    if row is None:
        raise SlotMissing(
            f'replication slot "{name}" does not exist',
            hint=f"{advice} SELECT pg_create_logical_replication_slot({quote_literal(name)}, "
            "'pgoutput');",
            on_standby=is_in_recovery(cursor),
        )
    return Slot(
        name,
        parse_lsn(row["confirmed_flush_lsn"]),
        two_phase=bool(row.get("two_phase")),
        failover=bool(row.get("failover")),
        is_new=False,
    )


class SlotMissing(CaptureError):
    """A slot does not exist.

    Attributes
    ----------
    on_standby : bool
        Whether the server is a standby, which may get the slot from its primary.
    """

    def __init__(self, text: str, *, hint: str, on_standby: bool) -> None:
        super().__init__(text, hint=hint)
        self.on_standby = on_standby


def is_in_recovery(cursor: Any) -> bool:
    """Return whether the server is a standby, or still recovers."""
    cursor.execute("SELECT pg_is_in_recovery()")
    return bool(cursor.fetchone()[0])


def slot_exists(cursor: Any, name: str) -> bool:
    """Return whether a slot of that name exists, of any kind."""
    return read_slot(cursor, name) is not None


def is_replaceable(cursor: Any, name: str, confirmed_lsn: int, *, failover: bool) -> bool:
    """Return whether a new slot can replace one for a consumer that has confirmed this LSN.

    Return False if another consumer has read from it, or if it is a failover slot (PostgreSQL 17
    and later) and the new one would not be one.
    """
    row = read_slot(cursor, name)
    if row is None or row["confirmed_flush_lsn"] is None:
        return False
    if row.get("failover") and not failover:
        return False
    return parse_lsn(row["confirmed_flush_lsn"]) <= confirmed_lsn


def drop_slot(cursor: Any, name: str, *, timeout: float) -> None:
    """Drop a slot of this database and of pgoutput, if it exists.

    Raises ``CaptureError`` when it is another's, or in use longer than ``timeout`` seconds.
    """
    row = read_slot(cursor, name)
    if row is not None:
        check_kind(cursor, name, row)
        if _wait_until_free(cursor, name, row, timeout) is not None:
            cursor.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def not_promoted(state: str) -> CaptureError:
    """Return the error for a standby that a capture continues on once it is promoted."""
    return CaptureError(
        f"{state}, and the server is a standby",
        hint="The capture waits for its promotion. Name every host in the DSN, with "
        "target_session_attrs=read-write, so that the primary is found.",
        is_transient=True,
    )


def _check_not_synchronized(cursor: Any, name: str, row: dict[str, Any]) -> None:
    """Raise a transient ``CaptureError`` for a standby's copy of a primary's slot.

    It remains marked as ``synced`` after the promotion.
    """
    if row.get("synced") and is_in_recovery(cursor):
        raise not_promoted(f'replication slot "{name}" is synchronized from a primary')


def _wait_until_free(
    cursor: Any, name: str, row: dict[str, Any] | None, timeout: float
) -> dict[str, Any] | None:
    """Return the slot once no connection holds it, or None if it has been dropped."""
    deadline = time.monotonic() + timeout
    while row is not None and row["active"]:
        if time.monotonic() >= deadline:
            pid = row["active_pid"]
            raise CaptureError(
                f'replication slot "{name}" is in use by process {pid}',
                hint=f"Stop that consumer (SELECT pg_terminate_backend({pid});), or use another "
                "slot.",
                is_transient=True,
                sqlstate="55006",
            )
        time.sleep(_POLL_SECONDS)
        row = read_slot(cursor, name)
    return row


def read_slot(cursor: Any, name: str) -> dict[str, Any] | None:
    """Return a slot's row of ``pg_replication_slots``, or None if it does not exist."""
    # As JSON: which columns the view has depends on the server's version.
    cursor.execute("SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s", (name,))
    row = cursor.fetchone()
    return None if row is None else row[0]


def _create(cursor: Any, name: str, temporary: bool, two_phase: bool, failover: bool) -> Slot:
    arguments: list[object] = [name, "pgoutput", temporary]
    if two_phase or failover:
        arguments.append(two_phase)  # the parameter came with PostgreSQL 14
    if failover:
        arguments.append(True)
    marks = ", ".join(["%s"] * len(arguments))
    cursor.execute(f"SELECT lsn FROM pg_create_logical_replication_slot({marks})", arguments)
    lsn = parse_lsn(cursor.fetchone()[0])
    return Slot(name, lsn, two_phase=two_phase, failover=failover, is_new=True)


def check_kind(cursor: Any, name: str, row: dict[str, Any]) -> None:
    """Raise ``CaptureError`` for a slot that is not pgoutput's, or not of this database."""
    if row["slot_type"] != "logical":
        raise CaptureError(f'replication slot "{name}" is a physical one', hint=_OTHER_NAME)
    if row["plugin"] != "pgoutput":
        raise CaptureError(
            f'replication slot "{name}" is of output plugin "{row["plugin"]}", not of pgoutput',
            hint=_OTHER_NAME,
        )
    cursor.execute("SELECT current_database()")
    database = cursor.fetchone()[0]
    if row["database"] != database:
        raise CaptureError(
            f'replication slot "{name}" belongs to database "{row["database"]}", and the DSN '
            f'connects to "{database}"',
            hint=f"Put dbname={row['database']} into the DSN, or use another slot.",
        )


def check_intact(name: str, row: dict[str, Any]) -> None:
    """Raise ``CaptureError`` for a slot that the server has invalidated."""
    reason = row.get("invalidation_reason")
    if reason is None and row.get("wal_status") == "lost":
        reason = "wal_removed"
    if reason is not None:
        raise CaptureError(
            f'replication slot "{name}" was invalidated ({reason}): changes are lost',
            hint=f"Run SELECT pg_drop_replication_slot({quote_literal(name)});, create the slot "
            "again and copy the tables again. The settings max_slot_wal_keep_size, and from "
            "PostgreSQL 18 on idle_replication_slot_timeout, limit how long the server keeps WAL "
            "for a slot.",
        )
