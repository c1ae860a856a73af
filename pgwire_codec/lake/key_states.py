"""Lives of keys, folded in Arrow from the changes of each key.

A life begins with an insert, or with an update that gave a row this key, and ends with a delete, or
with an update that gave the row another key. A change is a life of one change. Two consecutive
parts of a life fold into one: each value is the last known one. So a batch at a time suffices, for
any number of changes of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Mask, Numbers, differs, mask_of
from pgwire_codec.lake.unsent_values import missing_values, unchanged_names, with_old_values

#: Place of a change in the total order.
PLACE: Final = np.dtype([("lsn", np.int64), ("seq", np.int64)])
ARROW_PLACE: Final = pa.struct([("lsn", pa.int64()), ("seq", pa.int64())])

_WRITE, _LEAVE, _DELETE = range(3)

_ARRAYS: Final = ("first", "last", "kind", "is_born", "arrived", "left", "written")


def fold(batches: Iterable[pa.RecordBatch], columns: ChangeColumns) -> Iterator[pa.RecordBatch]:
    """Fold changes into lives.

    The changes are without truncates, sorted by key and place: the columns of
    :func:`~pgwire_codec.lake.fold.key_events`. Yield the lives that are the last of their key, or
    that another key's life continues, with these columns. ``gone`` bool: the key has no row
    afterwards. ``is_last`` bool. ``far`` bool: the row lacks values, which an earlier life under
    another key may have. ``written`` bool: the life has values at all. ``arrived`` and ``left``:
    the places of the changes of a key at its beginning and end, if they did not send all values.
    ``c0``, ``c1``, … the table's columns. ``unchanged``: names of the columns that the life's
    changes did not send. ``r0``, … the key, if the row existed before these changes. The metadata
    of the last change.
    """
    for lives, is_last in _complete(batches, columns):
        yield from _batches(lives, is_last, columns)


def _complete(
    batches: Iterable[pa.RecordBatch], columns: ChangeColumns
) -> Iterator[tuple[_Lives, Mask]]:
    """Yield lives, and of the first ones, which are complete, whether they are their key's last."""
    last: _Lives | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        changes = _Lives.of(batch, columns)
        lives, is_last = _folded(changes if last is None else last.then(changes), columns)
        last = lives.take(np.array([len(lives) - 1]))
        yield lives, is_last
    if last is not None:
        yield last, np.array([True])


@dataclass(frozen=True, slots=True)
class _Lives:
    """Lives, or parts of them."""

    data: dict[str, pa.Array]  # the table's columns, and the metadata of the last change
    of_change: tuple[str, ...]  # columns of ``data`` that each change has: the key and the metadata
    first: npt.NDArray[Any]  # place of the first change
    last: npt.NDArray[Any]  # place of the last change
    kind: npt.NDArray[np.int8]  # kind of the last change
    is_born: Mask  # the first change inserted the row, or gave it this key
    arrived: Mask  # the first change gave the row this key, without all values
    left: Mask  # the last change gave the row another key, without all values
    written: Mask  # the life has values
    missing: dict[int, Numbers]  # rows that lack a column's value, by its number
    names: pa.ListType  # type of a list of names

    @classmethod
    def of(cls, batch: pa.RecordBatch, columns: ChangeColumns) -> _Lives:
        """Return changes as lives of one change each."""
        data = dict(zip(batch.schema.names, batch.columns, strict=True))
        op, unchanged = data["_op"], data["_unchanged"]
        leaving, moved = mask_of(data["leaving"]), mask_of(data["moved"])
        kind = np.where(mask_of(pc.equal(op, "D")), _DELETE, np.where(leaving, _LEAVE, _WRITE))
        data, missing = with_old_values(data, columns, missing_values(unchanged, columns.table))
        lacks = _lacking(missing, len(batch))
        place = np.empty(len(batch), PLACE)
        place["lsn"], place["seq"] = data["_commit_lsn"], data["_seq"]
        arrives = moved & ~leaving
        return cls(
            data={name: data[name] for name in (*columns.numbers, *columns.row_metadata)},
            of_change=(*columns.key_numbers, *columns.row_metadata),
            first=place,
            last=place,
            kind=kind.astype(np.int8),
            is_born=mask_of(pc.equal(op, "I")) | arrives,
            arrived=arrives & lacks,
            left=leaving & lacks,
            written=kind == _WRITE,
            missing=missing,
            names=unchanged.type,
        )

    def __len__(self) -> int:
        return len(self.kind)

    def then(self, after: _Lives) -> _Lives:
        """Return these lives, then others."""
        count = len(self)
        missing = dict(self.missing)
        for number, rows in after.missing.items():
            missing[number] = np.append(missing.get(number, rows[:0]), rows + count)
        data = {
            name: pa.concat_arrays([column, after.data[name]]) for name, column in self.data.items()
        }
        arrays: dict[str, Any] = {
            name: np.append(getattr(self, name), getattr(after, name)) for name in _ARRAYS
        }
        return replace(self, data=data, missing=missing, **arrays)

    def take(self, chosen: Numbers) -> _Lives:
        """Return some of these lives."""
        return self._gather(chosen, chosen, lambda rows: rows[chosen])

    def folded(self, begins: Mask) -> _Lives:
        """Return whole lives, of parts in order; ``begins`` are the first parts."""
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(self)) - 1
        return self._gather(first, last, lambda rows: np.maximum.reduceat(rows, first))

    def _gather(
        self, first: Numbers, last: Numbers, newest: Callable[[Numbers], Numbers]
    ) -> _Lives:
        """Return the lives from their first parts to their last.

        ``newest`` returns of each life the last part of those that have a value: other parts
        are -1.
        """
        with_values = np.where(self.written, np.arange(len(self)), -1)
        source = newest(with_values)
        written = source >= 0
        taken = {}
        missing = {}
        for number, rows in self.missing.items():
            known = with_values.copy()
            known[rows] = -1
            taken[f"c{number}"] = newest(known)
            missing[number] = np.flatnonzero(written & (taken[f"c{number}"] < 0))
        of_last = dict.fromkeys(self.of_change, last)
        indices = {id(each): _indices(each) for each in (source, last, *taken.values())}
        sources = {name: (of_last | taken).get(name, source) for name in self.data}
        return replace(
            self,
            data={name: self.data[name].take(indices[id(sources[name])]) for name in self.data},
            first=self.first[first],
            last=self.last[last],
            kind=self.kind[last],
            is_born=self.is_born[first],
            arrived=self.arrived[first],
            left=self.left[last],
            written=written,
            missing=missing,
        )


def _folded(parts: _Lives, columns: ChangeColumns) -> tuple[_Lives, Mask]:
    """Fold parts of lives, and return of each but the last whether its key has a later one."""
    same_key = np.ones(len(parts) - 1, np.bool_)
    for name in columns.key_numbers:
        key = parts.data[name]
        same_key &= ~differs(key[:-1], key[1:])
    # A change that was stored twice counts once.
    again = np.append(False, same_key & (parts.last[1:] == parts.last[:-1]))
    if again.any():
        parts, same_key = parts.take(np.flatnonzero(~again)), same_key[~again[1:]]
    begins = np.ones(len(parts), np.bool_)
    begins[1:] = ~same_key | parts.is_born[1:] | (parts.kind[:-1] != _WRITE)
    return parts.folded(begins), ~same_key[begins[1:]]


def _batches(lives: _Lives, is_last: Mask, columns: ChangeColumns) -> Iterator[pa.RecordBatch]:
    """Yield the lives that matter, of the first ones: as many as ``is_last`` has."""
    chosen = np.flatnonzero(is_last | lives.left[: len(is_last)])
    if not len(chosen):
        return
    lives, is_last = lives.take(chosen), is_last[chosen]
    gone = lives.kind != _WRITE
    found: dict[str, Any] = {
        "gone": gone,
        "is_last": is_last,
        "far": is_last & ~gone & lives.arrived & _lacking(lives.missing, len(lives)),
        "written": lives.written,
        "arrived": _places(lives.first, lives.arrived),
        "left": _places(lives.last, lives.left),
        "unchanged": unchanged_names(lives.missing, columns.table, len(lives), lives.names),
        **lives.data,
    }
    was_there = _indices(np.where(lives.is_born, -1, np.arange(len(lives))))
    for place, name in enumerate(columns.key_numbers):
        found[f"r{place}"] = lives.data[name].take(was_there)
    yield pa.RecordBatch.from_pydict(found)


def _lacking(missing: Mapping[int, Numbers], count: int) -> Mask:
    """Return which rows lack a value."""
    lacks = np.zeros(count, np.bool_)
    for rows in missing.values():
        lacks[rows] = True
    return lacks


def _places(places: npt.NDArray[Any], valid: Mask) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [np.ascontiguousarray(places[name]) for name in PLACE.names or ()],
        fields=list(ARROW_PLACE),
        mask=pa.array(~valid),
    )


def _indices(rows: Numbers) -> pa.Array:
    """Return indices to take; null for those that are negative."""
    return pa.array(rows, mask=rows < 0)
