"""Maps and stacks that record their changes, compared with a dict and a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.transactions.carry import OpenTransaction, Position, Scope
from pgwire_codec.transactions.journal import EntryMap, Journal, Map, Stack

KEYS = st.integers(0, 5)
VALUES = st.integers(0, 9)

MAP_CHANGES = st.one_of(
    st.tuples(st.just("__setitem__"), KEYS, VALUES),
    st.tuples(st.just("__delitem__"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("pop"), KEYS, st.none()),
    st.tuples(st.just("popitem")),
    st.tuples(st.just("setdefault"), KEYS, VALUES),
    st.tuples(st.just("update"), st.dictionaries(KEYS, VALUES, max_size=3)),
)

PLACES = st.integers(-4, 4)
SLICES = st.builds(slice, st.none() | PLACES, st.none() | PLACES)

STACK_CHANGES = st.one_of(
    st.tuples(st.just("append"), VALUES),
    st.tuples(st.just("pop")),
    st.tuples(st.just("pop"), PLACES),
    st.tuples(st.just("__setitem__"), PLACES, VALUES),
    st.tuples(st.just("__setitem__"), SLICES, st.lists(VALUES, max_size=3)),
    st.tuples(st.just("__delitem__"), PLACES | SLICES),
    st.tuples(st.just("__delitem__"), st.just(slice(None, None, -2))),
)


def apply(target: Any, change: tuple[Any, ...]) -> Any:
    """Return the result of a method, or the kind of the error that it raises."""
    name, *arguments = change
    try:
        return getattr(target, name)(*arguments)
    except (KeyError, IndexError) as error:
        return type(error)


@given(
    st.dictionaries(KEYS, VALUES),
    st.lists(MAP_CHANGES),
    st.lists(MAP_CHANGES),
    st.lists(MAP_CHANGES),
)
def test_map(content: dict[int, int], kept: Any, undone: Any, after: Any) -> None:
    journal = Journal()
    model, recording = dict(content), Map(journal, content)
    for change in kept:
        assert apply(recording, change) == apply(model, change)
        assert list(recording.items()) == list(model.items())
    journal.commit()
    trial = dict(model)
    for change in undone:
        assert apply(recording, change) == apply(trial, change)
        assert list(recording.items()) == list(trial.items())
    journal.roll_back()
    assert recording == model
    trial = dict(recording)  # undone deletions are at the end
    for change in after:
        assert apply(recording, change) == apply(trial, change)


@given(st.lists(VALUES), st.lists(STACK_CHANGES), st.lists(STACK_CHANGES), st.lists(STACK_CHANGES))
def test_stack(content: list[int], kept: Any, undone: Any, after: Any) -> None:
    journal = Journal()
    model, recording = list(content), Stack(journal, content)
    for change in kept:
        assert apply(recording, change) == apply(model, change)
        assert recording == model
    journal.commit()
    trial = list(model)
    for change in undone:
        assert apply(recording, change) == apply(trial, change)
        assert recording == trial
    journal.roll_back()
    assert recording == model
    for change in after:
        assert apply(recording, change) == apply(model, change)
        assert recording == model


@pytest.mark.parametrize("kind", [Map, Stack])
def test_every_change_is_recorded_or_impossible(kind: type) -> None:
    reading = {"copy", "fromkeys", "get", "items", "keys", "values", "count", "index"}
    operators = {"__setitem__", "__delitem__", "__ior__", "__iadd__", "__imul__"}
    for name in vars(kind.__mro__[1]):
        if name in operators or not (name.startswith("__") or name in reading):
            assert name in vars(kind), name


def test_entries() -> None:
    journal = Journal()
    streams = EntryMap[int, OpenTransaction](journal, {})
    streams[7] = OpenTransaction(7, first={8: Position(1)})
    journal.commit()
    as_it_was = {7: streams[7].copy()}
    readers: list[Callable[[], OpenTransaction]] = [
        lambda: streams[7],
        lambda: streams.get(7),
        lambda: streams.setdefault(7, OpenTransaction(9)),
    ]
    for read in readers:
        entry = read()
        entry.position = Position(2)
        entry.first[9] = Position(1)
        entry.first.pop(8)
        entry.scope.names["t"] = (1, 1)
        entry.scope = Scope()
        entry.first = {}
        journal.roll_back()
        assert streams == as_it_was
    entry = streams.pop(7)
    entry.gid = "g"
    streams[5] = entry
    journal.roll_back()
    assert streams == as_it_was
    assert streams.get(5) is None
    assert streams.get(5, 1) == 1


def test_an_interrupted_roll_back_can_be_repeated() -> None:
    journal = Journal()
    recording = Map(journal, {1: 1, 2: 2})
    stack = Stack(journal, [1, 2, 3])

    def interrupt() -> None:
        raise KeyboardInterrupt

    recording[1] = 5
    del stack[1:]
    journal.record(interrupt)
    del recording[2]
    stack.append(9)
    with pytest.raises(KeyboardInterrupt):
        journal.roll_back()
    assert (recording, stack) == ({1: 5, 2: 2}, [1])
    journal._undo.pop()
    journal.roll_back()
    assert (recording, stack) == ({1: 1, 2: 2}, [1, 2, 3])
