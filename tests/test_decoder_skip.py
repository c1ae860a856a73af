"""on_error="skip": what does not decode is set aside, everything else is as it would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.changes.column import Column
from pgwire_codec.errors import ErrorCode
from tests.support.build import (
    T,
    column,
    decode,
    delete,
    insert,
    only,
    relation,
    row,
    streamed,
    transaction,
    truncate,
    update,
    wire,
)
from tests.support.corpus import capture
from tests.support.wrong import (
    CHANGE,
    T_STREAMED,
    TRUNCATED,
    UNKNOWN_TAG,
    all_rows,
    each_wrong,
    error_of,
    many,
    place,
)

# Messages.


def test_a_message_that_does_not_decode_is_set_aside() -> None:
    messages = transaction(
        T, insert(1, "1", "a", None), UNKNOWN_TAG, TRUNCATED, insert(1, "2", "b", None)
    )
    changes = decode(messages, on_error="skip")
    assert only(changes).new["id"].to_pylist() == [1, 2]
    assert [(each.message_index, each.data) for each in changes.rejected] == [
        (3, UNKNOWN_TAG),
        (4, TRUNCATED),
    ]
    assert [place(each.error) for each in changes.rejected] == [
        (ErrorCode.UNKNOWN_TAG, 3, 0),
        (ErrorCode.TRUNCATED, 4, len(TRUNCATED)),
    ]


@each_wrong
def test_what_raise_tells_first_skip_rejects_first(
    messages: list[Any], wanted: tuple[str, int, int]
) -> None:
    data = wire(messages)
    rejected = decode(data, on_error="skip").rejected
    assert place(rejected[0].error) == wanted
    for each in rejected:
        assert each.data == data[each.message_index]
        assert each.error.message_index == each.message_index
    indexes = [each.message_index for each in rejected]
    assert indexes == sorted(set(indexes))  # each but once
    assert error_of(messages) == rejected[0].error


@each_wrong
def test_good_transactions_around_whatever_is_wrong_are_decoded(
    messages: list[Any], wanted: tuple[str, int, int]
) -> None:
    good = [*range(10, 30), *range(5000, 5020)]
    stream = [T, *many(10), *messages, T, *many(5000)]
    changes = decode(stream, on_error="skip")
    found = [each for each in all_rows(changes) if each["v"] == "good"]
    assert [(each["id"], each["_commit_lsn"], each["_xid"], each["_seq"]) for each in found] == [
        (lsn, lsn, 1000 + lsn, 0) for lsn in good
    ]
    committed = changes.transactions.commit_lsn.tolist()
    assert [lsn for lsn in committed if lsn in good] == good
    alone = decode([T, *messages], on_error="skip")
    assert [(each.message_index - 60, each.data, each.error.code) for each in changes.rejected] == [
        (each.message_index, each.data, each.error.code) for each in alone.rejected
    ]


def test_changes_of_an_unknown_relation_are_set_aside_and_the_others_kept() -> None:
    messages = transaction(
        T, insert(9, "x"), insert(1, "1", "a", None), delete(9, key=row("x")), truncate(1, 9)
    )
    changes = decode(messages, on_error="skip")
    assert only(changes).op.tobytes() == b"IT"
    assert only(changes).seq.tolist() == [1, 3]  # as if nothing had been set aside
    assert [place(each.error) for each in changes.rejected] == [
        (ErrorCode.UNKNOWN_RELATION, 2, 1),
        (ErrorCode.UNKNOWN_RELATION, 4, 1),
        (ErrorCode.UNKNOWN_RELATION, 5, 10),
    ]


def test_every_change_outside_a_transaction_is_set_aside() -> None:
    stray = [insert(1, "1", "a", None), insert(1, "2", "b", None)]
    changes = decode([T, *stray, *transaction(insert(1, "3", "c", None))], on_error="skip")
    assert [place(each.error) for each in changes.rejected] == [
        (ErrorCode.PROTOCOL, 1, 0),
        (ErrorCode.PROTOCOL, 2, 0),
    ]
    assert only(changes).new["id"].to_pylist() == [3]


def test_a_damaged_message_in_a_stream_block_leaves_the_block_open() -> None:
    messages = [
        *streamed(T_STREAMED, CHANGE, b"?", truncate(1, xid=5), CHANGE, xid=5),
        pgc.StreamCommit(5, 0, 100, 110, 0),
    ]
    changes = decode(messages, on_error="skip")
    assert only(changes).op.tobytes() == b"ITI"
    assert only(changes).new["id"].to_pylist() == [5, None, 5]
    assert [each.message_index for each in changes.rejected] == [3]


def test_indexes_of_rejected_messages_count_across_chunks() -> None:
    data = wire(transaction(T, insert(1, "1", "a", None), UNKNOWN_TAG, insert(1, "x", "b", None)))
    chunked = pa.chunked_array([data[:2], data[2:4], data[4:]])
    rejected = pgc.Decoder(on_error="skip").decode(chunked).rejected
    assert [(each.message_index, each.data) for each in rejected] == [(3, data[3]), (4, data[4])]


# Values that do not decode.


def test_a_change_with_a_bad_value_is_set_aside() -> None:
    bad = insert(1, "x2", "b", None)
    data = wire(transaction(T, insert(1, "1", "a", None), bad, insert(1, "3", "c", None)))
    changes = pgc.Decoder(on_error="skip").decode(data)
    made = only(changes)
    assert made.new["id"].to_pylist() == [1, 3]
    assert made.seq.tolist() == [0, 2]
    assert made.to_arrow()["v"].to_pylist() == ["a", "c"]
    (rejected,) = changes.rejected
    assert rejected.message_index == 3
    assert rejected.data == data[3]
    assert rejected.error.code == ErrorCode.BAD_VALUE
    assert rejected.error.context == "column id (int4), row id='x2'"
    assert data[3][rejected.error.offset :].startswith(b"x2")


@pytest.mark.parametrize(
    "make",
    [
        lambda good, bad: update(1, row(bad, "b", None)),
        lambda good, bad: update(1, row(good, "b", None), key=row(bad, None, None)),
        lambda good, bad: update(1, row(good, "b", None), old=row(bad, "b", None)),
        lambda good, bad: delete(1, key=row(bad, None, None)),
        lambda good, bad: delete(1, old=row(bad, "b", None)),
    ],
    ids=["update", "update's key", "update's old", "delete's key", "delete's old"],
)
def test_a_bad_value_anywhere_in_the_change(make: Callable[[str, str], Any]) -> None:
    messages = transaction(T, insert(1, "1", "a", None), make("2", "bad!"))
    (rejected,) = decode(messages, on_error="skip").rejected
    data = wire(messages)[3]
    assert rejected.data == data
    assert data[rejected.error.offset :].startswith(b"bad!")
    # The same error is raised, when the value is asked for, without "skip".
    made = only(decode(messages))
    with pytest.raises(pgc.DecodeError) as raised:
        made.to_arrow()
    assert raised.value == rejected.error


def test_what_is_left_of_a_batch_is_of_its_transactions() -> None:
    first = transaction(T, insert(1, "x", "a", None), insert(1, "1", "b", None), xid=7)
    second = transaction(insert(1, "2", "c", None), insert(1, "y", "d", None), xid=8, lsn=200)
    made = only(decode([*first, *second], lsn=range(9), on_error="skip"))
    assert made.new["v"].to_pylist() == ["b", "c"]
    assert made.xid.tolist() == [7, 8]
    assert made.commit_lsn.tolist() == [100, 200]
    assert made.seq.tolist() == [1, 0]
    assert made.lsn is not None
    assert made.lsn.tolist() == [3, 6]


def test_every_bad_value_of_a_column_is_set_aside() -> None:
    values = ["x", "1", "y", "z", "2"]
    changes = decode(
        transaction(T, *(insert(1, each, each, None) for each in values)), on_error="skip"
    )
    assert [each.message_index for each in changes.rejected] == [2, 4, 5]
    assert [each.data[each.error.offset :][:1] for each in changes.rejected] == [b"x", b"y", b"z"]
    assert only(changes).new["v"].to_pylist() == ["1", "2"]


@given(runs=st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2, 3, 63, 64, 65, 300]))))
def test_bad_values_far_apart_and_close_together(runs: list[tuple[bool, int]]) -> None:
    bad = [is_bad for is_bad, length in runs for _ in range(length)]
    rows = [insert(1, "x" if each else str(row), "v", None) for row, each in enumerate(bad)]
    changes = decode(transaction(T, *rows), on_error="skip")
    assert [each.message_index - 2 for each in changes.rejected] == [
        row for row, each in enumerate(bad) if each
    ]
    kept = [key for batch in changes for key in batch.new["id"].to_pylist()]
    assert kept == [row for row, each in enumerate(bad) if not each]


@pytest.mark.parametrize("every", [1, 2, 100])
def test_bad_values_cost_the_same_however_many_rows_follow(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = [0]
    values = Column._values

    def counted(column: Column, start: int, stop: int) -> Any:
        decoded[0] += min(stop, len(column)) - start
        return values(column, start, stop)

    monkeypatch.setattr(Column, "_values", counted)
    sent = ["x" if row % every == 0 else "1" for row in range(5_000)]
    changes = decode(transaction(T, *(insert(1, v, v, None) for v in sent)), on_error="skip")
    assert len(changes.rejected) == len(range(0, 5_000, every))
    # Each of the six columns once, the rows of one of them some times more, and 64 for a bad one.
    assert decoded[0] <= 10 * 5_000 + 64 * len(changes.rejected)


def test_a_change_with_two_bad_values_is_set_aside_once() -> None:
    table = relation(1, column("a", "int4", key=True), column("b", "bool"))
    messages = transaction(table, insert(1, "x", "y"), insert(1, "1", "t"), insert(1, "2", "y"))
    changes = decode(messages, on_error="skip")
    assert [(each.message_index, each.error.context) for each in changes.rejected] == [
        (2, "column a (int4), row a='x'"),
        (4, "column b (bool), row a='2'"),
    ]
    assert only(changes).new["b"].to_pylist() == [True]


def test_a_batch_of_which_nothing_is_left_is_not_given() -> None:
    changes = decode(transaction(T, insert(1, "x", "y", None)), on_error="skip")
    assert len(changes.rejected) == 1
    assert changes.batches == []
    assert changes.transactions.changes.tolist() == [1]  # as the server counts


def test_a_value_that_the_type_cannot_hold_is_set_aside_only_where_it_would_raise() -> None:
    table = relation(1, column("d", "date"))
    messages = transaction(table, insert(1, "infinity"), insert(1, "2024-01-01"))
    changes = decode(messages, on_error="skip")
    assert [each.error.code for each in changes.rejected] == [ErrorCode.UNREPRESENTABLE]
    assert len(only(changes)) == 1
    changes = decode(messages, on_error="skip", unrepresentable="null")
    assert changes.rejected == []
    assert only(changes).new["d"].state.tolist() == [1, 1]
    assert only(changes).to_arrow()["_invalid"].to_pylist() == [["d"], None]


def test_a_bad_value_of_a_rolled_back_change_does_not_matter() -> None:
    messages = [
        *streamed(T_STREAMED, insert(1, "bad", "b", None, xid=6), xid=5),
        pgc.StreamAbort(5, 6, None, None),
        pgc.StreamCommit(5, 0, 100, 110, 0),
    ]
    changes = decode(messages, on_error="skip")
    assert changes.rejected == []
    assert len(changes) == 0


def test_an_index_of_a_change_that_came_in_an_earlier_call() -> None:
    """Its message is in the error; its index is that in the call that it came in."""
    data = wire(transaction(T, insert(1, "bad", "b", None)))
    decoder = pgc.Decoder(on_error="skip")
    assert decoder.decode(data[:3]).rejected == []
    (rejected,) = decoder.decode(data[3:]).rejected
    assert (rejected.message_index, rejected.data) == (2, data[2])


# Captures.


@pytest.mark.parametrize("name", ["dml.pg18.v1-text", "streams.pg17.v4-parallel-2pc"])
def test_damage_in_a_capture_costs_no_more_than_the_damaged_changes(name: str) -> None:
    """Damaged inserts are set aside; all else is as in the undamaged stream."""
    data = list(capture(name).messages)
    whole = pgc.Decoder(types="text").decode(data)
    inserts = [i for i, each in enumerate(data) if each[:1] == b"I"]
    damaged = set(np.random.default_rng(1).choice(inserts, 20, replace=False).tolist())
    broken = [each[:-1] if i in damaged else each for i, each in enumerate(data)]
    changes = pgc.Decoder(types="text", on_error="skip").decode(broken)
    assert [each.message_index for each in changes.rejected] == sorted(damaged)
    assert changes.transactions.xid.tolist() == whole.transactions.xid.tolist()

    def kept(found: pgc.Changes) -> dict[int, tuple[str, int]]:
        return {
            batch.message_index(number): (batch.relation.name, int(batch.xid[number]))
            for batch in found
            for number in range(len(batch))
        }

    undamaged = {i: each for i, each in kept(whole).items() if i not in damaged}
    assert kept(changes) == undamaged
    with pytest.raises(pgc.DecodeError) as raised:
        pgc.Decoder().decode(broken)
    assert raised.value.message_index == min(damaged)
