"""Rows of all tables: a change's values as maps of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.column import Column
from pgwire_codec.changes.metadata import RELATION_OID, free_name
from pgwire_codec.changes.table_schema import CommitColumns, metadata_types
from pgwire_codec.codec.tables import NULL, VALUE, tagged
from pgwire_codec.protocol.tags import WITH_OLD_TUPLE
from pgwire_codec.spark.arrow_types import cast_batch, spark_arrow_schema
from pgwire_codec.transactions.carry import RelationVersion

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_CHANGE: Final = {"relation": pa.string(), "op": pa.string(), "new": _TEXTS, "old": _TEXTS}


@dataclass(frozen=True)
class AnyTableRows:
    """``relation``, ``op``, ``new`` and ``old``, then the metadata columns.

    A map has the columns that were sent, with null for NULL; a column whose value was not sent is
    not in it. ``new`` is null for deletes and truncates, ``old`` for changes without an old tuple.
    """

    schema: pa.Schema

    @classmethod
    def of(cls, *, relation_oid: bool) -> AnyTableRows:
        """Return the format, with or without the column ``_relation_oid``."""
        metadata = metadata_types(invalid=False, relation_oid=relation_oid)
        del metadata["_op"]
        return cls(spark_arrow_schema(pa.schema(_CHANGE | metadata)))

    @property
    def commit_columns(self) -> CommitColumns:
        return CommitColumns(("_commit_lsn",), ("_commit_time",))

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        sent = batch.to_arrow([])
        columns = dict(zip(sent.schema.names, sent.columns, strict=True))
        columns[RELATION_OID] = pa.repeat(pa.scalar(batch.relation.oid, pa.int64()), len(batch))
        taken = {column.name for column in batch.relation.columns}
        metadata = ("_op", *self.schema.names[len(_CHANGE) :])
        op, *others = (
            columns[name if name == RELATION_OID else free_name(name, taken)] for name in metadata
        )
        arrays: list[Any] = [
            pa.repeat(batch.version.qualified_name, len(batch)),
            op,
            _texts(batch.new, tagged(batch.op, b"IU")),
            _texts(batch.old, tagged(batch.op, WITH_OLD_TUPLE)),
            *others,
        ]
        return cast_batch(arrays, self.schema)

    def check(self, versions: Sequence[RelationVersion]) -> None:
        """Accept every table."""


def _texts(columns: Mapping[str, Column], sent: npt.NDArray[np.bool_]) -> pa.MapArray:
    """Return for each row a map of the columns that it has; null if the row has no tuple."""
    rows = len(sent)
    if not columns:
        return pa.array([[] if each else None for each in sent.tolist()], _TEXTS)
    states = np.stack([column.state for column in columns.values()], axis=1)
    present = ((states == VALUE) | (states == NULL)) & sent[:, np.newaxis]
    # A tuple that was not sent at all has no column.
    has_tuple = present.any(axis=1)
    row, number = np.nonzero(present)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(present.sum(axis=1), out=offsets[1:])
    values = pa.concat_arrays([column.to_arrow() for column in columns.values()])
    return pa.MapArray.from_arrays(
        pa.array(offsets, mask=np.append(~has_tuple, False)),
        pa.array(list(columns), pa.string()).take(pa.array(number)),
        values.take(pa.array(number * rows + row)),
    )
