"""Checks of what a capture needs to go on after the promotion of a standby."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pgwire_codec.capture.catalog.failover import (
    failover_command,
    has_failover_slots,
    read_standby_slots,
)
from pgwire_codec.capture.catalog.slots import is_in_recovery, read_slot
from pgwire_codec.capture.checks.finding import Finding, error, listed, warning
from pgwire_codec.protocol.quoting import quote_literal

_RELOAD: Final = "SELECT pg_reload_conf();"

#: Settings without which a standby synchronizes no slot, and a value for each.
_OF_STANDBYS: Final = {
    "hot_standby_feedback": "on",
    "primary_slot_name": "standby",
    "sync_replication_slots": "on",
}


def check_failover(cursor: Any, slot: str | None) -> Iterator[Finding]:
    """Yield a finding for each reason why the slot, or the log, would not survive a promotion."""
    if not has_failover_slots(cursor.connection.server_version):
        return
    row = None if slot is None else read_slot(cursor, slot)
    if is_in_recovery(cursor):
        yield from _check_standby(cursor)
        if row is not None and row["synced"]:
            yield from _check_copy(row)
        return
    if row is not None and row["slot_type"] != "logical":  # which is another finding
        return
    connected = [name for name, active in read_standby_slots(cursor).active.items() if active]
    if row is not None and row["failover"]:
        yield from _check_awaited(cursor, row["slot_name"])
    elif connected:
        names = listed(f'"{name}"' for name in connected)
        subject = "a slot" if row is None else f'replication slot "{slot}", which was created'
        yield warning(
            "failover",
            f"the server has standbys (physical slots {names}): the promotion of one loses "
            f"{subject} without failover",
            "Create the slot with `failover=True`."
            if row is None
            else f"{failover_command(row['slot_name'])} -- psql with replication=database in the "
            "DSN, while no capture runs",
        )


def _check_awaited(cursor: Any, slot: str) -> Iterator[Finding]:
    """Yield findings on the standbys that the server waits for before it sends to the slot."""
    standbys = read_standby_slots(cursor)
    if standbys.missing:
        yield error(
            "standby_slots",
            f'failover slot "{slot}" gets no changes: synchronized_standby_slots names '
            f"{listed(standbys.missing)}, and no such physical slot exists",
            *(
                f"SELECT pg_create_physical_replication_slot({quote_literal(name)});"
                for name in standbys.missing
            ),
            "Then start its standby, or remove the name from synchronized_standby_slots.",
        )
    if standbys.idle:
        yield warning(
            "standby_slots",
            f'failover slot "{slot}" gets no new changes: the standby of {listed(standbys.idle)}, '
            "which synchronized_standby_slots names, is not connected",
            "Start the standby, or remove the name from synchronized_standby_slots.",
        )
    if standbys.active and not standbys.awaited:
        yield warning(
            "standby_slots",
            "synchronized_standby_slots is empty: changes can be captured before a standby has "
            "them, and after its promotion the log cannot be continued then",
            "ALTER SYSTEM SET synchronized_standby_slots = "
            + ", ".join(map(quote_literal, standbys.active))
            + ";",
            _RELOAD,
        )


def _check_standby(cursor: Any) -> Iterator[Finding]:
    cursor.execute(
        "SELECT name, setting FROM pg_settings WHERE name = ANY(%s) AND setting IN ('off', '')"
        " ORDER BY name",
        (list(_OF_STANDBYS),),
    )
    for name, setting in cursor.fetchall():
        yield warning(
            "slot_sync",
            f"{name} is {setting or 'empty'} on this standby: it synchronizes no slot of its "
            "primary",
            f"ALTER SYSTEM SET {name} = {quote_literal(_OF_STANDBYS[name])};",
            _RELOAD,
        )


def _check_copy(row: dict[str, Any]) -> Iterator[Finding]:
    name = row["slot_name"]
    if row["temporary"]:
        yield warning(
            "synced_slot",
            f'replication slot "{name}" is not synchronized yet: a promotion now would lose it',
            "Let the capture run until its position is past the beginning of this standby's WAL.",
        )
    else:
        yield warning(
            "synced_slot",
            f'replication slot "{name}" is a copy of the primary\'s: a capture waits until this '
            "standby is promoted",
            "Name all hosts in the DSN, with target_session_attrs=read-write.",
        )
