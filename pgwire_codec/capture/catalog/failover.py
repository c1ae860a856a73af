"""Failover slots, which a standby synchronizes, and the standbys that the server waits for.

PostgreSQL documentation, "Logical Replication Failover" and "Replication Slot Synchronization".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.quoting import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST: Final = 17  # the first major with failover slots


@dataclass(frozen=True, slots=True)
class StandbySlots:
    """Physical slots, by which standbys follow a server, and those that it waits for.

    Attributes
    ----------
    active : mapping of str to bool
        Whether a standby is connected, by the name of each permanent physical slot.
    awaited : tuple of str
        Names in ``synchronized_standby_slots``: a failover slot sends nothing that the standbys of
        these slots have not received.
    """

    active: Mapping[str, bool]
    awaited: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """Awaited slots that do not exist: nothing is sent until they do."""
        return [name for name in self.awaited if name not in self.active]

    @property
    def idle(self) -> list[str]:
        """Awaited slots without a connected standby: nothing new is sent until one connects."""
        return [name for name in self.awaited if not self.active.get(name, True)]


def has_failover_slots(server_version: int) -> bool:
    """Return whether servers of this version (170004 is 17.4) have failover slots."""
    return server_version // 10_000 >= _FIRST


def check_failover_supported(server_version: int) -> None:
    """Raise ``CaptureError`` for the version of a server that cannot create failover slots."""
    if not has_failover_slots(server_version):
        raise CaptureError(
            f"`failover=True` needs PostgreSQL {_FIRST}; the server is PostgreSQL "
            f"{server_version // 10_000}",
            hint="Omit the option.",
        )


def read_standby_slots(cursor: Any) -> StandbySlots:
    """Return the physical slots of a server with failover slots."""
    cursor.execute(
        "SELECT slot_name, active FROM pg_replication_slots"
        " WHERE slot_type = 'physical' AND NOT temporary ORDER BY slot_name"
    )
    active = dict(cursor.fetchall())
    cursor.execute(
        "SELECT trim(BOTH ' \"' FROM name) FROM"
        " unnest(string_to_array(current_setting('synchronized_standby_slots'), ',')) name"
    )
    return StandbySlots(active, tuple(name for (name,) in cursor.fetchall()))


def failover_command(slot: str) -> str:
    """Return the replication command that turns an existing slot into a failover slot."""
    return f"ALTER_REPLICATION_SLOT {quote_identifier(slot)} (FAILOVER true);"


def failover_notes(cursor: Any, slot: str, *, is_failover: bool, requested: bool) -> list[str]:
    """Return remarks on a slot that is, or was requested to be, a failover slot."""
    if not is_failover:
        if not requested:
            return []
        return [
            f'replication slot "{slot}" was created without failover: the promotion of a '
            "standby loses it. To change that, stop the capture and run over a replication "
            f"connection (psql with replication=database in the DSN): {failover_command(slot)}"
        ]
    standbys = read_standby_slots(cursor)
    notes = [
        f'the server sends nothing until physical slot "{name}" exists, which '
        "synchronized_standby_slots names"
        for name in standbys.missing
    ]
    notes += [
        f'the server waits for the standby of physical slot "{name}", which is not connected'
        for name in standbys.idle
    ]
    if standbys.active and not standbys.awaited:
        notes.append(
            "synchronized_standby_slots is empty: changes can be captured before a standby has "
            "them, and after its promotion the log cannot be continued then"
        )
    return notes
