"""Position: the part of a stream of changes that a table has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """The part of a stream that a table has, as its own commits record it.

    Attributes
    ----------
    commit_lsn : int or None
        Commit LSN of the last transaction.
    relation : int or None
        OID of the relation whose rows it has, if that is known.
    """

    commit_lsn: int | None = None
    relation: int | None = None
