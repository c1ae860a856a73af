"""History of a table: a row for each change, in place of the table's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.comparison import mask_of

#: Kind of a change: insert, update_preimage, update_postimage, delete or truncate.
CHANGE: Final = "_change"

#: Columns after those of the table.
HISTORY_COLUMNS: Final = (CHANGE, "_commit_lsn", "_commit_time", "_seq", "_unchanged")

_KINDS: Final = ("insert", "update_postimage", "delete", "truncate", "update_preimage")
_OPS: Final = ("I", "U", "D", "T")
_PREIMAGE: Final = 4


def history_rows(
    columns: Mapping[str, pa.Array], metadata: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return the columns of a history, from those of changes and their metadata.

    The kinds of changes are those of Delta's change data feed, and ``truncate``, whose other
    columns of the table are null. Before an update there is a preimage if the server sent the old
    tuple: its key, or with ``REPLICA IDENTITY FULL`` all of it. A value that an update did not
    send (unchanged TOAST) is null, and its column is named in ``_unchanged``.
    """
    kinds = pc.index_in(metadata["_op"], value_set=pa.array(_OPS)).to_numpy()
    before, count = metadata.get("_before"), len(kinds)
    has_preimage = np.zeros(count, np.bool_)
    if before is not None:
        has_preimage = (kinds == 1) & mask_of(before.is_valid())
    rows = np.repeat(np.arange(count), 1 + has_preimage)
    is_preimage = np.zeros(len(rows), np.bool_)
    is_preimage[:-1] = rows[1:] == rows[:-1]
    result = dict(columns)
    if before is not None and has_preimage.any():
        places = pa.array(np.where(is_preimage, rows + count, rows))
        for name, column in columns.items():
            has_old = before.type.get_field_index(name) >= 0
            old = pc.struct_field(before, name) if has_old else pa.nulls(count, column.type)
            result[name] = pa.concat_arrays([column, old]).take(places)
    taken = pa.array(rows)
    result[CHANGE] = pa.array(_KINDS).take(pa.array(np.where(is_preimage, _PREIMAGE, kinds[rows])))
    for name in HISTORY_COLUMNS[1:4]:
        result[name] = metadata[name].take(taken)
    result["_unchanged"] = metadata["_unchanged"].take(pa.array(rows, mask=is_preimage))
    return result
