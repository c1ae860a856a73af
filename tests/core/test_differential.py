"""The compiled decoder and its functions against the reference, on real streams and damaged ones.

They must agree on every value and state, and on every error: code, message index, byte offset and
text. tests/core/test_messages.py and tests/families do the same for single messages and
single values.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.types import NATIVE, TypeOptions, column_type
from pgwire_codec.types.builtin import BUILTIN
from tests.families.golden import GOLDEN
from tests.support import strategies
from tests.support.build import (
    T,
    column,
    delete,
    insert,
    relation,
    row,
    shapes,
    streamed,
    transaction,
    walk,
    wire,
)
from tests.support.corpus import Capture, captures, oldest_and_newest
from tests.support.differential import Pair, differential, exact, same_functions
from tests.support.golden import MESSAGES
from tests.support.implementations import implementation
from tests.support.values import OPTIONS
from tests.support.wrong import each_wrong

pytestmark = pytest.mark.differential

#: Options that change what comes out, each with each; Spark reads no string views.
COMBINATIONS = [
    {"types": types, "unrepresentable": policy, "on_error": on_error, **target}
    for types, policy, on_error, target in itertools.product(
        ("native", "text"),
        ("raise", "null", "clamp"),
        ("raise", "skip"),
        (
            {"arrow_types": NATIVE},
            {"arrow_types": NATIVE, "strings": "view"},
            {"arrow_types": ROW_TYPES},
        ),
    )
]
#: Options that matter less, in turn.
_NUMERIC = ("string", "float64", "decimal128(38,6)", "decimal128(9,2)")
_BEFORE = ("key", "full", "none")
_A_CAPTURE = 3  # combinations; each scenario has captures enough to see all


def options(number: int) -> dict[str, Any]:
    """One combination of all options; 7 and 36 have no common divisor."""
    return {
        **COMBINATIONS[number * 7 % len(COMBINATIONS)],
        "numeric": _NUMERIC[number % len(_NUMERIC)],
        "before": _BEFORE[number % len(_BEFORE)],
        "atomic": number % 4 != 0,
    }


def numbered() -> list[tuple[int, Capture]]:
    """The captures, each with its number in its scenario; of the long ones those that differ."""
    ends = oldest_and_newest()
    chosen = [each for each in captures() if each.scenario != "streams" or each in ends]
    by_scenario = itertools.groupby(chosen, key=lambda capture: capture.scenario)
    return [each for _, several in by_scenario for each in enumerate(several)]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("scan", lambda found: replace(found, width=found.width + 1)),
        ("tuples", lambda found: found[::-1]),
        ("decode_columns", lambda found: replace(found, columns=found.columns[::-1])),
    ],
)
def test_a_difference_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, spoil: Callable[[Any], Any]
) -> None:
    messages = wire(transaction(T, insert(1, "1", "a", None), delete(1, key=row("1", None, None))))
    Pair().decode(messages)
    compiled = implementation("cython").functions
    right = getattr(compiled, name)
    monkeypatch.setattr(compiled, name, lambda *args, **options: spoil(right(*args, **options)))
    with pytest.raises(AssertionError):
        Pair().decode(messages)


# Real streams.


@pytest.mark.parametrize(
    ("number", "capture"),
    [(number, capture) for number, capture in enumerate(captures()) if capture.major in (12, 18)],
    ids=str,
)
def test_captures(number: int, capture: Capture) -> None:
    Pair(**options(number)).decode(capture.messages, capture.lsns)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("number", "capture"), numbered(), ids=str)
def test_captures_under_other_options(number: int, capture: Capture) -> None:
    for each in range(_A_CAPTURE):
        Pair(**options(_A_CAPTURE * number + each)).decode(capture.messages, capture.lsns)


def test_every_combination_of_options_meets_every_scenario() -> None:
    met: dict[str, set[int]] = {}
    for number, capture in numbered():
        for each in range(_A_CAPTURE):
            combination = (_A_CAPTURE * number + each) * 7 % len(COMBINATIONS)
            met.setdefault(capture.scenario, set()).add(combination)
    assert {scenario: len(each) for scenario, each in met.items()} == dict.fromkeys(met, 36)


@pytest.mark.parametrize("capture", captures(major=16), ids=str)
def test_captures_cut_into_calls(capture: Capture) -> None:
    chosen = random.Random(capture.name)
    several, lsns = capture.messages[:400], capture.lsns[:400]
    pair = Pair(on_error="skip", unrepresentable="null", atomic=chosen.random() < 0.5)
    start = 0
    while start < len(several):
        stop = start + chosen.randrange(80)
        pair.decode(several[start:stop], lsns[start:stop])
        start = stop


def inputs(messages: list[bytes]) -> dict[str, Any]:
    """The same messages in each of the ways in which they may be given."""
    padded = [b"not this", *messages, b"nor this", b""]
    middle = len(messages) // 2
    return {
        "bytes": messages,
        "bytearrays": [bytearray(each) for each in messages],
        "memoryviews": [memoryview(b"x" + each)[1:] for each in messages],
        "binary": pa.array(messages, pa.binary()),
        "large binary": pa.array(messages, pa.large_binary()),
        "binary view": pa.array(messages, pa.binary_view()),
        "sliced": pa.array(padded, pa.binary())[1 : 1 + len(messages)],
        "sliced large": pa.array(padded, pa.large_binary())[1 : 1 + len(messages)],
        "sliced view": pa.array(padded, pa.binary_view())[1 : 1 + len(messages)],
        "chunked": pa.chunked_array(
            [messages[:middle], [], messages[middle:]], type=pa.large_binary()
        ),
        "sliced chunks": pa.chunked_array([padded[:middle], padded[middle:]], type=pa.binary())[
            1 : 1 + len(messages)
        ],
    }


@pytest.mark.parametrize("way", inputs([]))
def test_messages_given_in_any_way(way: str) -> None:
    for number, capture in enumerate(captures("traps", major=18)):
        given = inputs(capture.messages)[way]
        Pair(**options(number)).decode(given, capture.lsns)
        Pair(on_error="skip").decode(inputs([])[way])


# Damaged streams.


@each_wrong
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_wrong_messages(messages: list[Any], wanted: tuple[str, int, int], on_error: str) -> None:
    pair = Pair(on_error=on_error)
    assert pair.decode(wire(messages)) == (wanted[0] if on_error == "raise" else None)


def test_columns_of_one_name() -> None:
    twice = relation(2, column("c", "int4"), column("c", "date"), column("d"))
    change = insert(2, "1", "2024-02-29", "x")
    Pair().decode(wire(transaction(twice, change, delete(2, old=change.new))))
    Pair(on_error="skip").decode(wire(transaction(twice, insert(2, "1", "2", "x"), change)))


def damaged(capture: Capture, chosen: random.Random, share: float) -> list[bytes]:
    """A share of the messages with a byte changed, or cut; tags stay, so that the rest decodes.

    Messages that others depend on (Relations, begins and ends of transactions) are damaged less
    often.
    """
    several = []
    for data in capture.messages:
        odds = share if data[:1] in b"IUDT" else share / 50
        if len(data) > 1 and chosen.random() < odds:
            place = chosen.randrange(1, len(data))
            changed = bytes([data[place] ^ chosen.randrange(1, 256)])
            data = data[:place] + (changed + data[place + 1 :] if chosen.random() < 0.8 else b"")
        several.append(data)
    return several


def damaged_alike(capture: Capture, seed: int, most: int | None = None) -> None:
    chosen = random.Random(f"{capture.name} {seed}")
    several = damaged(capture, chosen, 0.3)[:most]
    skipping = {**options(chosen.randrange(1000)), "on_error": "skip"}
    Pair(**skipping).decode(several, capture.lsns[:most])
    # Raising stops at the first: let that come late as well as early.
    several = damaged(capture, chosen, 3 / len(several))[:most]
    Pair(**{**skipping, "on_error": "raise"}).decode(several)


@pytest.mark.parametrize("capture", captures(major=17), ids=str)
def test_damaged_captures(capture: Capture) -> None:
    damaged_alike(capture, 0, most=1000)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("capture", captures(), ids=str)
def test_all_captures_damaged(capture: Capture) -> None:
    damaged_alike(capture, 1)


# Function by function, without values.


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_columns_of_rows_without_an_old_tuple(options: TypeOptions, rows: int) -> None:
    """The core does not decode them: nulls of each type share their memory."""
    types = [
        column_type(each, -1, options)
        for oid, _, _, array, _, _ in BUILTIN
        for each in (oid, array or oid)
    ]
    types += [column_type(each, -1, options) for each in (99_999, 1700)]
    types += [column_type(1700, (15 << 16 | 2) + 4, options)]
    messages = exact(wire(insert(1, *["1"] * len(types)) for _ in range(rows)))
    table = implementation("python").scan(messages, streaming=False, skip=False)
    for body in (table.body, np.full(rows, -1)):
        place = (messages, np.arange(rows), body, len(types), "old", list(enumerate(types)))
        kind, columns, _, present = differential("decode_columns", *place)
        assert (kind, len(columns) - 1, present[3]) == ("DecodedColumns", len(types), bytes(rows))


# Function by function, at each byte.

_TYPES = [
    column_type(oid, -1, TypeOptions())
    for oid in (25, 23, 1700, 1082, 1184, 17, 701, 1007, 2950, 16, 1186, 20, 1009, 1231, 3802, 3904)
]


def pieces(data: bytes, chosen: random.Random) -> Iterator[bytes]:
    """The message cut at each byte, with each byte changed at random, with bytes after it."""
    for place in range(len(data)):
        yield data[:place]
    for place, byte in enumerate(data):
        yield data[:place] + bytes([byte ^ chosen.randrange(1, 256)]) + data[place + 1 :]
    yield data + bytes([chosen.randrange(256)])
    yield data + data
    yield data


def same_in_pieces(data: bytes, streaming: bool, types: list[Any]) -> None:
    chosen = random.Random(data)
    wanted = list(enumerate(types))
    chosen.shuffle(wanted)
    wanted = wanted[: chosen.randrange(len(wanted) + 1)]
    for each in (streaming, not streaming):
        same_functions(
            exact(pieces(data, chosen)),
            streaming=each,
            columns=len(types),
            wanted=wanted,
            unrepresentable=chosen.choice(["raise", "null", "clamp"]),
        )


def test_messages_cut_and_changed_at_each_byte() -> None:
    for data, streaming in [*shapes(), *((each.data, each.streaming) for each in MESSAGES)]:
        chosen = random.Random(len(data))
        same_in_pieces(data, streaming, chosen.sample(_TYPES, chosen.randrange(6)))


def test_a_message_alone_cut_at_each_byte() -> None:
    """One by one: nothing follows the message, and a sanitizer reports every byte too far."""
    for data, streaming in shapes():
        for stop in range(len(data) + 1):
            differential("scan", exact([data[:stop]]), streaming=streaming, skip=True)
        if data[:1] in b"IUD":
            wanted = list(enumerate(_TYPES[:4]))
            same_functions(exact([data]), streaming=streaming, columns=4, wanted=wanted)


@cache
def structures(*, every_name: bool) -> dict[Any, tuple[bytes, bool, pgc.Relation | None]]:
    """A message of each structure in the corpus (kinds, flags, lengths), with its Relation.

    With ``every_name``, also all that differ in OIDs, names and the like.
    """
    found: dict[Any, tuple[bytes, bool, pgc.Relation | None]] = {}
    for capture in captures():
        relations: dict[int, pgc.Relation] = {}
        for data, streaming in walk(capture):
            key: Any = (data[:1], streaming, len(data))
            told = None
            if data[:1] in b"RIUD":
                message = pgc.decode_message(data, streaming=streaming)
                if isinstance(message, pgc.Relation):
                    relations[message.oid] = message
                    lengths = [(each.flags, len(each.name)) for each in message.columns]
                    names = (len(message.namespace), len(message.name))
                    key = (data[:1], streaming, message.replica_identity, names, *lengths)
                elif isinstance(message, (pgc.Insert, pgc.Update, pgc.Delete)):
                    told = relations.get(message.relation_oid)
                    tuples = [getattr(message, name, None) for name in ("key", "old", "new")]
                    values = [
                        each and (each.kinds, tuple(value and len(value) for value in each.values))
                        for each in tuples
                    ]
                    key = (data[:1], streaming, *values)
            if every_name and data[:1] not in b"IUDBCSEcA":
                key = (data, streaming)
            found.setdefault(key, (data, streaming, told))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every_name", "least", "one_in"),
    [
        (False, 500, 4),
        pytest.param(False, 500, 1, marks=pytest.mark.thorough),
        pytest.param(True, 1000, 1, marks=pytest.mark.thorough),
    ],
)
def test_every_structure_of_the_corpus_cut_and_changed_at_each_byte(
    every_name: bool, least: int, one_in: int
) -> None:
    several = list(structures(every_name=every_name).values())
    assert len(several) > least
    for data, streaming, told in several[::one_in]:
        if len(data) > 1000:  # hundreds of columns: each is like the one before it
            continue
        columns = () if told is None else told.columns
        same_in_pieces(
            data,
            streaming,
            [column_type(each.type_oid, each.type_modifier, TypeOptions()) for each in columns],
        )


@pytest.mark.slow
@pytest.mark.thorough
def test_every_message_of_the_corpus_cut_and_changed_somewhere() -> None:
    """All messages, each at two of its bytes in each way: at each byte would take an hour."""
    chosen = random.Random(18)
    for capture in captures():
        for share in (0.0, 1.0):
            for _ in range(2):
                several = []
                for data in capture.messages:
                    # The tag stays: by it, the messages after it are streamed or not.
                    place = chosen.randrange(1, len(data)) if len(data) > 1 else len(data)
                    changed = bytes(each ^ chosen.randrange(1, 256) for each in data[place:][:1])
                    several.append(data[:place] + (changed + data[place + 1 :]) * (share == 1.0))
                differential("scan", exact(several), skip=True)


# Streams that no server sent.

_OIDS = [oid for row in BUILTIN for oid in (row[0], row[3]) if oid] + [99_999]
_BY_NAME = {row[1]: row[0] for row in BUILTIN}
_GOOD: dict[int, list[tuple[bytes, bytes | None]]] = {}
for _name, _text, _binary in GOLDEN:
    for _form in ((b"t", _text.encode()), (b"b", bytes.fromhex(_binary))):
        _GOOD.setdefault(_BY_NAME.get(_name, 25), []).append(_form)


def values_of(oid: int) -> st.SearchStrategy[tuple[bytes, bytes | None]]:
    good = _GOOD.get(oid)
    return st.sampled_from(good) | strategies.values if good else strategies.values


@st.composite
def changes(draw: st.DrawFn, told: list[pgc.Relation], xid: int | None) -> Any:
    """A change of one of the tables; now and then of another width, or of none of them."""
    if not told or draw(st.integers(0, 15)) == 0:
        return draw(strategies.messages(xid is not None))
    table = draw(st.sampled_from(told))
    oids = [column.type_oid for column in table.columns]
    if draw(st.integers(0, 15)) == 0:
        oids = [*oids, 25] if draw(st.booleans()) else oids[:-1]

    def some_row() -> pgc.TupleData:
        columns = [draw(values_of(oid)) for oid in oids]
        return pgc.TupleData(b"".join(kind for kind, _ in columns), tuple(v for _, v in columns))

    kind = draw(st.sampled_from("IIUKODdT"))
    if kind == "T":
        return pgc.Truncate(xid, 0, tuple(each.oid for each in told))
    if kind == "I":
        return pgc.Insert(xid, table.oid, some_row())
    if kind in "Dd":
        old = some_row()
        return pgc.Delete(xid, table.oid, *((old, None) if kind == "d" else (None, old)))
    key, old_row = (some_row() if kind == "K" else None), (some_row() if kind == "O" else None)
    return pgc.Update(xid, table.oid, key, old_row, some_row())


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """A stream that makes sense, with some messages lost, doubled, damaged or out of place."""
    told = [
        pgc.Relation(
            None,
            oid,
            "public",
            f"t{oid}",
            draw(st.sampled_from("dnfi")),
            tuple(
                pgc.RelationColumn(draw(st.integers(0, 1)), f"c{at}", type_oid, typmod)
                for at, (type_oid, typmod) in enumerate(
                    draw(
                        st.lists(
                            st.tuples(
                                st.sampled_from(_OIDS) | st.sampled_from(list(_GOOD)),
                                st.sampled_from([-1, -1, 4, 655_366]) | strategies.int32,
                            ),
                            max_size=4,
                        )
                    )
                )
            ),
        )
        for oid in range(draw(st.integers(1, 3)))
    ]
    parts: list[Any] = []
    for number in range(draw(st.integers(1, 5))):
        xid, lsn = 100 + number, 1000 + 10 * number
        before = told if number == 0 else draw(st.sampled_from([[], told[:1]]))
        if draw(st.booleans()):
            inside = draw(st.lists(changes(told, None), max_size=6))
            parts += transaction(*before, *inside, xid=xid, lsn=lsn)
            continue
        block = [pgc.Relation(xid, *(getattr(r, n) for n in r.__slots__[1:])) for r in before]
        block += draw(st.lists(changes(told, draw(st.sampled_from([xid, xid + 50]))), max_size=5))
        parts += streamed(*block, xid=xid)
        parts += draw(
            st.sampled_from(
                [
                    [pgc.StreamCommit(xid, 0, lsn, lsn + 5, 0)],
                    [pgc.StreamAbort(xid, xid + 50, None, None)],
                    [pgc.StreamAbort(xid, xid, lsn, 0)],
                    [
                        pgc.StreamPrepare(0, lsn, lsn + 1, 0, xid, "g"),
                        pgc.CommitPrepared(0, lsn + 2, lsn + 3, 0, xid, "g"),
                    ],
                    [],
                ]
            )
        )
    messages = wire(parts)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(messages) - 1)) if messages else 0
        message = messages[place] if messages else b""
        cut = draw(st.integers(0, len(message)))
        messages[place : place + 1] = draw(
            st.sampled_from(
                [
                    [],
                    [message, message],
                    [message[:cut]],
                    [message[:cut] + bytes([draw(strategies.uint8)]) + message[cut + 1 :]],
                    [message, draw(strategies.contents)],
                ]
            )
        )
    return messages


def decode_in_calls(data: st.DataObject, messages: list[bytes]) -> None:
    pair = Pair(**options(data.draw(st.integers(0, 10_000))))
    cut = data.draw(st.integers(0, len(messages)))
    for part in (messages[:cut], messages[cut:]):
        pair.decode(part)


@settings(max_examples=150)
@given(streams(), st.data())
def test_any_stream(messages: list[bytes], data: st.DataObject) -> None:
    decode_in_calls(data, messages)


@pytest.mark.slow
@pytest.mark.thorough
@settings(max_examples=400)
@given(streams(), st.data())
def test_many_more_streams(messages: list[bytes], data: st.DataObject) -> None:
    decode_in_calls(data, messages)


@given(
    st.lists(
        st.one_of(strategies.messages(False), strategies.messages(True)).map(pgc.encode_message)
        | strategies.contents,
        max_size=12,
    ),
    st.data(),
)
def test_any_messages_in_any_order(messages: list[bytes], data: st.DataObject) -> None:
    decode_in_calls(data, messages)
