"""ChangeBatch, Changes and Transactions: what is known of each change."""

from __future__ import annotations

import datetime
import gc
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from tests.support.build import (
    T,
    batch,
    column,
    decode,
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


def test_metadata_of_changes() -> None:
    made = batch(
        insert(1, "1", None, None),
        update(1, row("1", "a", None)),
        delete(1, key=row("1", None, None)),
        truncate(1),
    )
    assert made.relation == T
    assert len(made) == 4
    assert made.op.tobytes() == b"IUDT"
    assert made.xid.tolist() == [7] * 4
    assert made.commit_lsn.tolist() == [100] * 4
    assert made.seq.tolist() == [0, 1, 2, 3]
    assert made.origin.tolist() == [None] * 4
    assert made.lsn is None
    arrays = (made.op, made.xid, made.commit_lsn, made.seq, made.commit_time)
    assert [str(each.dtype) for each in arrays] == [
        "uint8",
        "uint32",
        "uint64",
        "int64",
        "datetime64[us]",
    ]


def test_commit_time_counts_from_2000() -> None:
    made = only(decode(transaction(T, insert(1, "1", None, None), time=1_500_000)))
    assert made.commit_time.tolist() == [datetime.datetime(2000, 1, 1, 0, 0, 1, 500_000)]


def test_a_commit_time_that_numpy_cannot_count_is_its_latest() -> None:
    """PostgreSQL's largest timestamps are past what int64 microseconds since 1970 can hold."""
    changes = decode(transaction(T, insert(1, "1", None, None), time=2**63 - 1))
    latest = np.array([2**63 - 1]).view("datetime64[us]")
    assert only(changes).commit_time == latest
    assert changes.transactions.commit_time == latest


def test_lsns_are_those_of_the_messages() -> None:
    messages = transaction(T, insert(1, "1", None, None), truncate(1))
    made = only(decode(messages, lsn=[10, 0, 11, 12, 13]))
    assert made.lsn is not None
    assert made.lsn.tolist() == [11, 12]
    assert made.lsn.dtype == np.uint64


def test_origin_is_the_transaction_s() -> None:
    there = transaction(pgc.Origin(5, "other"), T, insert(1, "1", None, None))
    here = transaction(insert(1, "2", None, None), lsn=200)
    changes = decode(there + here)
    assert only(changes).origin.tolist() == ["other", None]
    assert changes.transactions.origin.tolist() == ["other", None]


def test_a_truncate_is_a_row_of_each_table() -> None:
    second = relation(2, column("id", "int4", key=True), name="u")
    changes = decode(transaction(T, second, truncate(2, 1), insert(1, "1", None, None)))
    by_name = {each.relation.name: each for each in changes}
    assert by_name["u"].seq.tolist() == [0]
    assert by_name["t"].seq.tolist() == [1, 2]
    assert by_name["t"].op.tobytes() == b"TI"
    assert changes.transactions.changes.tolist() == [3]


def test_transactions_are_arrays() -> None:
    first = transaction(T, insert(1, "1", None, None), xid=7, lsn=100, time=5)
    empty = transaction(xid=8, lsn=200)
    told = decode(first + empty).transactions
    assert len(told) == 2
    assert told.xid.tolist() == [7, 8]
    assert told.commit_lsn.tolist() == [100, 200]
    assert told.end_lsn.tolist() == [110, 210]
    assert told.commit_time.astype(np.int64).tolist() == [946_684_800_000_005, 946_684_800_000_000]
    assert told.gid.tolist() == [None, None]
    assert told.changes.tolist() == [1, 0]


def test_changes_are_their_batches() -> None:
    changes = decode(transaction(T, insert(1, "1", None, None)))
    assert list(changes) == changes.batches
    assert len(changes) == 1
    assert len(decode([])) == 0


def test_a_batch_is_of_one_relation_version_and_one_input() -> None:
    wider = relation(1, *T.columns, column("added"))
    messages = wire(
        transaction(T, insert(1, "1", None, None), T, insert(1, "2", None, None))
        + transaction(wider, insert(1, "3", None, None, "x"), lsn=200)
    )
    found = pgc.Decoder().decode(messages).batches
    assert [each.current["id"].to_pylist() for each in found] == [[1, 2], [3]]
    assert [list(each.new) for each in found] == [["id", "v", "note"], ["id", "v", "note", "added"]]
    chunked = pa.chunked_array([messages[:3], messages[3:]])
    found = pgc.Decoder().decode(chunked).batches
    assert [each.current["id"].to_pylist() for each in found] == [[1], [2], [3]]


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(1, 3), max_size=4), max_size=30))
def test_plain_transactions_in_any_number(transactions: list[list[int]]) -> None:
    """Each transaction's changes come in order, under its own xid and LSN, whole or bit by bit."""
    tables = [relation(oid, column("v", "int8"), name=f"t{oid}") for oid in (1, 2, 3)]
    messages: list[Any] = list(tables)
    wanted: dict[str, list[tuple[int, int, int, int]]] = {}
    for number, oids in enumerate(transactions):
        lsn, xid = 100 + 20 * number, 7 + number
        changes = [insert(oid, str(seq)) for seq, oid in enumerate(oids)]
        messages += transaction(*changes, xid=xid, lsn=lsn)
        for seq, oid in enumerate(oids):
            wanted.setdefault(f"t{oid}", []).append((lsn, seq, xid, seq))

    def found(parts: list[list[bytes]]) -> dict[str, list[tuple[int, int, int, int]]]:
        decoder = pgc.Decoder()
        rows: dict[str, list[tuple[int, int, int, int]]] = {}
        for part in parts:
            for each in decoder.decode(part):
                rows.setdefault(each.relation.name, []).extend(
                    zip(
                        each.commit_lsn.tolist(),
                        each.seq.tolist(),
                        each.xid.tolist(),
                        each.new["v"].to_pylist(),
                        strict=True,
                    )
                )
        return rows

    data = wire(messages)
    assert found([data]) == wanted
    assert found([[each] for each in data]) == wanted


def test_a_relation_without_columns() -> None:
    made = batch(insert(1), update(1, row()), truncate(1), relation=relation(1))
    assert made.op.tobytes() == b"IUT"
    assert dict(made.new) == dict(made.old) == {}


def test_reprs_name_the_table_and_the_column() -> None:
    made = batch(insert(1, "1", "a", None))
    assert repr(made) == "<ChangeBatch public.t: 1 row (1 insert), columns id, v, note>"
    assert repr(made.new["id"]) == "<Column id int4, 1 rows>"


def test_schema_of_pg_catalog_is_empty() -> None:
    made = batch(insert(1), relation=relation(1, name="mine", namespace=""))
    assert repr(made) == "<ChangeBatch mine: 1 row (1 insert), columns >"


def test_a_batch_is_freed_with_the_last_reference_to_it() -> None:
    """Its memory does not last until Python looks for cycles, which can be minutes later."""
    gc.disable()
    try:
        changes = decode(transaction(T, update(1, row("1", "a", None), old=row("1", "b", None))))
        made = only(changes)
        for columns in (made.old, made.new, made.current):
            assert all(len(each.decode().invalid) == 0 for each in columns.values())
        assert made.errors() == {}
        assert made.to_arrow().num_rows == len(made.to_pylist()) == 1
        left = weakref.ref(made)
        del changes, made, columns
        assert left() is None
    finally:
        gc.enable()
