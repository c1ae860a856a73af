"""Where the messages of a log come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pgwire_codec.errors import LogError

#: What must not change within a log: positions of two of these cannot be compared.
_IDENTITY: Final = ("system_identifier", "timeline", "database", "slot")


@dataclass(frozen=True, slots=True)
class Source:
    """A replication slot, as a session found it.

    Attributes
    ----------
    system_identifier : str
        The cluster's, as ``IDENTIFY_SYSTEM`` tells it.
    timeline : int
        Of the server's WAL.
    database, slot : str
        Names.
    server_version : int
        As libpq tells it: 160014 is 16.14.
    plugin_options : dict of str to str
        What the output plugin was given.
    """

    system_identifier: str
    timeline: int
    database: str
    slot: str
    server_version: int
    plugin_options: dict[str, str] = field(default_factory=dict, hash=False)

    def check_same(self, other: Source, log: str) -> None:
        """Raise ``LogError`` when ``other`` may not be written to the log that has this source."""
        for name in _IDENTITY:
            held, wanted = getattr(self, name), getattr(other, name)
            if held != wanted:
                raise LogError(
                    f"the log {log} holds messages of {name.replace('_', ' ')} {held!r}, not of "
                    f"{wanted!r}: their positions cannot be compared. Write to another, empty log."
                )
