"""Rows that two sides do not have in common, found by tasks.

First, they number and sum up the rows of both sides, in buckets by the hash of their key. Checksums
do not depend on the order of rows. Equal ones show equal rows but for a chance of about 1 in 2 to
the power of 64; they do not protect from rows that were made to collide. Then tasks exchange the
rows of buckets that differ by key, and count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.comparing.server_state import ServerRows
from pgwire_codec.comparing.target_table import TargetRows
from pgwire_codec.lake.change_split import BucketSplit
from pgwire_codec.lake.comparison import Mask
from pgwire_codec.lake.row_hashes import Hashes
from pgwire_codec.lake.runners.runner import BucketKey, Piece

#: Rows of either side.
SideRows = ServerRows | TargetRows

#: A batch or a table.
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

BUCKETS: Final = 1024  # number of buckets

#: Columns before those that are compared: hashes of the key and of the row, and how many such rows
#: more the server has.
KEY: Final = "key"
ROW: Final = "row"
NET: Final = "net"


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
        for part in checksums:
            counts[part.sign] += part.counts
            sums[part.sign] += part.sums
        different = (counts[1] != counts[-1]) | (sums[1] != sums[-1])
        return cls(int(counts[1].sum()), int(counts[-1].sum()), different)


def buckets_of(keys: Hashes) -> npt.NDArray[np.int64]:
    """Return the buckets of rows by the hashes of their keys."""
    buckets: npt.NDArray[np.int64] = (keys % np.uint64(BUCKETS)).astype(np.int64)
    return buckets


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """Hashes of some keys: those of ``among`` without those of ``without``.

    ``among`` is None for all keys, and ``without`` for all, too: then no key is chosen.
    """

    among: Hashes | None = None
    without: Hashes | None = None

    def mask(self, keys: Hashes) -> Mask:
        """Return which keys are chosen."""
        if self.without is None:
            return np.zeros(len(keys), np.bool_)
        chosen: Mask = ~np.isin(keys, self.without)
        return chosen if self.among is None else chosen & np.isin(keys, self.among)


@dataclass(frozen=True, slots=True)
class Differences:
    """Distinct rows that one side has more often."""

    keys: Hashes  # hashes of their keys, ascending, each once
    #: The first of them by key: the columns KEY, ROW and NET, then the compared columns.
    rows: pa.Table
    chosen: pa.Table  # likewise, of chosen keys


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Task that splits the rows of the buckets that differ by key. Picklable."""

    relation_oid: int
    columns: ComparedColumns
    #: Buckets that differ, and the number of parts into which these are split.
    different: Mask
    parts: int

    def __call__(self, rows: SideRows) -> Iterator[Piece]:
        split = BucketSplit(self.parts)
        for batch in rows.batches():
            compared = self.columns.rows(batch)
            keys, hashes = self.columns.hashes(compared)
            buckets = buckets_of(keys)
            chosen = np.flatnonzero(self.different[buckets])
            if not len(chosen):
                continue
            net = np.full(len(chosen), rows.sign, np.int64)
            piece = pa.RecordBatch.from_arrays(
                [
                    *map(pa.array, (keys[chosen], hashes[chosen], net)),
                    *compared.take(pa.array(chosen)).columns,
                ],
                names=[KEY, ROW, NET, *self.columns.numbers.values()],
            )
            if not self.columns.has_keys:
                piece = _distinct(piece)  # many rows may be equal
            parts = buckets_of(piece.column(KEY).to_numpy()) % self.parts
            yield from self._pieces(split.add(piece, parts))
        yield from self._pieces(split.finish())

    def _pieces(self, split: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[Piece]:
        for part, rows in split:
            yield Piece(BucketKey(self.relation_oid, part), rows)


@dataclass(frozen=True, slots=True)
class RowCount:
    """Task that counts the rows of a part on both sides. Picklable."""

    columns: ComparedColumns
    choice: KeyChoice  # keys whose rows are returned beside those of all keys
    max_keys: int  # number of keys with rows to return

    def __call__(self, _: BucketKey, pieces: Sequence[pa.RecordBatch]) -> Differences:
        rows = _distinct(pa.Table.from_batches(pieces))
        rows = rows.filter(pc.not_equal(rows.column(NET), 0))
        keys = rows.column(KEY).to_numpy()
        chosen = rows.filter(pa.array(self.choice.mask(keys)))
        return Differences(np.unique(keys), self._first(rows), self._first(chosen))

    def join(self, parts: Sequence[Differences]) -> Differences:
        """Return the differences of all parts."""
        return Differences(
            np.sort(np.concatenate([part.keys for part in parts])),
            self._first(pa.concat_tables(part.rows for part in parts)),
            self._first(pa.concat_tables(part.chosen for part in parts)),
        )

    def _first(self, rows: pa.Table) -> pa.Table:
        """Return the first rows in the order of their keys, without chunks."""
        numbers, kinds = self.columns.numbers, self.columns.types
        # Arrow does not sort lists.
        names = [name for name in self.columns.keys if not pa.types.is_nested(kinds[name])]
        order = [*(numbers[name] for name in names), KEY]
        places = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in order])
        return rows.take(places[: 2 * self.max_keys]).combine_chunks()


def _distinct(rows: Rows) -> Rows:
    """Return each different row once, with the sum of their numbers."""
    keys, hashes, net = (rows.column(name).to_numpy() for name in (KEY, ROW, NET))
    order = np.lexsort((hashes, keys))
    keys, hashes = keys[order], hashes[order]
    is_new = np.append(True, (keys[1:] != keys[:-1]) | (hashes[1:] != hashes[:-1]))
    begins = np.flatnonzero(is_new)
    counts = np.add.reduceat(net[order], begins)
    return rows.take(pa.array(order[begins])).set_column(2, NET, pa.array(counts))
