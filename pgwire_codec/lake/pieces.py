"""Pieces of a range of the log, each of which is read and merged by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pgwire_codec.changes.identity import key_columns
from pgwire_codec.log.relation_history import VersionInForce
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a range in which no column goes, and the replica identity stays the same.

    Attributes
    ----------
    after, until : int
        Commit LSNs.
    declared : list of RelationVersion
        From the one that is valid before it, if that is known, to that at its end.
    starts : list of int
        Commit LSN of the first transaction that has each of them.
    """

    after: int
    until: int
    declared: list[RelationVersion]
    starts: list[int]

    @property
    def versions(self) -> list[Relation]:
        """The relation in each version."""
        return [version.relation for version in self.declared]

    def since(self, column: str) -> int:
        """Return the commit LSN from which on its newest version has a column."""
        start = self.starts[-1]
        for version, begin in zip(reversed(self.versions), reversed(self.starts), strict=True):
            if all(each.name != column for each in version.columns):
                break
            start = begin
        return start


def pieces_of(versions: list[VersionInForce], after: int, until: int) -> list[Piece]:
    """Return the parts of a range between the commits after which rows are to be read otherwise.

    That is so when the replica identity changes, and when a column goes: earlier rows have it.
    """
    pieces = [
        Piece(after, until, [version.version], [version.commit_lsn]) for version in versions[:1]
    ]
    for version in versions[1:]:
        last = pieces[-1]
        end = version.commit_lsn - 1
        # A transaction is not cut, even if several versions came in it.
        is_inside = end <= last.after or version.commit_lsn == last.starts[-1]
        if is_inside or _continues(last.versions[-1], version.relation):
            last.declared.append(version.version)
            last.starts.append(version.commit_lsn)
            continue
        pieces[-1] = replace(last, until=end)
        both = [last.declared[-1], version.version]
        pieces.append(Piece(end, until, both, [last.starts[-1], version.commit_lsn]))
    return pieces


def _continues(before: Relation, after: Relation) -> bool:
    """Return whether rows of two versions can be read together."""
    names, later = ({column.name for column in each.columns} for each in (before, after))
    return key_columns(before) == key_columns(after) and names <= later
