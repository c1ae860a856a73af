"""Values that were not sent: rows that lack them, and lists of names as in ``_unchanged``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import Numbers, mask_of


def missing_values(unchanged: pa.ListArray, names: Sequence[str]) -> dict[int, Numbers]:
    """Return the rows that name each column, ascending, by the column's number in ``names``.

    Other names are ignored.
    """
    if unchanged.null_count == len(unchanged):
        return {}
    found = pc.list_flatten(unchanged).dictionary_encode()
    codes = found.indices.fill_null(len(found.dictionary)).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    rows = pc.list_parent_indices(unchanged).to_numpy(zero_copy_only=False)[order]
    bounds = np.searchsorted(codes[order], np.arange(len(found.dictionary) + 1))
    numbers = {name: number for number, name in enumerate(names)}
    return {
        numbers[name]: rows[bounds[code] : bounds[code + 1]].astype(np.int64)
        for code, name in enumerate(found.dictionary.to_pylist())
        if name in numbers
    }


def unchanged_names(
    missing: Mapping[int, Numbers], names: Sequence[str], count: int, kind: pa.ListType
) -> pa.ListArray:
    """Return the names of the columns that each of ``count`` rows lacks; null for none."""
    if not any(map(len, missing.values())):
        return pa.nulls(count, kind)
    rows = np.concatenate(list(missing.values()))
    numbers = np.repeat(list(missing), [len(each) for each in missing.values()])
    order = np.lexsort((numbers, rows))
    offsets = np.searchsorted(rows[order], np.arange(count + 1)).astype(np.int32)
    has_names = np.diff(offsets) > 0
    return pa.ListArray.from_arrays(
        pa.array(offsets, mask=np.append(~has_names, False)),
        pa.array(names, kind.value_type).take(pa.array(numbers[order])),
        type=kind,
    )


def replaced(values: pa.Array, others: pa.Array, rows: Numbers) -> pa.Array:
    """Return values, with those of another array of the same length in some rows."""
    places = np.arange(len(values))
    places[rows] += len(values)
    return pa.concat_arrays([values, others]).take(pa.array(places))


def with_old_values(
    data: dict[str, pa.Array], columns: ChangeColumns, missing: dict[int, Numbers]
) -> tuple[dict[str, pa.Array], dict[int, Numbers]]:
    """Fill in the values that were not sent, as far as ``_before`` has them.

    ``missing`` is as :func:`missing_values` returns it; return what is still missing, too. A value
    that was moved out of its row is never NULL: a NULL there was not sent either.
    """
    data, lacking = dict(data), {}
    for number in columns.values:
        if number not in missing:
            continue
        rows = missing[number]
        if columns.in_before(number):
            name = f"c{number}"
            old = pc.struct_field(data["_before"], name)
            has_old = mask_of(old.is_valid())[rows]
            data[name] = replaced(data[name], old, rows[has_old])
            rows = rows[~has_old]
        if len(rows):
            lacking[number] = rows
    return data, lacking
