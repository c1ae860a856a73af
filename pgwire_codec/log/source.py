"""LogSource: the replication slot that the messages of a log come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pgwire_codec.errors import LogError

#: Fields that must not change within a log: LSNs of two different values cannot be compared.
_IDENTITY: Final = ("system_identifier", "timeline", "database", "slot")


@dataclass(frozen=True, slots=True)
class LogSource:
    """A replication slot and its server, at the start of a session.

    Attributes
    ----------
    system_identifier : str
        System identifier of the cluster, as ``IDENTIFY_SYSTEM`` reports it.
    timeline : int
        Timeline of the server's WAL.
    database, slot : str
        Names of the database and of the replication slot.
    server_version : int
        Version of the server as libpq reports it: 160014 is 16.14.
    plugin_options : dict of str to str
        Options of the output plugin.
    """

    system_identifier: str
    timeline: int
    database: str
    slot: str
    server_version: int
    plugin_options: dict[str, str] = field(default_factory=dict, hash=False)

    def check_same(self, other: LogSource, log: str) -> None:
        """Raise ``LogError`` when ``other`` may not be written to the log that has this source."""
        for name in _IDENTITY:
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                raise LogError(
                    f"the log {log} holds messages of {name.replace('_', ' ')} {ours!r}, not of "
                    f"{theirs!r}",
                    hint="Their positions cannot be compared. Write to another, empty log.",
                )
