"""A batch of changes as one Arrow struct: the table's columns, then the metadata columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, validity_bitmap
from pgwire_codec.changes.metadata import METADATA_COLUMNS, free_name
from pgwire_codec.codec.tables import DecodedColumns
from pgwire_codec.transactions.carry import RelationVersion


class ChangedRows(Protocol):
    """A batch of changes, as far as a record batch is made of it."""

    version: RelationVersion
    op: npt.NDArray[np.uint8]
    seq: npt.NDArray[np.int64]
    lsn: npt.NDArray[np.uint64] | None

    def __len__(self) -> int: ...

    @property
    def xid(self) -> npt.NDArray[np.uint32]: ...

    @property
    def commit_lsn(self) -> npt.NDArray[np.uint64]: ...

    @property
    def commit_time(self) -> npt.NDArray[np.datetime64]: ...

    @property
    def origin(self) -> npt.NDArray[np.object_]: ...

    @property
    def has_origin(self) -> bool: ...

    @property
    def before_columns(self) -> list[str]: ...

    @property
    def names_invalid(self) -> bool: ...

    def decode(self, which: str, names: Sequence[str]) -> DecodedColumns: ...


def build(batch: ChangedRows, columns: Sequence[str] | None) -> ArrowBuffers:
    """Return the struct; see :meth:`pgwire_codec.ChangeBatch.to_arrow`.

    Raises ``KeyError`` for a column that the relation does not have.
    """
    known = [column.name for column in batch.version.relation.columns]
    if isinstance(columns, str):
        raise TypeError("columns must be a sequence of names, not a str")
    wanted = known if columns is None else list(columns)
    for name in wanted:
        if name not in known:
            raise KeyError(f"{batch.version.qualified_name} has no column {name!r}: it has {known}")
    decoded = batch.decode("current", wanted)
    values = dict(zip(wanted, decoded.columns, strict=True))
    fields = {name: each.array for name, each in values.items()}
    metadata = _metadata(
        batch,
        unchanged=dict(zip(known, decoded.unchanged, strict=True)),
        invalid={name: each.invalid for name, each in values.items()},
    )
    for name in METADATA_COLUMNS:
        if name in metadata:
            fields[free_name(name, known)] = metadata[name]
    return _struct(fields, len(batch), None)


def _metadata(
    batch: ChangedRows,
    unchanged: Mapping[str, npt.NDArray[np.int64]],
    invalid: Mapping[str, npt.NDArray[np.int64]],
) -> dict[str, ArrowBuffers]:
    rows = len(batch)
    lsn = np.zeros(rows, np.uint64) if batch.lsn is None else batch.lsn
    fields = {
        "_op": ArrowBuffers("u", rows, 0, None, [np.arange(rows + 1, dtype=np.int32), batch.op]),
        "_xid": _numbers("l", batch.xid),
        "_lsn": _numbers("l", lsn, None if batch.lsn is not None else np.zeros(rows, np.bool_)),
        "_commit_lsn": _numbers("l", batch.commit_lsn),
        "_commit_time": _numbers("tsu:UTC", batch.commit_time),
        "_seq": _numbers("l", batch.seq),
        "_origin": _strings(batch.origin.tolist()) if batch.has_origin else _nothing(rows),
        "_unchanged": _names(unchanged, rows),
    }
    if batch.before_columns:
        # The old tuple's columns that were asked for; null without an old tuple.
        before = batch.decode("old", batch.before_columns)
        values = dict(zip(batch.before_columns, before.columns, strict=True))
        arrays = {name: each.array for name, each in values.items()}
        fields["_before"] = _struct(arrays, rows, before.present)
        invalid = {**invalid, **{f"_before.{name}": each.invalid for name, each in values.items()}}
    if batch.names_invalid:
        fields["_invalid"] = _names(invalid, rows)
    return fields


def _struct(
    fields: Mapping[str, ArrowBuffers], rows: int, valid: npt.NDArray[np.bool_] | None
) -> ArrowBuffers:
    null_count, validity = (0, None) if valid is None else validity_bitmap(valid)
    return ArrowBuffers(
        "+s", rows, null_count, validity, [], children=list(fields.values()), names=list(fields)
    )


def _numbers(
    form: str, values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None
) -> ArrowBuffers:
    """Return integers or times as 64-bit values."""
    null_count, validity = (0, None) if valid is None else validity_bitmap(valid)
    data = values.view(np.int64) if values.dtype.itemsize == 8 else values.astype(np.int64)
    return ArrowBuffers(form, len(values), null_count, validity, [data])


def _strings(values: Sequence[str | None]) -> ArrowBuffers:
    encoded = [b"" if value is None else value.encode() for value in values]
    null_count, validity = validity_bitmap([value is not None for value in values])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = _offsets(np.array([len(value) for value in encoded], np.int64))
    return ArrowBuffers("u", len(values), null_count, validity, [offsets, data])


def _nothing(rows: int) -> ArrowBuffers:
    """Return strings that are all null."""
    null_count, validity = validity_bitmap(np.zeros(rows, np.bool_))
    offsets, data = np.zeros(rows + 1, np.int32), np.zeros(0, np.uint8)
    return ArrowBuffers("u", rows, null_count, validity, [offsets, data])


def _names(rows_by_name: Mapping[str, npt.NDArray[np.int64]], rows: int) -> ArrowBuffers:
    """Return, for each row, the list of the names whose rows it is among; null for none."""
    counts = np.zeros(rows, np.int64)
    for which in rows_by_name.values():
        counts[which] += 1
    pairs = [(row, name) for name, which in rows_by_name.items() for row in which.tolist()]
    pairs.sort(key=lambda pair: pair[0])  # stable: names stay in the table's order
    null_count, validity = validity_bitmap(counts > 0)
    return ArrowBuffers(
        "+l",
        rows,
        null_count,
        validity,
        [_offsets(counts)],
        children=[_strings([name for _, name in pairs])],
    )


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
