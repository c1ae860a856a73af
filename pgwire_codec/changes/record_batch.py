"""A batch of changes as one Arrow struct: the table's columns, then the metadata columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, counting, shared_nulls, validity_bitmap
from pgwire_codec.changes.metadata import METADATA_FORMATS
from pgwire_codec.changes.plan import RecordPlan, Selection
from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.tables import DecodedColumns
from pgwire_codec.protocol.tags import WITH_OLD_TUPLE
from pgwire_codec.transactions.committed import Transactions

_Rows = npt.NDArray[np.int64]


class ChangedRows(Protocol):
    """A batch of changes, as far as a record batch is made of it."""

    seq: npt.NDArray[np.int64]
    transactions: Transactions
    transaction: npt.NDArray[np.int64]

    def __len__(self) -> int: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def op(self) -> npt.NDArray[np.uint8]: ...

    @property
    def lsn(self) -> npt.NDArray[np.uint64] | None: ...

    def old_tuple_plan(self, plan: RecordPlan) -> RecordPlan: ...

    def decode(self, which: str, selection: Selection) -> DecodedColumns: ...


def build(batch: ChangedRows, plan: RecordPlan) -> tuple[ArrowBuffers, RecordPlan]:
    """Return the struct, and its plan; see :meth:`pgwire_codec.ChangeBatch.to_arrow`.

    The plan is another one if ``_before`` has other columns than the relation's key.
    """
    rows = len(batch)
    decoded = batch.decode("current", plan.current)
    has_old = plan.option_before != "none" and _any_tagged(batch.op, WITH_OLD_TUPLE)
    before = batch.decode("old", plan.before) if has_old else None
    if before is not None and _may_lack_key(before, plan):
        actual = batch.old_tuple_plan(plan)
        if actual is not plan:
            plan, before = actual, batch.decode("old", actual.before)
    unchanged = [decoded.unchanged[number] for number in plan.all_numbers]
    fields = [
        *(each.array for each in decoded.columns),
        *_metadata(batch),
        _names(batch, unchanged, plan.all_names),
    ]
    names = plan.current.names
    invalid = [each.invalid for each in decoded.columns]
    if plan.before.names and before is None:
        fields.append(plan.null_before(rows))
    elif plan.before.names and before is not None:
        # The old tuple's columns that were asked for; null without an old tuple.
        arrays = [each.array for each in before.columns]
        fields.append(_struct(arrays, plan.before.names, rows, before.present))
        invalid += [each.invalid for each in before.columns]
        names = plan.invalid_names
    if plan.names_invalid:
        fields.append(_names(batch, invalid, names))
    return ArrowBuffers("+s", rows, 0, None, [], fields, plan.names), plan


def _may_lack_key(before: DecodedColumns, plan: RecordPlan) -> bool:
    """Return whether an old tuple may lack a column of the key: one has no value there."""
    if not plan.key:
        return bool(before.present.any())
    absent = len(before.present) - int(np.count_nonzero(before.present))
    return any(before.columns[place].array.null_count > absent for place in plan.key)


def _any_tagged(kind: npt.NDArray[np.uint8], tags: bytes) -> bool:
    """Return whether any tag byte is one of ``tags``."""
    sent = kind.tobytes()
    return any(tag in sent for tag in tags)


def _metadata(batch: ChangedRows) -> Iterator[ArrowBuffers]:
    """Yield the columns from ``_op`` to ``_origin``."""
    rows = len(batch)
    transactions = batch.transactions
    xid, commit_lsn, commit_time = batch.codec.transaction_columns(
        batch.transaction, transactions.xid, transactions.commit_lsn, transactions.commit_time
    )
    yield ArrowBuffers("u", rows, 0, None, [counting(rows + 1), batch.op])
    yield _numbers(xid)
    yield shared_nulls("l", rows) if batch.lsn is None else _numbers(batch.lsn.view(np.int64))
    yield _numbers(commit_lsn)
    yield _numbers(commit_time, METADATA_FORMATS["_commit_time"])
    yield _numbers(batch.seq)
    yield batch.codec.strings_at(transactions.origin, batch.transaction)


def _numbers(values: npt.NDArray[Any], form: str = "l") -> ArrowBuffers:
    return ArrowBuffers(form, len(values), 0, None, [values])


def _names(batch: ChangedRows, rows_by_name: Sequence[_Rows], names: Sequence[str]) -> ArrowBuffers:
    if not any(map(len, rows_by_name)):
        return shared_nulls("+l", len(batch))
    return batch.codec.name_lists(rows_by_name, names, len(batch))


def _struct(
    fields: list[ArrowBuffers], names: list[str], rows: int, valid: npt.NDArray[np.bool_]
) -> ArrowBuffers:
    null_count, validity = validity_bitmap(valid)
    return ArrowBuffers("+s", rows, null_count, validity, [], fields, names)
