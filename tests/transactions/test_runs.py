"""Runs and stream blocks taken at once, against the same followed message by message.

A decoder without runs is one whose codec finds none. Everything that the two decoders show must be
the same: batches, transactions, warnings, rejected messages, errors, the carry, and what is held.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.runs import Begun, PlainRun, RunPieces, Runs, StreamBlock
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.decoder import BaseDecoder
from pgwire_codec.transactions.summary import Summariser
from tests.support import corpus
from tests.support.build import (
    T,
    column,
    delete,
    insert,
    relation,
    row,
    streamed,
    transaction,
    truncate,
    update,
    wire,
)
from tests.support.differential import differential, exact, observed, plain
from tests.support.examples import examples, in_turn
from tests.support.implementations import Implementation, implementation


@cache
def without_runs(codec: Any) -> Any:
    """The codec, which finds no run and no block."""
    single = ModuleType(codec.__name__)
    for name in codec.__all__:
        setattr(single, name, getattr(codec, name))

    def none(messages: Messages, table: MessageTable, begun: Begun | None = None) -> Runs:
        found: Runs = codec.runs(messages, table, begun)
        return found._replace(segments=[])

    single.runs = none  # type: ignore[attr-defined]
    return single


class Pair:
    """A decoder that takes runs at once, and one that does not; both are given the same."""

    def __init__(self, codec: Codec, **options: Any) -> None:
        self.ours, self.theirs = (
            type("Decoder", (BaseDecoder,), {"codec": each})(**options)
            for each in (codec, without_runs(codec))
        )

    def decode(self, messages: Sequence[bytes], lsn: Any = None) -> bool:
        """Decode by both, and compare; return whether they raised an error."""
        seen = [[*observed(each, messages, lsn), *held(each)] for each in (self.ours, self.theirs)]
        for ours, theirs in zip(*seen, strict=True):
            assert ours == theirs
        return seen[0][0][0] == "raised"


def held(decoder: Any) -> Iterator[Any]:
    """Changes that a decoder holds of its open transactions, one by one."""
    for key, each in sorted(decoder._session.held.items(), key=repr):
        changes = [
            (
                chunk.changes.version(at),
                chunk.changes.source.messages[int(chunk.changes.rows[at])],
                chunk.seq + at - chunk.start,
            )
            for chunk in each.chunks
            for at in range(chunk.start, chunk.stop)
        ]
        yield key, changes, each.messages


def calls(messages: Sequence[Any], chosen: random.Random, most: int = 12) -> Iterator[slice]:
    """Random cuts of the messages into calls, small and large."""
    start = 0
    while start < len(messages):
        stop = start + chosen.choice([1, 3, most, 10 * most, 100 * most])
        yield slice(start, stop)
        start = stop


@pytest.mark.differential
@pytest.mark.parametrize(
    "capture",
    list(in_turn(corpus.captures(), [()], quick=corpus.oldest_and_newest().__contains__)),
    ids=str,
)
def test_captures_at_random_cuts(capture: corpus.Capture) -> None:
    chosen = random.Random(capture.name)
    options = {
        "on_error": chosen.choice(["raise", "skip"]),
        "atomic": chosen.random() < 0.7,
        "types": "text",
        "before": "none",
    }
    pair = Pair(implementation("cython").functions, **options)
    several = capture.messages[:1500]
    if chosen.random() < 0.3:  # a new session, which sends from an earlier position on
        back = chosen.randrange(len(several))
        several = [*several[: chosen.randrange(back, len(several))], *several]
    for cut in calls(several, chosen):
        pair.decode(several[cut])


@pytest.mark.differential
@pytest.mark.parametrize("capture", corpus.oldest_and_newest(), ids=str)
def test_what_is_found_in_captures(capture: corpus.Capture) -> None:
    for streaming in (False, True):
        messages = exact(capture.messages[:2000])
        table = implementation("python").scan(messages, streaming=streaming, skip=True)
        differential("runs", messages, table)


# Streams that no server sent.

_WIDE = relation(1, column("id", "int4", key=True), column("v"), column("note"), column("more"))
_OTHER = relation(2, column("id", "int4", key=True), name="other")


def _declared(xid: int | None) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.sampled_from([T, T, _WIDE, _OTHER]).map(lambda each: replace(each, xid=xid)),
        st.builds(pgc.Type, st.just(xid), st.just(99), st.just("public"), st.sampled_from("ab")),
    )


def _logical(xid: int | None) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda flags, text: pgc.Message(xid, flags, 5, "m", text),
        st.integers(0, 1),
        st.sampled_from([b"a", b"b"]),
    )


def _content(xid: int | None) -> st.SearchStrategy[Any]:
    """A message inside a plain transaction, or inside a stream block."""
    oid = st.sampled_from([1, 1, 1, 2, 3])
    return st.one_of(
        oid.map(lambda each: insert(each, "1", "a", None, xid=xid)),
        oid.map(lambda each: insert(each, "1", xid=xid)),
        oid.map(lambda each: update(each, row("2", ..., None), xid=xid)),
        oid.map(lambda each: delete(each, key=row("3", None, None), xid=xid)),
        st.lists(oid, max_size=3).map(lambda each: truncate(*each, xid=xid)),
        _declared(xid),
        _logical(xid),
        st.builds(pgc.Origin, st.just(7), st.sampled_from(["here", "there"])),
    )


@st.composite
def _plain(draw: st.DrawFn) -> list[Any]:
    lsn = draw(st.integers(1, 60))
    made = transaction(*draw(st.lists(_content(None), max_size=5)), xid=lsn, lsn=lsn)
    if draw(st.integers(0, 9)) == 0:
        made[-1] = pgc.Commit(0, lsn + 1, lsn + 2, 2**63 - 1)
    return made


@st.composite
def _several_plain(draw: st.DrawFn) -> list[Any]:
    """Plain transactions in ascending order, with what may be between them."""
    made: list[Any] = []
    lsn = draw(st.integers(1, 40))
    for _ in range(draw(st.integers(1, 6))):
        made += transaction(*draw(st.lists(_content(None), max_size=4)), xid=lsn, lsn=lsn)
        made += draw(st.lists(_declared(None) | _logical(None), max_size=1))
        lsn += draw(st.integers(1, 5))
    return made


@st.composite
def _block(draw: st.DrawFn) -> list[Any]:
    xid = draw(st.sampled_from([70, 80]))
    inside = st.sampled_from([xid, xid + 1, xid + 2, 0]).flatmap(_content)
    return streamed(*draw(st.lists(inside, max_size=8)), xid=xid, first=draw(st.booleans()))


_ENDS = st.sampled_from([70, 80]).flatmap(
    lambda xid: st.one_of(
        st.integers(xid, xid + 2).map(lambda subxid: pgc.StreamAbort(xid, subxid, None, None)),
        st.integers(1, 60).map(lambda lsn: pgc.StreamCommit(xid, 0, lsn, lsn + 1, 0)),
        st.just(pgc.StreamPrepare(0, 5, 6, 0, xid, "g")),
    )
)
_ALONE = st.one_of(
    _ENDS,
    _content(None),
    st.integers(1, 60).map(lambda lsn: pgc.CommitPrepared(0, lsn, lsn + 1, 0, 70, "g")),
    st.sampled_from([pgc.StreamStop(), pgc.BeginPrepare(3, 4, 0, 9, "g"), b"", b"B", b"?", b"S"]),
)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    parts = draw(
        st.lists(
            st.one_of(
                _several_plain(), _several_plain(), _plain(), _block(), _block(),
                _ENDS.map(lambda each: [each]), _ALONE.map(lambda each: [each]),
            ),
            max_size=8,
        )
    )  # fmt: skip
    known = draw(st.sampled_from([[T, _OTHER], [T], []]))
    messages = wire([*known, *(message for part in parts for message in part)])
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):  # lost or damaged ones
        place = draw(st.integers(0, len(messages)))
        messages[place : place + 1] = [each[:-1] for each in messages[place : place + 1]][
            draw(st.integers(0, 1)) :
        ]
    return messages


@pytest.mark.differential
@examples(100, 800)
def test_any_stream_is_decoded_alike(examples: int) -> None:
    @settings(max_examples=examples)
    @given(streams(), st.data())
    def check(messages: list[bytes], data: st.DataObject) -> None:
        pair = Pair(
            implementation("cython").functions,
            on_error=data.draw(st.sampled_from(["raise", "skip", "skip"])),
            atomic=data.draw(st.booleans()),
            types="text",
        )
        for cut in calls(messages, random.Random(data.draw(st.integers(0, 99)))):
            if pair.decode(messages[cut]):
                return

    check()


@pytest.mark.differential
@examples(100, 600)
def test_the_same_runs_are_found_in_any_stream(examples: int) -> None:
    @settings(max_examples=examples)
    @given(streams(), st.booleans(), st.integers(0, 3), st.data())
    def check(messages: list[bytes], streaming: bool, start: int, data: st.DataObject) -> None:
        array = exact(messages[start:])
        table = implementation("python").scan(array, streaming=streaming, skip=True)
        first = next(
            (each for each in messages[start:] if each[:1] == b"C" and len(each) == 26), None
        )
        lsns = [5, *([] if first is None else [pgc.decode_message(first).commit_lsn])]
        begun = st.builds(
            Begun, st.integers(0, 2**32 - 1), st.sampled_from(lsns), st.integers(0, 9)
        )
        differential("runs", array, table, data.draw(st.none() | begun))

    check()


@pytest.mark.differential
@examples(100, 600)
def test_any_stream_is_summarised_alike(examples: int) -> None:
    @settings(max_examples=examples)
    @given(streams(), st.data())
    def check(messages: list[bytes], data: st.DataObject) -> None:
        codec = implementation("cython").functions
        ours = theirs = pgc.Carry()
        for cut in calls(messages, random.Random(data.draw(st.integers(0, 99)))):
            found = [summarised(each, messages[cut], ours) for each in (codec, without_runs(codec))]
            for index in (1, 2):
                assert plain(found[0][index]) == plain(found[1][index])
            ours, theirs = (each[1] for each in found)
            assert ours == theirs

    check()


def summarised(codec: Codec, messages: list[bytes], carry: pgc.Carry) -> tuple[Any, ...]:
    """A summary, the carry after it, and the number of changes that it has as committed."""
    summariser = Summariser(
        codec,
        on_error="skip",
        new_session=False,
        in_block=carry.in_block,
        delivered_lsn=carry.delivered_lsn,
    )
    summariser.add(messages)
    summary = summariser.summary()
    return summary, pgc.fold(carry, summary, on_error="skip"), summariser.committed


# Messages that do not end a run.


@pytest.fixture
def found(codec: Implementation) -> Any:
    def segments(messages: list[Any]) -> Any:
        array = exact(wire(messages))
        return codec.runs(array, codec.scan(array)).segments

    return segments


def test_a_relation_does_not_end_a_run(found: Any) -> None:
    made = [
        *transaction(T, insert(1, "1", "a", None), lsn=1),
        _OTHER,
        *transaction(lsn=2),
        *transaction(insert(2, "1"), _WIDE, insert(1, "1", "a", None, "b"), lsn=3),
    ]
    assert found(made) == [PlainRun(0, len(made), 0, 3, [(1, 0), (4, 1), (9, 2)])]


def test_one_transaction_is_a_run(found: Any) -> None:
    assert found(transaction(T, truncate(1), lsn=3)) == [PlainRun(0, 4, 0, 1, [(1, 0)])]
    assert found(transaction(T)[:-1]) == []
    assert found(transaction(T)[1:]) == []


def test_a_run_begins_with_the_rest_of_an_open_transaction(codec: Implementation) -> None:
    made = [*transaction(T, insert(1, "1", "a", None), lsn=4)[1:], *transaction(truncate(1), lsn=5)]
    array = exact(wire(made))
    found = codec.runs(array, codec.scan(array), Begun(7, 4, 3))
    assert found.segments == [PlainRun(0, len(made), 0, 2, [(0, 0)])]
    several = found.transactions
    assert several.xid.tolist()[:1] == [7]
    assert several.commit_lsn.tolist() == [4, 5]
    assert several.begin.tolist() == [-1, 3]
    assert several.first_row.tolist() == [-3, 1]
    assert several.changes.tolist() == [4, 1]
    for other in (None, Begun(7, 3, 3)):
        found = codec.runs(array, codec.scan(array), other)
        assert [each[:4] for each in found.segments] == [(3, 6, 0, 1)]


def test_a_run_ends_where_the_order_does(found: Any) -> None:
    made = [*transaction(lsn=5), *transaction(lsn=5), *transaction(lsn=6), *transaction(lsn=2)]
    assert [each[:4] for each in found(made)] == [(0, 2, 0, 1), (2, 6, 1, 3), (6, 8, 3, 4)]


def test_a_block_has_the_first_positions_of_its_transactions(found: Any) -> None:
    made = streamed(
        replace(T, xid=7),
        insert(1, "1", "a", None, xid=8),
        pgc.Message(8, 1, 5, "m", b""),
        truncate(1, 1, xid=9),
        pgc.Message(10, 1, 5, "m", b""),
        insert(1, "1", "a", None, xid=8),
        insert(1, "1", "a", None, xid=11),
        xid=7,
    )
    first = {8: (0, 0), 9: (1, 1), 10: (3, 1), 11: (4, 2)}
    assert found(made) == [StreamBlock(0, 9, 7, True, 0, 5, 2, first, [1, 3, 5])]


def test_a_broken_off_transaction_that_comes_again_is_not_doubled() -> None:
    inside = [insert(1, str(number), "a", None) for number in range(5)]
    first = transaction(T, *inside, lsn=9)
    decoder = pgc.Decoder(atomic=False)
    before = decoder.decode(wire(first[:4]))
    after = decoder.decode(wire([*first, *transaction(*inside, lsn=10)]))
    seqs = [batch.seq.tolist() for changes in (before, after) for batch in changes]
    assert seqs == [[0, 1], [2, 3, 4, 0, 1, 2, 3, 4]]


@pytest.mark.parametrize("again", [False, True])
def test_a_relation_after_a_block_that_was_cut_off_holds_for_all(again: bool) -> None:
    """A whole transaction of the new session is not in the summary, but what it declares is."""
    first = transaction(T, lsn=9)
    parts = [
        wire(streamed(replace(T, oid=9, xid=7), xid=7)[:-1]),
        wire([pgc.StreamStart(7, False), *first] if again else first),
        wire(transaction(insert(1, "1", "a", None), lsn=10)),
    ]
    decoder = pgc.Decoder()
    for part in parts:
        decoder.decode(part)
    plan = pgc.plan([pgc.summarise(part) for part in parts])
    for found in (plan.carry, pgc.plan([pgc.summarise([*itertools.chain(*parts)])]).carry):
        assert found.scope.relations.keys() == decoder.relations.keys() == {1}
        assert found.in_stream is None


# group_rows.


@given(st.data())
def test_rows_are_grouped_alike(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 30))
    groups = data.draw(st.integers(1, 6))
    group = data.draw(st.lists(st.integers(0, groups - 1), min_size=count, max_size=count))
    batch = data.draw(st.lists(st.integers(0, groups - 1), min_size=groups, max_size=groups))
    edges = sorted(data.draw(st.lists(st.integers(0, count), max_size=10)))
    pieces = [(a, b, a % 3, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    pieces = data.draw(st.permutations(pieces))
    cut = data.draw(st.integers(0, len(pieces)))
    several: list[Any] = [
        np.array(each, np.int64).reshape(-1, 4).T.copy() for each in (pieces[:cut], pieces[cut:])
    ]
    first = np.array(edges[: data.draw(st.integers(0, len(edges)))], np.int64)
    changes = np.diff(first, append=count)
    earlier = data.draw(st.integers(0, 4)) if len(first) and first[0] == 0 else 0
    first[:1] -= earlier
    changes[:1] += earlier
    several.insert(data.draw(st.integers(0, 2)), RunPieces(first, changes, 7))
    differential(
        "group_rows",
        np.arange(5, 5 + count),
        np.array(group, np.int32),
        np.array(batch, np.int32),
        several,
    )


@pytest.mark.parametrize(
    ("first_row", "changes"),
    [([0, 1], [1]), ([0], [3]), ([-1], [4]), ([-2], [1]), ([3], [0]), ([2**62], [2**62])],
)
def test_a_run_of_other_rows_is_refused(first_row: list[int], changes: list[int]) -> None:
    rows, group = np.arange(2), np.zeros(2, np.int32)
    run = RunPieces(np.array(first_row), np.array(changes), 0)
    with pytest.raises(ValueError, match="pieces"):
        implementation("cython").group_rows(rows, group, np.zeros(1, np.int32), [run])


@pytest.mark.parametrize(
    ("pieces", "batch"),
    [
        ([[0], [3], [0], [0]], [0, 1]),
        ([[-1], [1], [0], [0]], [0, 1]),
        ([[0], [2], [0], [0]], [0]),
        ([[0], [2], [0], [0]], [0, -1]),
        ([[0], [2], [0], [0]], [0, 2]),
        ([[0], [2], [0]], [0, 1]),
    ],
)
def test_pieces_of_other_rows_are_refused(pieces: Any, batch: list[int]) -> None:
    rows, group = np.arange(2), np.arange(2, dtype=np.int32)
    with pytest.raises(ValueError, match="pieces"):
        implementation("cython").group_rows(
            rows, group, np.array(batch, np.int32), [np.array(pieces, np.int64)]
        )


def test_a_table_of_other_messages_is_refused() -> None:
    codec = implementation("cython")
    messages = exact(wire(transaction(lsn=5)))
    table = codec.scan(messages)
    with pytest.raises(ValueError, match="table"):
        codec.runs(exact(wire(transaction(T))), table)
    with pytest.raises(ValueError, match="table"):
        codec.runs(exact([b"B", b"C"]), table)
    block = exact(wire(streamed()))
    with pytest.raises(ValueError, match="table"):
        codec.runs(exact([b"S", b"E"]), codec.scan(block))
