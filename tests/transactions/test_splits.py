"""However a stream is cut, the changes are those of one serial pass."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.transactions.plan import fold
from pgwire_codec.transactions.summary import Summariser, Summary, join
from tests.support import corpus
from tests.support.examples import in_turn
from tests.support.implementations import Implementation
from tests.transactions.test_runs import streams

DENSE = [c for c in corpus.oldest_and_newest() if c.scenario in ("immediate", "traps", "dml")]
DENSE.append(corpus.capture("types.pg18.v1-text"))  # consecutive small transactions
LARGE = [c for c in corpus.oldest_and_newest() if c.scenario == "streams"]


def rows(changes: Iterable[pgc.Changes]) -> list[tuple[Any, ...]]:
    """Every change, as states and wire bytes, with all that says whose it is; in total order."""
    found = []
    for each in changes:
        for batch in each:
            lsns = [None] * len(batch) if batch.lsn is None else batch.lsn.tolist()
            whose = zip(
                batch.commit_lsn.tolist(),
                batch.seq.tolist(),
                batch.xid.tolist(),
                batch.commit_time.tolist(),
                batch.origin.tolist(),
                batch.op.tolist(),
                lsns,
                [batch.message(row) for row in range(len(batch))],
                strict=True,
            )
            found += [(*change, batch.relation.oid, batch.relation) for change in whose]
    return sorted(found, key=lambda change: change[:2])


def transactions(changes: Iterable[pgc.Changes]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for each in changes:
        t = each.transactions
        found += zip(
            t.xid.tolist(),
            t.commit_lsn.tolist(),
            t.end_lsn.tolist(),
            t.commit_time.tolist(),
            t.origin.tolist(),
            t.gid.tolist(),
            t.changes.tolist(),
            strict=True,
        )
    return found


@cache
def serial(capture: corpus.Capture) -> tuple[list[Any], list[Any], list[Any], pgc.Carry]:
    decoder = pgc.Decoder()
    changes = decoder.decode(capture.messages, capture.lsns)
    return rows([changes]), transactions([changes]), changes.logical_messages, decoder.carry


def pieces(capture: corpus.Capture, cuts: Iterable[int]) -> list[tuple[list[bytes], Any]]:
    edges = [0, *sorted(cuts), len(capture.messages)]
    return [(capture.messages[a:b], capture.lsns[a:b]) for a, b in itertools.pairwise(edges)]


def check_batches(capture: corpus.Capture, cuts: Iterable[int], *, atomic: bool = True) -> None:
    decoder = pgc.Decoder(atomic=atomic)
    changes = [decoder.decode(messages, lsns) for messages, lsns in pieces(capture, cuts)]
    expected_rows, expected_transactions, expected_messages, _ = serial(capture)
    assert rows(changes) == expected_rows
    assert transactions(changes) == expected_transactions
    messages = [message for each in changes for message in each.logical_messages]
    assert messages == expected_messages


def check_parts(capture: corpus.Capture, cuts: Iterable[int]) -> None:
    parts = pieces(capture, cuts)
    summaries = [pickle.loads(pickle.dumps(pgc.summarise(messages))) for messages, _ in parts]
    plan = pickle.loads(pickle.dumps(pgc.plan(summaries)))
    decoder = pgc.Decoder()
    changes = [
        decoder.decode_part(messages, part, lsns)
        for (messages, lsns), part in reversed(list(zip(parts, plan.parts, strict=True)))
    ][::-1]
    expected_rows, expected_transactions, expected_messages, expected_carry = serial(capture)
    assert rows(changes) == expected_rows
    assert transactions(changes) == expected_transactions
    messages = [message for each in changes for message in each.logical_messages]
    assert sorted(messages, key=repr) == sorted(expected_messages, key=repr)
    assert without_clock(plan.carry) == without_clock(expected_carry)
    folded = pgc.Carry()
    for summary in summaries:
        folded = pgc.fold(folded, summary)
    assert folded == plan.carry


def without_clock(carry: pgc.Carry) -> Any:
    """Content of a carry, less the count of Relation messages: a summary omits repetitions."""
    relations = {oid: version for oid, (_, version) in carry.scope.relations.items()}
    return relations, carry.scope.types, carry.pending, carry.delivered_lsn, carry.in_stream


def cuts_of(capture: corpus.Capture) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(capture.messages)), max_size=12)


@pytest.mark.slow
@pytest.mark.parametrize("capture", list(in_turn(DENSE, [()], quick=corpus.is_newest)), ids=str)
def test_one_message_at_a_time(capture: corpus.Capture) -> None:
    everywhere = range(1, len(capture.messages))
    check_batches(capture, everywhere)
    check_batches(capture, everywhere, atomic=False)
    check_parts(capture, everywhere)


@settings(max_examples=40)
@given(data=st.data())
def test_any_batches_of_dense_captures(data: st.DataObject) -> None:
    capture = data.draw(st.sampled_from(DENSE))
    check_batches(capture, data.draw(cuts_of(capture)), atomic=data.draw(st.booleans()))


@settings(max_examples=60)
@given(data=st.data())
def test_any_parts_of_dense_captures(data: st.DataObject) -> None:
    capture = data.draw(st.sampled_from(DENSE))
    check_parts(capture, data.draw(cuts_of(capture)))


@pytest.mark.slow
@pytest.mark.parametrize("capture", list(in_turn(LARGE, [()], quick=corpus.is_newest)), ids=str)
@settings(max_examples=5)
@given(data=st.data())
def test_any_split_of_large_captures(capture: corpus.Capture, data: st.DataObject) -> None:
    cuts = data.draw(cuts_of(capture))
    check_batches(capture, cuts)
    check_parts(capture, cuts)


@pytest.mark.parametrize("capture", LARGE, ids=str)
def test_a_summary_is_as_small_as_what_is_open(capture: corpus.Capture) -> None:
    summary = pgc.summarise(capture.messages)
    told = len({data[1:9] for data in capture.messages if data[:1] == b"R"})
    ends = sum(data[:1] in b"cApPbKr" for data in capture.messages)
    assert isinstance(summary.outside, tuple)
    assert len(summary.outside) <= 3 * (told + 2 * ends) + 3


@cache
def restarts(capture: corpus.Capture) -> dict[int, list[pgc.Relation]]:
    """Places at which a new session can begin, after messages that leave no transaction unfinished.

    Each comes with the Relations that hold there, which the server sends the new session again."""
    decoder = pgc.Decoder()
    places: dict[int, list[pgc.Relation]] = {0: []}
    for number, data in enumerate(capture.messages):
        decoder.decode([data])
        carry = decoder.carry
        if carry.plain is None and not carry.streams:
            places[number + 1] = list(decoder.relations.values())
    return places


@settings(max_examples=60)
@given(data=st.data())
def test_a_session_that_begins_again_doubles_nothing(data: st.DataObject) -> None:
    """The connection breaks anywhere; the server resumes at the last confirmed position,
    which may be long before."""
    capture = data.draw(st.sampled_from(DENSE))
    broken = data.draw(st.integers(0, len(capture.messages)))
    again = data.draw(st.sampled_from([at for at in restarts(capture) if at <= broken]))
    begins = capture.messages[again : again + 1]
    told = begins[:1] == [] or begins[0][:1] not in b"Bb" or data.draw(st.booleans())
    relations = [pgc.encode_message(each) for each in restarts(capture)[again]]
    if told:
        second = relations + capture.messages[again:]
    else:
        second = begins + relations + capture.messages[again + 1 :]
    decoder = pgc.Decoder(atomic=data.draw(st.booleans()))
    changes = [decoder.decode(capture.messages[:broken])]
    if told:
        decoder.new_session()
    changes.append(decoder.decode(second))
    expected_rows, expected_transactions, _, _ = serial(capture)
    expected_rows = [(*row[:6], None, *row[7:]) for row in expected_rows]  # without LSNs
    assert rows(changes) == expected_rows
    assert transactions(changes) == expected_transactions
    assert decoder.pending == []

    parts = [capture.messages[:broken], second]
    plan = pgc.plan([pgc.summarise(parts[0]), pgc.summarise(parts[1], new_session=told)])
    changes = [decoder.decode_part(part, how) for part, how in zip(parts, plan.parts, strict=True)]
    assert rows(changes) == expected_rows
    assert transactions(changes) == expected_transactions


@pytest.mark.parametrize("capture", corpus.oldest_and_newest(), ids=lambda each: each.name)
def test_a_summary_needs_only_the_heads_of_changes(
    codec: Implementation, capture: corpus.Capture
) -> None:
    """Wherever a part begins: inside a stream block, or outside."""
    messages = capture.messages[:2000]
    heads = [each[:9] if each[:1] in b"IUD" else each for each in messages]
    middle = len(heads) // 2
    for part in (slice(None), slice(0, middle), slice(middle, None), slice(middle, middle + 20)):
        whole, cut = (
            Summariser(codec.functions, on_error="raise", new_session=False, heads=only)
            for only in (False, True)
        )
        whole.add(messages[part])
        cut.add(heads[part])
        found, expected = cut.summary(), whole.summary()
        # A reading that fails on what the head leaves out is the wrong one: no fold takes it.
        wrong = {
            name: getattr(found, name)
            for name in ("outside", "inside")
            if isinstance(getattr(expected, name), pgc.DecodeError)
        }
        assert len(wrong) < 2
        if wrong:  # it finds relations, too
            assert set(expected.relations or ()) <= set(found.relations or ())
            wrong["relations"] = found.relations
        assert found == replace(expected, **wrong)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_head_that_is_cut_off_does_not_decode(codec: Implementation, streaming: bool) -> None:
    summariser = Summariser(
        codec.functions, on_error="raise", new_session=False, in_block=streaming, heads=True
    )
    head = b"I" + bytes(8 if streaming else 4)
    summariser.add([head])
    with pytest.raises(pgc.DecodeError) as caught:
        summariser.add([head[:-1]])
    assert caught.value.code == "truncated"


@dataclass
class Joinable:
    """A part with what is known when it is summarised in its place, and its joined messages."""

    begins_in_block: bool
    delivered_lsn: int
    messages: list[bytes]
    lsns: list[int]
    summary: Summary
    committed: int

    def join(self, other: Joinable) -> Joinable:
        joined = join(self.summary, other.summary, self.begins_in_block, self.delivered_lsn)
        return replace(
            self,
            messages=self.messages + other.messages,
            lsns=self.lsns + other.lsns,
            summary=joined.summary,
            committed=self.committed + other.committed + joined.committed,
        )


def joinable(parts: Iterable[tuple[list[bytes], Any]], on_error: str = "raise") -> list[Joinable]:
    carry, found = pgc.Carry(), []
    for messages, lsns in parts:
        summariser = Summariser(
            pgc.Decoder.codec,
            on_error=on_error,
            new_session=False,
            in_block=carry.in_block,
            delivered_lsn=carry.delivered_lsn,
        )
        summariser.add(messages)
        part = Joinable(
            carry.in_block,
            carry.delivered_lsn,
            messages,
            list(lsns),
            summariser.summary(),
            summariser.committed,
        )
        found.append(part)
        carry = fold(carry, part.summary, on_error=on_error)
    return found


def join_some(parts: list[Joinable], draw: Callable[[int], int], count: int) -> list[Joinable]:
    """Join neighbours, some of them joined already, until there are so many."""
    while len(parts) > count:
        at = draw(len(parts) - 2)
        parts = [*parts[:at], parts[at].join(parts[at + 1]), *parts[at + 2 :]]
    return parts


@settings(max_examples=40)
@given(data=st.data())
def test_joined_parts_are_one_part(data: st.DataObject) -> None:
    capture = data.draw(st.sampled_from(DENSE))
    cuts = data.draw(st.lists(st.integers(0, len(capture.messages)), max_size=60))
    fine = joinable(pieces(capture, cuts))
    random = data.draw(st.randoms())
    count = data.draw(st.integers(1, 4))
    parts = join_some(fine, lambda last: random.randint(0, last), count)
    plan = pgc.plan([part.summary for part in parts])
    decoder = pgc.Decoder()
    changes = [
        decoder.decode_part(part.messages, how, np.array(part.lsns, np.uint64))
        for part, how in zip(parts, plan.parts, strict=True)
    ]
    assert rows(changes) == serial(capture)[0]
    assert transactions(changes) == serial(capture)[1]
    at_once = joinable([(part.messages, part.lsns) for part in parts])
    for ours, theirs in zip(parts, at_once, strict=True):
        assert ours.committed == theirs.committed
        assert ours.summary.relations == theirs.summary.relations
        assert ours.summary.ends_in_block == theirs.summary.ends_in_block
        assert len(events(ours)) <= len(events(theirs)) + 2
    assert without_clock(plan.carry) == without_clock(serial(capture)[3])


def events(part: Joinable) -> tuple[Any, ...]:
    return part.summary.events(part.begins_in_block)


@settings(max_examples=40)
@given(streams(), st.randoms())
def test_joined_parts_of_messages_out_of_order(messages: list[bytes], random: Random) -> None:
    cuts = sorted(random.choices(range(len(messages) + 1), k=min(len(messages), 12)))
    edges = [0, *cuts, len(messages)]
    made = [(messages[a:b], [0] * (b - a)) for a, b in itertools.pairwise(edges)]
    fine = joinable(made, "skip")
    (joined,) = join_some(fine, lambda last: random.randint(0, last), 1)
    (at_once,) = joinable([(messages, [0] * len(messages))], "skip")
    carries = [fold(pgc.Carry(), part.summary, on_error="skip") for part in (joined, at_once)]
    assert without_clock(carries[0]) == without_clock(carries[1])
    assert joined.committed <= at_once.committed  # which counts a repeated transaction again


def test_a_session_is_not_joined_to_another_one() -> None:
    first, second = (pgc.summarise([], new_session=True) for _ in range(2))
    with pytest.raises(ValueError, match="begins a session"):
        join(first, second, False, 0)
