"""Rows of all tables: a change's values as maps of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.column import Column
from pgwire_codec.codec.tables import NULL, VALUE, tagged
from pgwire_codec.protocol.spec import WITH_OLD_TUPLE
from pgwire_codec.spark.formats.native import exact, to_exact
from pgwire_codec.spark.reduction.change_columns import RELATION_OID
from pgwire_codec.transactions.carry import RelationVersion

_TEXTS = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class AnyTable:
    """``relation``, ``op``, ``new`` and ``old``, then the metadata columns.

    A map has the columns that were sent, with null for NULL; a column whose value was not sent is
    not in it. ``new`` is null for deletes and truncates, ``old`` where there is no old tuple.
    """

    schema: pa.Schema

    @classmethod
    def of(cls, *, relation_oid: bool) -> AnyTable:
        fields = [
            ("relation", pa.string()),
            ("op", pa.string()),
            ("new", _TEXTS),
            ("old", _TEXTS),
            ("_xid", pa.int64()),
            ("_lsn", pa.int64()),
            ("_commit_lsn", pa.int64()),
            ("_commit_time", pa.timestamp("us", "UTC")),
            ("_seq", pa.int64()),
            ("_origin", pa.string()),
            ("_unchanged", pa.list_(pa.string())),
        ]
        if relation_oid:
            fields.append((RELATION_OID, pa.int64()))
        return cls(exact(pa.schema(fields)))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        told = batch.to_arrow([])
        kind = dict(zip(told.schema.names, told.columns, strict=True))
        kind[RELATION_OID] = pa.repeat(pa.scalar(batch.relation.oid, pa.int64()), len(batch))
        arrays: list[Any] = [
            pa.repeat(batch.version.qualified_name, len(batch)),
            _metadata(kind, "_op"),
            _texts(batch.new, tagged(batch.op, b"IU")),
            _texts(batch.old, tagged(batch.op, WITH_OLD_TUPLE)),
            *(_metadata(kind, name) for name in self.schema.names[4:]),
        ]
        return to_exact(arrays, self.schema)

    def check(self, versions: Sequence[RelationVersion]) -> None:
        """Every table fits."""


def _metadata(columns: Mapping[str, pa.Array], name: str) -> pa.Array:
    """Give a metadata column, whose name has further underscores where the table has it, too."""
    while name not in columns:
        name = f"_{name}"
    return columns[name]


def _texts(columns: Mapping[str, Column], sent: npt.NDArray[np.bool_]) -> pa.MapArray:
    """Give a map a row, of the columns that it has; null where the row has no tuple."""
    rows = len(sent)
    if not columns:
        return pa.array([[] if each else None for each in sent.tolist()], _TEXTS)
    states = np.stack([column.state for column in columns.values()], axis=1)
    there = ((states == VALUE) | (states == NULL)) & sent[:, np.newaxis]
    # A tuple that was not sent at all has no column.
    some = there.any(axis=1)
    row, number = np.nonzero(there)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(there.sum(axis=1), out=offsets[1:])
    values = pa.concat_arrays([column.to_arrow() for column in columns.values()])
    return pa.MapArray.from_arrays(
        pa.array(offsets, mask=np.append(~some, False)),
        pa.array(list(columns), pa.string()).take(pa.array(number)),
        values.take(pa.array(number * rows + row)),
    )
