"""A decoder given wrong messages: its errors, and how it goes on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from tests.support.build import (
    T,
    decode,
    insert,
    only,
    relation,
    streamed,
    transaction,
    wire,
)
from tests.support.wrong import (
    CHANGE,
    T_STREAMED,
    UNKNOWN_TAG,
    all_rows,
    each_wrong,
    error_of,
    many,
    place,
)


@each_wrong
def test_code_index_and_offset(messages: list[Any], wanted: tuple[str, int, int]) -> None:
    assert place(error_of(messages)) == wanted


@each_wrong
def test_index_counts_across_chunks(messages: list[Any], wanted: tuple[str, int, int]) -> None:
    data = wire(messages)
    for cut in range(len(data) + 1):
        chunked = pa.chunked_array([data[:cut], [], data[cut:]], pa.binary())
        with pytest.raises(pgc.DecodeError) as raised:
            pgc.Decoder().decode(chunked)
        assert place(raised.value) == wanted


@each_wrong
def test_the_same_error_wherever_the_stream_is_cut(
    messages: list[Any], wanted: tuple[str, int, int]
) -> None:
    code, index, offset = wanted
    data = wire(messages)
    for cut in range(index + 1):
        decoder = pgc.Decoder()
        decoder.decode(data[:cut])
        with pytest.raises(pgc.DecodeError) as raised:
            decoder.decode(data[cut:])
        assert place(raised.value) == (code, index - cut, offset)


@each_wrong
def test_the_same_error_among_many_transactions(
    messages: list[Any], wanted: tuple[str, int, int]
) -> None:
    code, index, offset = wanted
    before = [T, *many(10)]
    assert place(error_of([*before, *messages, *many(5000)])) == (code, len(before) + index, offset)


def test_an_unknown_relation_is_named() -> None:
    assert "OID 16999" in str(error_of(transaction(insert(16999, "1"))))


def test_what_is_allowed_outside_a_transaction() -> None:
    logical = pgc.Message(None, 0, 5, "p", b"x")
    decoder = pgc.Decoder()
    changes = decoder.decode(wire([pgc.Type(None, 9, "", "int4"), T, logical]))
    assert changes.logical_messages == [logical]
    assert decoder.relations == {1: T}


def test_an_abort_of_what_was_never_streamed_is_no_error() -> None:
    """PostgreSQL 18 sends one unasked."""
    changes = decode(
        [pgc.StreamAbort(7, 8, None, None), *transaction(T, insert(1, "1", "a", None))]
    )
    assert len(only(changes)) == 1


# A decoder after an error.


@each_wrong
@pytest.mark.parametrize("atomic", [True, False])
def test_an_error_changes_nothing(
    messages: list[Any], wanted: tuple[str, int, int], atomic: bool
) -> None:
    """The good messages are decoded as if the wrong batch had never been passed."""
    before = wire(
        [*transaction(T, insert(1, "1", "a", None), lsn=50), *streamed(T_STREAMED, CHANGE, xid=5)]
    )
    after = wire([*streamed(CHANGE, xid=5, first=False), pgc.StreamCommit(5, 0, 900, 910, 0)])
    good, bad = pgc.Decoder(atomic=atomic), pgc.Decoder(atomic=atomic)
    good.decode(before)
    bad.decode(before)
    with pytest.raises(pgc.DecodeError):
        bad.decode(wire(messages))
    assert bad.pending == good.pending == [5]
    assert bad.relations == good.relations
    assert bad.carry == good.carry
    found = all_rows(bad.decode(after))
    assert found == all_rows(good.decode(after))
    assert len(found) == 2


def test_the_corrected_batch_can_be_given_again() -> None:
    data = wire(transaction(T, insert(1, "1", "a", None), insert(1, "2", "b", None)))
    decoder = pgc.Decoder()
    decoder.decode(data[:2])
    with pytest.raises(pgc.DecodeError):
        decoder.decode([data[2], data[3][:-1], data[4]])
    assert decoder.pending == [7]
    changes = decoder.decode(data[2:])
    assert only(changes).new["id"].to_pylist() == [1, 2]
    assert only(changes).seq.tolist() == [0, 1]


def test_an_error_in_the_middle_of_a_rollback_undoes_nothing() -> None:
    part = wire([*streamed(relation(1, *T.columns, xid=7), insert(1, "1", "a", None, xid=8))])
    decoder = pgc.Decoder()
    decoder.decode(part)
    with pytest.raises(pgc.DecodeError):
        decoder.decode(wire([pgc.StreamAbort(7, 8, None, None), UNKNOWN_TAG]))
    changes = decoder.decode(wire([pgc.StreamCommit(7, 0, 100, 110, 0)]))
    assert only(changes).new["v"].to_pylist() == ["a"]
