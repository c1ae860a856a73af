"""encode_batch: what comes out is what a server sends, in both implementations."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import textwrap
from typing import Any

import nanoarrow
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.reference.families import FAMILIES
from pgwire_codec.types import TypeRegistry
from tests.encoding import Encode, compiled, decoded, each, each_form, needs_core, reference, same
from tests.support.arrow_columns import KINDS, Kind, example_table, numeric, tables
from tests.support.build import (
    T,
    begin,
    column,
    commit,
    delete,
    insert,
    only,
    relation,
    row,
    update,
)
from tests.support.corpus import Capture, captures

# What comes back.


@each
@each_form
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_decoded_is_what_was_encoded(kind: Kind, encode: Encode, binary: bool) -> None:
    table = relation(1, kind.column("c"))

    @settings(max_examples=40)
    @given(kind.arrays().filter(len))
    def check(array: pa.Array) -> None:
        found = decoded(table, encode(table, {"c": array}, binary=binary)).new["c"].to_arrow()
        if isinstance(found, pa.ExtensionArray):
            found = found.storage
        assert found.cast(array.type).equals(array), (found, array)

    check()


@needs_core
@given(tables(), st.booleans())
def test_both_implementations_write_the_same_bytes(
    made: tuple[pgc.Relation, pa.Table], binary: bool
) -> None:
    table, columns = made
    messages = same(table, columns, binary=binary)
    assert len(messages) == columns.num_rows


@each
@each_form
def test_any_floats(encode: Encode, binary: bool) -> None:
    bits = [0, 1, 2**23, 2**31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001]
    narrow = np.array(bits, np.uint32).view(np.float32)
    wide = np.array([0.1, 1e15, 1e14, 123456.789, 1e-5, 1e-4, -1e22, 5e-324, np.nan, -np.inf])
    table = relation(1, column("f", "float4"), column("g", "float8"), column("h", "float8"))
    columns = [pa.array(narrow), pa.array(wide[:9]), pa.array(narrow)]
    batch = decoded(table, encode(table, columns, binary=binary))
    np.testing.assert_array_equal(batch.new["f"].to_numpy(), narrow)
    np.testing.assert_array_equal(batch.new["g"].to_numpy(), wide[:9])
    with np.errstate(invalid="ignore"):  # a signalling NaN
        np.testing.assert_array_equal(batch.new["h"].to_numpy(), narrow.astype(np.float64))


@needs_core
def test_floats_have_the_digits_that_the_server_writes() -> None:
    random_ = random.Random(8)
    wide = [random_.getrandbits(64) for _ in range(3000)]
    wide += [exponent << 52 | low for exponent in range(0, 2047, 3) for low in (0, 1)]
    # Integers near the middles between floats, where rules of rounding differ.
    wide += [
        int.from_bytes(struct.pack(">d", float(2**power + 2 * near)), "big")
        for power in range(50, 70)
        for near in range(-4, 5)
    ]
    narrow = [random_.getrandbits(32) for _ in range(3000)]
    narrow += [exponent << 23 | low for exponent in range(255) for low in (0, 1, 2**23 - 1)]
    for name, bits, dtype in (("float8", wide, np.uint64), ("float4", narrow, np.uint32)):
        values = np.array(bits, dtype).view(np.float64 if name == "float8" else np.float32)
        messages = compiled(relation(1, column("f", name)), [pa.array(values)]).to_pylist()
        size = np.dtype(dtype).itemsize
        for message, each_bits in zip(messages, bits, strict=True):
            (form,) = pgc.decode_message(message).new.values
            assert form == FAMILIES[name].render(each_bits.to_bytes(size, "big")), each_bits


# What a server sends.


def sent(batch: pgc.ChangeBatch, name: str) -> list[bytes | None]:
    """The forms of a column's values, None where none was sent."""
    found = batch.new[name]
    data = found.buffer.tobytes()
    places = zip(found.state.tolist(), found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [data[at : at + size] if state == 1 else None for state, at, size in places]


def has_other_bounds(array: pa.Array, form: bytes | None, binary: bool) -> bool:
    """Whether an array's first index is not 1, which a list does not tell."""
    if form is None or not pa.types.is_list(array.type):
        return False
    return form[16:20] not in (b"", b"\0\0\0\1") if binary else form[:1] == b"["


TYPES = captures("types", "v1-text") + captures("types", "v1-binary")


@each
@pytest.mark.parametrize("capture", TYPES, ids=str)
def test_values_are_written_as_the_server_sent_them(capture: Capture, encode: Encode) -> None:
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
        if base.oid != described.type_oid:  # a domain, of which the stream tells the base type
            types.register(described.type_oid, "domain", like=base.oid)
        messages = encode(table, [array], binary=binary, registry=types).to_pylist()
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


@each
def test_every_type_can_be_given_as_its_text(encode: Encode) -> None:
    (capture,) = captures("types", "v1-text", 18)
    compared = 0
    for batch in pgc.Decoder(types="text").decode(capture.messages).batches:
        described = next(each for each in batch.relation.columns if each.name == "v")
        messages = encode(relation(1, described), [batch.new["v"].to_arrow()]).to_pylist()
        for message, form in zip(messages, sent(batch, "v"), strict=True):
            assert pgc.decode_message(message).new.values == (form,)
            compared += 1
    assert compared > 480


# Which messages.

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


@each
@pytest.mark.parametrize("xid", [None, 0, 2**32 - 1])
def test_kinds_of_messages(encode: Encode, xid: int | None) -> None:
    def messages(table: pgc.Relation, columns: Any, **options: Any) -> list[Any]:
        written = encode(table, columns, xid=xid, **options).to_pylist()
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


@each
def test_unchanged_values(encode: Encode) -> None:
    masks = {"note": np.array([True, False, True]), "v": [False, True, False]}
    written = encode(T, ROWS, op="U", unchanged=masks).to_pylist()
    assert [pgc.decode_message(data) for data in written] == [
        update(1, row("1", "a", ...)),
        update(1, row("2", ..., "y")),
        update(1, row(None, "", ...)),
    ]


@each
def test_a_table_without_columns(encode: Encode) -> None:
    rows = pa.StructArray.from_buffers(pa.struct([]), 2, [None])
    assert encode(relation(3), rows).to_pylist() == [pgc.encode_message(insert(3))] * 2


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


@each
@each_form
@pytest.mark.parametrize("way", ways())
def test_ways_to_give_columns(encode: Encode, binary: bool, way: str) -> None:
    wanted = reference(T, ROWS, binary=binary).to_pylist()
    assert encode(T, ways()[way], binary=binary).to_pylist() == wanted


@each
def test_columns_of_polars(encode: Encode) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(pa.table(ROWS))
    assert encode(T, frame).to_pylist() == reference(T, ROWS).to_pylist()


@each
@each_form
def test_every_type_sliced_and_chunked(encode: Encode, binary: bool) -> None:
    table, columns = example_table()
    wanted = encode(table, columns, binary=binary).to_pylist()
    assert wanted == reference(table, columns, binary=binary).to_pylist()
    padded = pa.concat_tables([columns] * 3).combine_chunks()
    assert encode(table, padded.slice(3, 3), binary=binary).to_pylist() == wanted
    chunked = pa.concat_tables([padded.slice(6, 1), padded.slice(1, 2)])
    assert encode(table, chunked, binary=binary).to_pylist() == wanted
    for empty in (columns.slice(0, 0), columns.schema.empty_table()):
        assert encode(table, empty, binary=binary).to_pylist() == []


WIDENED = {
    "int8": pa.array([1, -7, None], pa.int8()),
    "int4": pa.array([2**31 - 1, 0, None], pa.uint64()),
    "oid": pa.array([5, 2**32 - 1, None], pa.int64()),
    "int2": pa.array([5, 255, None], pa.uint8()),
    "float8": pa.array([0.1, -1.5, None], pa.float32()),
    "numeric": pa.array([12, -1, None], pa.int16()),
    "time": pa.array([1, 86_399, None], pa.int32()).cast(pa.time32("s")),
    "timestamp": pa.array([-1_500, 10**12, None]).cast(pa.timestamp("ms")),
    "timestamptz": pa.array([-1_000, 10**18, None]).cast(pa.timestamp("ns", "Europe/Berlin")),
    "date": pa.array(["2024-02-29", "infinity", None]),
    "uuid": pa.array(["00000000-0000-0000-0000-0000000000ff"] * 2 + [None]),
    "bytea": pa.array([b"ab", b"\xff\x00", None], pa.binary(2)),
    "bool": pa.array(["t", "f", None], pa.string_view()),
    "int4[]": pa.array([[1, 2], [3, None], None], pa.list_(pa.int16(), 2)),
    "text[]": pa.array([["a"], [], None], pa.large_list(pa.string_view())),
    "inet[]": pa.array([["10.0.0.1"], [None], None]),
    "jsonb": pa.array(["{}", "x" * 30, None], pa.string_view()),
}


@each_form
@pytest.mark.parametrize("name", WIDENED)
def test_other_arrow_types_are_written_alike(name: str, binary: bool) -> None:
    table = relation(1, column("c", name))
    for rows in (WIDENED[name], WIDENED[name].slice(1)):
        messages = same(table, [rows], binary=binary)
        assert [pgc.decode_message(data).new.kinds == b"n" for data in messages] == [
            not valid for valid in rows.is_valid().to_pylist()
        ]
    batch = decoded(table, reference(table, [WIDENED[name]], binary=binary), unrepresentable="null")
    assert len(batch.new["c"].to_arrow()) == 3


@each
def test_scales_are_the_columns_own(encode: Encode) -> None:
    table = relation(1, column("c", "numeric", typmod=numeric(10, 2)))
    for array in (
        pa.array(["1", "-2.50", "0"]).cast(pa.decimal128(12, 4)),
        pa.array(["1", "-2.5", "0"]).cast(pa.decimal128(10, 1)),
        pa.array(["1", "-2.5", "0"]).cast(pa.decimal256(70, 2)),
    ):
        forms = [pgc.decode_message(data).new.values for data in encode(table, [array]).to_pylist()]
        assert forms == [(b"1.00",), (b"-2.50",), (b"0.00",)]


@each
def test_types_that_are_registered_or_not_known(encode: Encode) -> None:
    registry = TypeRegistry()
    registry.register(20_000, "mood", like="text")
    registry.register(20_001, "_mood", element="mood")
    table = relation(1, column("a", 20_000), column("b", 20_001), column("c", 20_002))
    moods = [pa.array(["sad"]), pa.array([["sad", None]]), pa.array([b"\x01"])]
    (data,) = encode(table, moods, registry=registry).to_pylist()
    assert pgc.decode_message(data).new == row("sad", "{sad,NULL}", b"\x01")
    (data,) = encode(
        table, [*moods[:2], pa.array(["x"])], registry=registry, binary=True
    ).to_pylist()
    assert pgc.decode_message(data).new.kinds == b"bbt"


# What comes out.


@each
def test_the_messages_are_an_arrow_array(encode: Encode) -> None:
    messages = encode(T, ROWS)
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


LEAKS = """
    import gc, resource, sys

    import pyarrow as pa
    import pgwire_codec as pgc
    from pgwire_codec._core.encode.batch import encode_batch
    from tests.support.arrow_columns import example_table
    from tests.support.build import column, relation

    table, columns = example_table()
    long = pa.table({"v": pa.array(["x" * 1000] * 2000, pa.string_view())})
    bad = pa.table({"v": pa.array([1, 2**40])})

    def once():
        for binary in (False, True):
            encode_batch(table, columns, binary=binary)
        encode_batch(relation(1, column("v")), long)
        try:
            encode_batch(relation(1, column("v", "int4")), bad)
        except pgc.EncodeError:
            pass

    def held():
        gc.collect()
        return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(100):  # caches fill: pyarrow's, and the interpreter's
        once()
    blocks, peak = held()
    for _ in range(100):
        once()
    after, peak_after = held()
    assert after - blocks < 100, (blocks, after)  # not one a round
    scale = 1 if sys.platform == "darwin" else 1024
    assert (peak_after - peak) * scale < 50_000_000, (peak, peak_after)
"""


@needs_core
@pytest.mark.slow  # memory of the process: a measure that a busy machine can blur
def test_nothing_is_leaked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LEAKS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
