"""Rows that two sides do not have in common: tasks that exchange them by key, and count them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.comparing.checksums import SideRows, buckets_of
from pgwire_codec.comparing.compared_columns import ComparedColumns
from pgwire_codec.lake.change_split import BucketSplit
from pgwire_codec.lake.comparison import Mask
from pgwire_codec.lake.row_hashes import Hashes
from pgwire_codec.lake.runners.runner import BucketKey, Piece

#: A batch or a table.
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

#: Columns before those that are compared: hashes of the key and of the row, and how many such rows
#: more the server has.
KEY: Final = "key"
ROW: Final = "row"
NET: Final = "net"


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
    """Distinct rows that one side has more often.

    Attributes
    ----------
    keys : ndarray of uint64
        Hashes of their keys, ascending, each once.
    rows : pyarrow.Table
        The first of them by key: the columns :data:`KEY`, :data:`ROW` and :data:`NET`, then the
        compared columns.
    chosen : pyarrow.Table
        Likewise, of chosen keys.
    """

    keys: Hashes
    rows: pa.Table
    chosen: pa.Table


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Task that splits the rows of the buckets that differ by key. Picklable.

    Attributes
    ----------
    relation_oid : int
    columns : ComparedColumns
    different : ndarray of bool
        Buckets that differ.
    parts : int
        Number of parts into which these are split.
    """

    relation_oid: int
    columns: ComparedColumns
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
            found = pa.RecordBatch.from_arrays(
                [
                    *map(pa.array, (keys[chosen], hashes[chosen], net)),
                    *compared.take(pa.array(chosen)).columns,
                ],
                names=[KEY, ROW, NET, *self.columns.numbers.values()],
            )
            if not self.columns.has_keys:
                found = _distinct(found)  # many rows may be equal
            parts = buckets_of(found.column(KEY).to_numpy()) % self.parts
            yield from self._pieces(split.add(found, parts))
        yield from self._pieces(split.finish())

    def _pieces(self, split: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[Piece]:
        for part, rows in split:
            yield Piece(BucketKey(self.relation_oid, part), rows)


@dataclass(frozen=True, slots=True)
class RowCount:
    """Task that counts the rows of a part on both sides. Picklable.

    Attributes
    ----------
    columns : ComparedColumns
    choice : KeyChoice
        Keys whose rows are returned beside those of all keys.
    max_keys : int
        Number of keys with rows to return.
    """

    columns: ComparedColumns
    choice: KeyChoice
    max_keys: int

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
