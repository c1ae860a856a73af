"""encode_batch: what comes out is what a server sends."""

from __future__ import annotations

from typing import Any

import nanoarrow
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import pgwire_codec as pgc
from pgwire_codec import reference
from pgwire_codec.types import TypeRegistry
from tests.support.arrow_columns import KINDS, Kind, example_table
from tests.support.build import (
    T,
    begin,
    commit,
    delete,
    insert,
    only,
    relation,
    row,
    update,
)
from tests.support.corpus import Capture, captures
from tests.support.encoding import decoded, each_form
from tests.support.examples import examples

# Round trips.


@examples(10, 100)
@each_form
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_decoded_is_what_was_encoded(kind: Kind, binary: bool, examples: int) -> None:
    table = relation(1, kind.column("c"))

    @settings(max_examples=examples)
    @given(kind.arrays().filter(len))
    def check(array: pa.Array) -> None:
        found = (
            decoded(table, reference.encode_batch(table, {"c": array}, binary=binary))
            .new["c"]
            .to_arrow()
        )
        if isinstance(found, pa.ExtensionArray):
            found = found.storage
        assert found.cast(array.type).equals(array), (found, array)

    check()


# Forms that a server sends.


def sent(batch: pgc.ChangeBatch, name: str) -> list[bytes | None]:
    """The forms of a column's values, None if none was sent."""
    found = batch.new[name]
    data = found.buffer.tobytes()
    places = zip(found.state.tolist(), found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [data[at : at + size] if state == 1 else None for state, at, size in places]


def has_other_bounds(array: pa.Array, form: bytes | None, binary: bool) -> bool:
    """Return True if an array's first index is not 1, which a list does not contain."""
    if form is None or not pa.types.is_list(array.type):
        return False
    return form[16:20] not in (b"", b"\0\0\0\1") if binary else form[:1] == b"["


TYPES = captures("types", "v1-text") + captures("types", "v1-binary")


@pytest.mark.parametrize("capture", TYPES, ids=str)
def test_values_are_written_as_the_server_sent_them(capture: Capture) -> None:
    """Decoded from a capture and encoded again, every value is the same, byte for byte."""
    binary = capture.options == "v1-binary"
    native = strings = 0
    for batch in pgc.Decoder(unrepresentable="null").decode(capture.messages).batches:
        described = next(each for each in batch.relation.columns if each.name == "v")
        table = relation(1, described)
        array, forms = batch.new["v"].to_arrow(), sent(batch, "v")
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        is_text = pa.types.is_string(array.type)
        types = TypeRegistry()
        base = batch.new["v"].type.pg
        if base.oid != described.type_oid:  # a domain, whose base type the stream declares
            types.register(described.type_oid, "domain", like=base.oid)
        messages = reference.encode_batch(table, [array], binary=binary, registry=types).to_pylist()
        invalid = set(batch.new["v"].decode().invalid.tolist())
        for number, (message, form) in enumerate(zip(messages, forms, strict=True)):
            new = pgc.decode_message(message).new
            if number in invalid or (new.kinds == b"t") != (batch.new["v"].formats[number] == 0):
                continue
            if has_other_bounds(array, form, binary):
                continue
            assert new.values == (form,), (batch.relation.name, number, new)
            native, strings = native + (not is_text), strings + is_text
    assert native > 200
    assert strings > 30


def test_every_type_can_be_given_as_its_text() -> None:
    (capture,) = captures("types", "v1-text", 18)
    compared = 0
    for batch in pgc.Decoder(types="text").decode(capture.messages).batches:
        described = next(each for each in batch.relation.columns if each.name == "v")
        messages = reference.encode_batch(
            relation(1, described), [batch.new["v"].to_arrow()]
        ).to_pylist()
        for message, form in zip(messages, sent(batch, "v"), strict=True):
            assert pgc.decode_message(message).new.values == (form,)
            compared += 1
    assert compared > 480


# Kinds of messages.

ROWS = {
    "id": pa.array([1, 2, None], pa.int32()),
    "v": pa.array(["a", None, ""]),
    "note": pa.array(["x", "y", "z"]),
}
NEW = [row("1", "a", "x"), row("2", None, "y"), row(None, "", "z")]
OLD = {
    "id": pa.array([7, 8, 9]),
    "v": pa.array(["o"] * 3),
    "note": pa.array([None] * 3, pa.string()),
}
FULL = relation(1, *T.columns, identity="f")
KEYS = [row(number, None, None) for number in "789"]
FULL_OLD = [row(number, "o", None) for number in "789"]


@pytest.mark.parametrize("xid", [None, 0, 2**32 - 1])
def test_kinds_of_messages(xid: int | None) -> None:
    def messages(table: pgc.Relation, columns: Any, **options: Any) -> list[Any]:
        written = reference.encode_batch(table, columns, xid=xid, **options).to_pylist()
        return [pgc.decode_message(data, streaming=xid is not None) for data in written]

    def with_xid(made: list[Any]) -> list[Any]:
        return [
            type(each)(xid, *(getattr(each, name) for name in each.__slots__[1:])) for each in made
        ]

    inserts = [pgc.Insert(xid, 1, new) for new in NEW]
    assert messages(T, ROWS) == inserts
    assert messages(T, ROWS, op="U") == with_xid([update(1, new) for new in NEW])
    assert messages(T, ROWS, op="U", old=OLD) == with_xid(
        [update(1, new, key=key) for new, key in zip(NEW, KEYS, strict=True)]
    )
    assert messages(FULL, ROWS, op="U", old=OLD) == with_xid(
        [update(1, new, old=old) for new, old in zip(NEW, FULL_OLD, strict=True)]
    )
    assert messages(T, OLD, op="D") == with_xid([delete(1, key=key) for key in KEYS])
    assert messages(T, {"id": OLD["id"]}, op="D") == messages(T, OLD, op="D")
    assert messages(FULL, OLD, op="D") == with_xid([delete(1, old=old) for old in FULL_OLD])


def test_unchanged_values() -> None:
    masks = {"note": np.array([True, False, True]), "v": [False, True, False]}
    written = reference.encode_batch(T, ROWS, op="U", unchanged=masks).to_pylist()
    assert [pgc.decode_message(data) for data in written] == [
        update(1, row("1", "a", ...)),
        update(1, row("2", ..., "y")),
        update(1, row(None, "", ...)),
    ]


def test_a_table_without_columns() -> None:
    rows = pa.StructArray.from_buffers(pa.struct([]), 2, [None])
    messages = reference.encode_batch(relation(3), rows).to_pylist()
    assert messages == [pgc.encode_message(insert(3))] * 2


# How columns are given.


def ways() -> dict[str, Any]:
    """The same rows, given in each way there is."""
    table = pa.table(ROWS)
    padded = pa.concat_tables([table.slice(2), table, table.slice(0, 1)]).combine_chunks()
    struct_ = pa.StructArray.from_arrays(
        [padded[name].combine_chunks() for name in ROWS], names=list(ROWS)
    )
    halves = {
        name: pa.chunked_array([array.slice(0, cut), array.slice(cut)])
        for (name, array), cut in zip(ROWS.items(), (1, 2, 0), strict=True)
    }
    return {
        "table": table,
        "record batch": table.to_batches()[0],
        "chunked table": pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        "slice of a table": padded.slice(1, 3),
        "slice of a struct": struct_.slice(1, 3),
        "other order": table.select(["note", "id", "v"]),
        "mapping": ROWS,
        "sequence": list(ROWS.values()),
        "mapping of arrays chunked in different places": halves,
        "nanoarrow": nanoarrow.Array(table),
        "numpy and views": {
            "id": ROWS["id"],
            "v": ROWS["v"].cast(pa.string_view()),
            "note": ROWS["note"].cast(pa.large_string()),
        },
    }


@each_form
@pytest.mark.parametrize("way", ways())
def test_ways_to_give_columns(binary: bool, way: str) -> None:
    wanted = reference.encode_batch(T, ROWS, binary=binary).to_pylist()
    assert reference.encode_batch(T, ways()[way], binary=binary).to_pylist() == wanted


def test_columns_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(pa.table(ROWS))
    assert (
        reference.encode_batch(T, frame).to_pylist() == reference.encode_batch(T, ROWS).to_pylist()
    )


@each_form
def test_every_type_sliced_and_chunked(binary: bool) -> None:
    table, columns = example_table()
    wanted = reference.encode_batch(table, columns, binary=binary).to_pylist()
    padded = pa.concat_tables([columns] * 3).combine_chunks()
    assert reference.encode_batch(table, padded.slice(3, 3), binary=binary).to_pylist() == wanted
    chunked = pa.concat_tables([padded.slice(6, 1), padded.slice(1, 2)])
    assert reference.encode_batch(table, chunked, binary=binary).to_pylist() == wanted
    for empty in (columns.slice(0, 0), columns.schema.empty_table()):
        assert reference.encode_batch(table, empty, binary=binary).to_pylist() == []


# Results.


def test_the_messages_are_an_arrow_array() -> None:
    messages = reference.encode_batch(T, ROWS)
    assert isinstance(messages, nanoarrow.Array)
    array = pa.array(messages)
    del messages
    assert array.type == pa.large_binary()
    assert array.null_count == 0
    assert array.to_pylist() == [
        pgc.encode_message(insert(1, *each))
        for each in zip(("1", "2", None), ("a", None, ""), "xyz", strict=True)
    ]
    stream = pa.chunked_array(
        [
            [pgc.encode_message(begin()), pgc.encode_message(T)],
            array,
            [pgc.encode_message(commit())],
        ],
        pa.large_binary(),
    )
    assert len(only(pgc.Decoder().decode(stream))) == 3
