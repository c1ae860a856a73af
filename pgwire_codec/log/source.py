"""LogSource: the replication slot that the messages of a log come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pgwire_codec.errors import LogError
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.quoting import split_identifiers

#: Fields that must not change within a log: LSNs of two different values cannot be compared.
_IDENTITY: Final = ("system_identifier", "database", "slot")
_NOT_COMPARABLE: Final = "Their positions cannot be compared. Write to another, empty log."


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
    ancestors : dict of int to int
        Earlier timelines that the server's timeline descends from. The value is the LSN up to which
        their WAL is the server's.
    """

    system_identifier: str
    timeline: int
    database: str
    slot: str
    server_version: int
    plugin_options: dict[str, str] = field(default_factory=dict, hash=False)
    ancestors: dict[int, int] = field(default_factory=dict, hash=False)

    @property
    def publications(self) -> tuple[str, ...]:
        """Names of the publications; none if the options do not have them."""
        return tuple(split_identifiers(self.plugin_options.get("publication_names", "")))

    def check_continued_by(self, source: LogSource, end_lsn: int, log: str) -> None:
        """Raise ``LogError`` unless messages of ``source`` may follow those of this source.

        Parameters
        ----------
        source : LogSource
            Of the same server, or of one that was promoted from its standby.
        end_lsn : int
            LSN up to which the log has the WAL of this source.
        log : str
            Name of the log, for errors.
        """
        for name in _IDENTITY:
            ours, theirs = getattr(self, name), getattr(source, name)
            if ours != theirs:
                raise LogError(
                    f"the log {log} holds messages of {name.replace('_', ' ')} {ours!r}, not of "
                    f"{theirs!r}",
                    hint=_NOT_COMPARABLE,
                )
        if not self._is_ancestor_of(source):
            raise LogError(
                f"the log {log} holds messages of timeline {self.timeline}, and timeline "
                f"{source.timeline} of the server does not descend from it",
                hint="The server may be a former primary, or a copy that was recovered to an "
                "earlier time. Connect to the present primary. " + _NOT_COMPARABLE,
            )
        branch_lsn = source.ancestors.get(self.timeline, end_lsn)
        if branch_lsn < end_lsn:
            raise LogError(
                f"the log {log} contains timeline {self.timeline} up to {format_lsn(end_lsn)}, and "
                f"timeline {source.timeline} of the server branched off at "
                f"{format_lsn(branch_lsn)}: what was captured in between does not exist on the "
                "server",
                hint="A standby was promoted that had not received everything. Begin a new log, "
                "with a snapshot. To prevent it, set synchronized_standby_slots on the server, so "
                "that nothing is sent before a standby has it.",
            )

    def _is_ancestor_of(self, source: LogSource) -> bool:
        """Return whether the timeline is that of ``source``, or one that it descends from."""
        if self.timeline not in (source.timeline, *source.ancestors):
            return False
        # Two standbys that were promoted at different LSNs begin timelines of the same number.
        return all(
            source.ancestors.get(timeline, lsn) == lsn for timeline, lsn in self.ancestors.items()
        )
