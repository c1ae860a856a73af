"""Numbers for keys: equal keys, of one column or several, have equal numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.comparison import Numbers, float_bits


def group_codes(columns: Sequence[pa.Array]) -> Numbers:
    """Return a number for each row, the same for rows that are equal in all columns."""
    codes: Numbers | None = None
    for column in columns:
        found, count = _codes(column)
        if codes is None:
            codes = found
            continue
        # Numbers of pairs, made small again: the product of several counts would overflow.
        _, codes = np.unique(codes * count + found, return_inverse=True)
    assert codes is not None, "a key has at least one column"
    return codes


def match_codes(rows: Sequence[pa.Array], keys: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """Return numbers of rows and of keys, the same where they are equal; -1 for another row.

    No key occurs twice.
    """
    if len(keys) == 1:
        indices = pc.index_in(hashable(rows[0]), value_set=hashable(keys[0]))
        return _numbers(indices.fill_null(-1)), np.arange(len(keys[0]))
    row_codes: Numbers | None = None
    key_codes: Numbers | None = None
    for row, key in zip(rows, keys, strict=True):
        found = hashable(key).dictionary_encode(null_encoding="encode")
        of_key = _numbers(found.indices)
        of_row = _numbers(pc.index_in(hashable(row), value_set=found.dictionary).fill_null(-1))
        if row_codes is None or key_codes is None:
            row_codes, key_codes = of_row, of_key
            continue
        count = len(found.dictionary)
        is_known = (row_codes >= 0) & (of_row >= 0)
        pairs, key_codes = np.unique(key_codes * count + of_key, return_inverse=True)
        wanted = row_codes * count + of_row
        places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        row_codes = np.where(is_known & (pairs[places] == wanted), places, -1)
    assert row_codes is not None, "a key has at least one column"
    assert key_codes is not None
    return row_codes, key_codes


def _codes(column: pa.Array) -> tuple[Numbers, int]:
    found = hashable(column).dictionary_encode(null_encoding="encode")
    return _numbers(found.indices), len(found.dictionary)


def _numbers(indices: pa.Array) -> Numbers:
    numbers: Numbers = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def hashable(column: pa.Array) -> pa.Array:
    """Return a column whose values Arrow finds equal as :func:`differs` does: lists as texts."""
    if pa.types.is_floating(column.type):
        return float_bits(column)
    if pa.types.is_nested(column.type):
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column
