"""Position: the part of a stream of changes that a table has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """The part of a stream that a table has, as its own commits record it."""

    commit_lsn: int | None = None  # of the last transaction
    relation: int | None = None  # OID of the relation whose rows it has, if that is known
