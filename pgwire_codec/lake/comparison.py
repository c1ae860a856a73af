"""Comparison of Arrow arrays, element by element; masks and numbers of rows.

Values are equal if the server sends the same for them. Operators of types may call others equal:
0 and -0, or numeric 1.0 and 1.00. But the server sends the old key whenever its bytes change, and
deletes have the key as it is stored.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


def differs(left: pa.Array, right: pa.Array) -> Mask:
    """Return where two arrays of a type and length differ, as ``IS DISTINCT FROM`` does.

    NULL equals NULL, NaN equals NaN, and -0.0 differs from 0.0.
    """
    is_null = mask_of(left.is_null()), mask_of(right.is_null())
    if pa.types.is_list(left.type):
        different = _lists_differ(left, right)
    elif pa.types.is_struct(left.type):
        different = np.zeros(len(left), np.bool_)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            different |= differs(one, other)
    else:
        if pa.types.is_floating(left.type):
            left, right = float_bits(left), float_bits(right)
        different = mask_of(pc.not_equal(left, right).fill_null(False))
    return np.where(is_null[0] | is_null[1], is_null[0] != is_null[1], different)


def _lists_differ(left: pa.ListArray, right: pa.ListArray) -> Mask:
    """Compare lists; the result has no meaning where one is null."""
    lengths, others = (pc.list_value_length(each).fill_null(0).to_numpy() for each in (left, right))
    different: Mask = lengths != others
    lengths = np.where(different, 0, lengths)
    rows = np.repeat(np.arange(len(left)), lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    elements = [
        each.values.take(pa.array(each.offsets.to_numpy()[rows] + within)) for each in (left, right)
    ]
    different[rows[differs(*elements)]] = True
    return different


def float_bits(column: pa.Array) -> pa.Array:
    """Return the bits of floating-point values as integers, which are the same for each NaN."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    usual = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
    bits = usual.view(f"i{usual.dtype.itemsize}")
    return pa.array(bits, mask=mask_of(column.is_null()))


def mask_of(array: pa.BooleanArray | pa.ChunkedArray) -> Mask:
    """Return a boolean array without nulls as a mask."""
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask
