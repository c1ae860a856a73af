"""Number and checksum of the rows of two sides, in buckets by the hash of their key.

Checksums do not depend on the order of rows. Equal ones show equal rows but for a chance of about 1
in 2 to the power of 64; they do not protect from rows that were made to collide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.comparing.server_rows import ServerRows
from pgwire_codec.comparing.target_rows import TargetRows
from pgwire_codec.lake.comparison import Mask
from pgwire_codec.lake.row_hashes import Hashes

#: Number of buckets.
BUCKETS: Final = 1024

#: Rows of either side.
SideRows = ServerRows | TargetRows


class Checksums(NamedTuple):
    """Number of rows, and sum of their hashes, in each bucket; the sign is that of the side."""

    sign: int
    counts: npt.NDArray[np.int64]
    sums: Hashes


@dataclass(frozen=True, slots=True)
class Checksum:
    """Task that sums up rows. Picklable."""

    columns: ComparedColumns

    def __call__(self, rows: SideRows) -> Checksums:
        counts, sums = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64)
        for batch in rows.batches():
            keys, hashes = self.columns.hashes(self.columns.rows(batch))
            buckets = buckets_of(keys)
            counts += np.bincount(buckets, minlength=BUCKETS)
            np.add.at(sums, buckets, hashes)
        return Checksums(rows.sign, counts, sums)


@dataclass(frozen=True, slots=True)
class Balance:
    """Numbers of rows of both sides, and the buckets whose rows differ."""

    server_rows: int
    target_rows: int
    different: Mask

    @classmethod
    def from_checksums(cls, checksums: Iterable[Checksums]) -> Balance:
        """Compare the sums of both sides."""
        counts = {sign: np.zeros(BUCKETS, np.int64) for sign in (1, -1)}
        sums = {sign: np.zeros(BUCKETS, np.uint64) for sign in (1, -1)}
        for each in checksums:
            counts[each.sign] += each.counts
            sums[each.sign] += each.sums
        different = (counts[1] != counts[-1]) | (sums[1] != sums[-1])
        return cls(int(counts[1].sum()), int(counts[-1].sum()), different)


def buckets_of(keys: Hashes) -> npt.NDArray[np.int64]:
    """Return the buckets of rows by the hashes of their keys."""
    buckets: npt.NDArray[np.int64] = (keys % np.uint64(BUCKETS)).astype(np.int64)
    return buckets
