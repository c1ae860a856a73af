"""Changes of an input array, with the Relation versions that hold for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.tables import ScannedArray
from pgwire_codec.transactions.carry import RelationVersion

#: In ``ChangeArray.batch``: no Relation came before the change.
UNKNOWN = -1


@dataclass(slots=True, eq=False)
class ChangeArray:
    """Changes of an input array; a truncate is one change of each table that it names.

    Attributes
    ----------
    source : ScannedArray
        The array.
    rows : numpy.ndarray of int64
        Index of each change's message.
    group : numpy.ndarray of int32
        Number of each change's group, as in :class:`pgwire_codec.codec.runs.Runs`.
    versions : list of RelationVersion
        The versions that the groups have, no two of them equal.
    batch : list of int
        The number of each group's version in ``versions``, or ``UNKNOWN``.
    """

    source: ScannedArray
    rows: npt.NDArray[np.int64]
    group: npt.NDArray[np.int32]
    versions: list[RelationVersion] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    _of_relation: dict[int, list[int]] = field(default_factory=dict)  # its numbers in versions
    _same: dict[int, tuple[int, RelationVersion]] = field(default_factory=dict)  # by identity
    _numbers: npt.NDArray[np.int32] | None = None

    def add_group(self, version: RelationVersion | None) -> None:
        """Take the version that the next group has."""
        if version is None:
            self.batch.append(UNKNOWN)
            return
        if id(version) not in self._same:
            self._same[id(version)] = self._number(version), version
        self.batch.append(self._same[id(version)][0])

    def _number(self, version: RelationVersion) -> int:
        # Comparisons with the versions of one relation cost less than the hash of a version.
        numbers = self._of_relation.setdefault(version.relation.oid, [])
        for number in numbers:
            if self.versions[number] == version:
                return number
        numbers.append(len(self.versions))
        self.versions.append(version)
        return numbers[-1]

    def batch_numbers(self) -> npt.NDArray[np.int32]:
        """Return ``batch`` as an array."""
        if self._numbers is None or len(self._numbers) != len(self.batch):
            self._numbers = np.array(self.batch, np.int32)
        return self._numbers

    def version(self, row: int) -> RelationVersion | None:
        """Return the version that holds for a change."""
        number = self.batch[self.group[row]]
        return None if number == UNKNOWN else self.versions[number]

    def columns(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return how many columns the Relations of some changes have, ``UNKNOWN`` without one."""
        groups = self.group[start:stop]
        low = int(groups.min(initial=0 if start == stop else 2**31 - 1))
        counts = [
            UNKNOWN if number == UNKNOWN else len(self.versions[number].relation.columns)
            for number in self.batch[low : int(groups.max(initial=low)) + 1]
        ]
        return np.array(counts, np.int64)[groups - low]


class Chunk(NamedTuple):
    """Consecutive changes of one transaction in an input array.

    Attributes
    ----------
    changes : ChangeArray
        The array.
    start, stop : int
        Range of the changes in it.
    seq : int
        Number of the first in its transaction.
    """

    changes: ChangeArray
    start: int
    stop: int
    seq: int

    def since(self, number: int) -> Chunk:
        """Return the changes that have this number in their transaction, or a later one."""
        skipped = min(max(number - self.seq, 0), self.stop - self.start)
        return self._replace(start=self.start + skipped, seq=self.seq + skipped)

    def before(self, number: int) -> Chunk:
        """Return the changes that have an earlier number in their transaction."""
        return self._replace(stop=min(self.stop, self.start + max(number - self.seq, 0)))
