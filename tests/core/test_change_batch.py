"""change_batch: which batches it builds, what it refuses, and who owns the memory.

Every differential test of a decoder compares the record batches with the reference's.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.record_batch import build
from tests.support.build import (
    T,
    batch,
    column,
    delete,
    insert,
    only,
    relation,
    row,
    transaction,
    truncate,
    update,
    wire,
)
from tests.support.implementations import implementation

pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")
core = implementation("cython")

TYPES = (
    "bool",
    "int2",
    "int8",
    "float8",
    "numeric",
    "text",
    "bytea",
    "date",
    "timestamptz",
    "uuid",
)
VALUES = ("t", "-3", "4", "1.5", "1.50", "é", "\\x00ff", "2026-11-22", "2026-11-22 08:00:00+00")
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
WIDE = relation(1, *(column(name, name, key=name == "int2") for name in TYPES))
ROW = (*VALUES, UUID)


def made(batch: ChangeBatch, **changed: Any) -> pa.RecordBatch | None:
    """Result of change_batch for a batch."""
    options = batch._decoding.options
    arguments = {
        "source": batch._source,
        "rows": batch._rows,
        "seq": batch.seq,
        "transactions": batch.transactions,
        "transaction": batch.transaction,
        "plan": batch.record_plan(),
        "unrepresentable": options.unrepresentable,
        "threads": options.threads,
    }
    return core.change_batch(**(arguments | changed))


def ordinary(**options: Any) -> ChangeBatch:
    """Changes of all kinds, to columns of many types."""
    nulls = [None] * len(TYPES)
    key = [None, "-3", *nulls[2:]]
    return batch(
        insert(1, *ROW),
        insert(1, *nulls),
        update(1, row(*ROW[:5], ..., *ROW[6:])),
        update(1, row(*ROW), key=row(*key)),
        delete(1, key=row(*key)),
        truncate(1),
        relation=WIDE,
        **options,
    )


@pytest.mark.parametrize("before", ["key", "full", "none"])
@pytest.mark.parametrize("unrepresentable", ["raise", "null", "clamp"])
def test_changes_of_all_kinds_are_ordinary(before: str, unrepresentable: str) -> None:
    changes = ordinary(before=before, unrepresentable=unrepresentable)
    records = made(changes)
    assert records is not None
    records.validate(full=True)
    struct, plan = build(changes, changes.record_plan())
    expected = changes.codec.record_batch(struct, plan.schema(struct))
    assert records.schema == expected.schema
    assert records.equals(expected)


def test_only_some_columns() -> None:
    changes = ordinary()
    records = made(changes, plan=changes.record_plan(["uuid", "bool"]))
    assert records is not None
    assert records.schema.names[:3] == ["uuid", "bool", "_op"]
    assert records.equals(changes.to_arrow(["uuid", "bool"]))


def test_lsns() -> None:
    messages = wire(transaction(T, insert(1, "1", "a", "b"), insert(1, "2", "a", "b")))
    changes = only(pgc.Decoder().decode(messages, np.arange(len(messages), dtype=np.uint64)))
    records = made(changes)
    assert records is not None
    assert records.column("_lsn").to_pylist() == [2, 3]


@pytest.mark.parametrize(
    ("kind", "value", "options"),
    [
        ("_text", "{a}", {}),
        ("text", "a", {"strings": "view"}),
        ("date", "infinity", {"unrepresentable": "null"}),
        ("date", "infinity", {"unrepresentable": "clamp"}),
        ("date", "infinity", {"unrepresentable": "raise"}),
        ("int4", "x", {}),
        (999_999, "x", {}),
    ],
)
def test_what_is_built_from_columns(kind: str, value: str, options: Any) -> None:
    table = relation(1, column("id", "int4", key=True), column("v", kind))
    changes = batch(insert(1, "1", value), relation=table, **options)
    assert made(changes) is None


ROWS = 20_000
NULLS = row(*[None] * len(TYPES))
KEY = row(None, "-3", *[None] * (len(TYPES) - 2))
INSERTED = insert(1, *ROW)


def in_shares(where: range, threads: int, change: pgc.Update | None = None) -> ChangeBatch:
    """Inserts, but for the changes at some places: updates with old keys, nulls, unchanged."""
    others = [
        update(1, row(*ROW), key=KEY),
        update(1, NULLS),
        update(1, row(*ROW[:5], ..., *ROW[6:])),
        update(1, row(*ROW[:5], "longer, éé", *ROW[6:])),
    ]
    several = [INSERTED] * ROWS
    for number in where:
        several[number] = change or others[number % len(others)]
    return batch(*several, relation=WIDE, threads=threads)


@pytest.mark.parametrize("threads", [2, 3, 100])
@pytest.mark.parametrize(
    "where", [range(0, ROWS, 7), range(ROWS - 4, ROWS), range(4), range(0)], ids=str
)
def test_shares_of_the_rows(where: range, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgwire_codec._core.shares._SMALLEST", 1)
    alone, together = made(in_shares(where, 1)), made(in_shares(where, threads))
    assert alone is not None
    assert together is not None
    together.validate(full=True)
    assert together.equals(alone)


@pytest.mark.parametrize("place", [0, 5_000, ROWS - 1])
def test_a_share_with_a_value_that_is_not_ordinary(place: int) -> None:
    wrong = update(1, row("maybe", *ROW[1:]))
    changes = in_shares(range(place, place + 1), 2, wrong)
    assert made(changes) is None
    with pytest.raises(pgc.DecodeError, match="column bool"):
        changes.to_arrow()


def test_no_rows() -> None:
    changes = batch(insert(1, "1", "a", "b"))
    nothing = np.zeros(0, np.int64)
    assert made(changes, rows=nothing, seq=nothing, transaction=nothing) is None


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_places_that_are_not_there(wrong: int) -> None:
    changes = batch(insert(1, "1", "a", "b"))
    with pytest.raises(IndexError, match=f"message {wrong} of"):
        made(changes, rows=np.array([wrong]))
    with pytest.raises(IndexError, match=f"transaction {wrong} of 1"):
        made(changes, transaction=np.array([wrong]))
    with pytest.raises(ValueError, match="1 rows, but 2 numbers"):
        made(changes, seq=np.arange(2))
    with pytest.raises(ValueError, match="1 LSNs of 4 messages"):
        made(changes, source=replace(changes._source, lsn=np.zeros(1, np.uint64)))


def test_columns_outlive_their_batch_in_any_order() -> None:
    records = made(ordinary())
    assert records is not None
    expected = records.to_pylist()
    columns = [*records.columns]
    fields = columns[records.schema.get_field_index("_before")].flatten()
    names = records.schema.names
    del records
    gc.collect()
    for number in reversed(range(len(columns))):
        assert columns.pop().to_pylist() == [each[names[number]] for each in expected]
        gc.collect(0)
    assert [each.to_pylist() for each in fields] == [[None] * 3 + [-3, -3, None]]


def test_a_damaged_message_is_left_to_the_decoder_of_columns() -> None:
    changes = batch(insert(1, "1", "a", "b"))
    source = changes._source
    body = source.body.copy()
    body[2] += 1
    assert made(changes, source=replace(source, body=body)) is None
