"""Inputs of messages: every one becomes message arrays, without needless copies or guesses."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.codec.message_array import Messages, to_lsns, to_message_arrays
from tests.support.build import T, insert, only, transaction, wire

LONG = b"a message of more than twelve bytes"
SOME = [b"", b"short", LONG, b"\0\0", LONG * 3, b"twelve bytes", b"thirteen byte"]

ARROW_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def message_arrays(messages: object) -> list[Messages]:
    return to_message_arrays(messages, pgc.Decoder.codec)


each_arrow_type = pytest.mark.parametrize("kind", ARROW_TYPES, ids=str)


def taken(messages: object) -> list[list[bytes]]:
    """The messages of each input array."""
    inputs = message_arrays(messages)
    for each in inputs:
        assert each.data.dtype == np.uint8
        assert not each.data.flags.writeable
        assert each.offsets.dtype == np.int64
        assert len(each.offsets) == len(each) + 1
        assert [each.tag(i) for i in range(len(each))] == [each[i][:1] for i in range(len(each))]
    return [[each[i] for i in range(len(each))] for each in inputs]


# Sequences of bytes-likes.


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("container", [list, tuple, iter], ids=lambda each: each.__name__)
def test_sequence(kind: type, container: Callable[[Any], Any]) -> None:
    assert taken(container([kind(each) for each in SOME])) == [SOME]


def test_empty_sequence_is_one_empty_input() -> None:
    assert taken([]) == [[]]


def test_memoryview_of_wider_items_is_its_bytes() -> None:
    assert taken([memoryview(np.array([1, 2], "<u2"))]) == [[b"\1\0\2\0"]]


def test_memoryview_with_strides_is_what_it_shows() -> None:
    assert taken([memoryview(b"a-b-c-")[::2], b"d"]) == [[b"abc", b"d"]]


def test_numpy_objects() -> None:
    assert taken(np.array(SOME, object)) == [SOME]


def test_numpy_bytes_strings_have_lost_their_zero_bytes() -> None:
    assert np.array([b"a\0"])[0] == b"a"  # numpy's own doing
    with pytest.raises(TypeError, match="zero bytes"):
        message_arrays(np.array([b"a\0"]))


@pytest.mark.parametrize(
    "messages",
    ["B", b"B", bytearray(b"B"), memoryview(b"B"), None, 7, 7.0, {}, {b"B": 1}, object()],
    ids=lambda each: type(each).__name__,
)
def test_what_is_no_sequence_of_messages(messages: object) -> None:
    with pytest.raises(TypeError, match=f"messages must be.*not {type(messages).__name__}"):
        message_arrays(messages)
    with pytest.raises(TypeError, match="messages must be"):
        pgc.Decoder().decode(messages)


@pytest.mark.parametrize("message", ["B", None, 66, [66]], ids=lambda each: type(each).__name__)
def test_what_is_no_message(message: object) -> None:
    with pytest.raises(TypeError, match=f"message 1 is {type(message).__name__}"):
        message_arrays([b"B", message])


# Arrow arrays.


@each_arrow_type
def test_array(kind: pa.DataType) -> None:
    assert taken(pa.array(SOME, kind)) == [SOME]


@each_arrow_type
def test_empty_array(kind: pa.DataType) -> None:
    assert taken(pa.array([], kind)) == [[]]
    assert taken(pa.array(SOME, kind).slice(2, 0)) == [[]]


@each_arrow_type
def test_array_of_empty_messages(kind: pa.DataType) -> None:
    assert taken(pa.array([b"", b""], kind)) == [[b"", b""]]


@each_arrow_type
@given(
    st.lists(st.binary(max_size=30), max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_slice(kind: pa.DataType, messages: list[bytes], start: int, length: int) -> None:
    start = min(start, len(messages))
    sliced = pa.array(messages, kind).slice(start, length)
    assert taken(sliced) == [messages[start : start + length]]


@each_arrow_type
def test_chunks_are_inputs_of_their_own(kind: pa.DataType) -> None:
    chunked = pa.chunked_array([SOME[:2], [], SOME[2:]], kind)
    assert taken(chunked) == [SOME[:2], [], SOME[2:]]
    assert taken(chunked.slice(1, 2)) == [SOME[1:2], [], SOME[2:3]]
    assert taken(pa.chunked_array([], kind)) == []


@each_arrow_type
def test_null_message(kind: pa.DataType) -> None:
    array = pa.array([b"a", None, LONG], kind)
    with pytest.raises(ValueError, match="message 1 is null"):
        message_arrays(array)
    with pytest.raises(ValueError, match="message 0 is null"):
        message_arrays(array.slice(1))


@each_arrow_type
def test_null_outside_of_the_slice_does_not_matter(kind: pa.DataType) -> None:
    array = pa.array([None, *([b"a"] * 7), LONG, b"c", None], kind)
    assert taken(array.slice(8, 2)) == [[LONG, b"c"]]


def test_validity_bitmap_without_nulls() -> None:
    """null_count -1 is Arrow for "not counted yet"."""
    plain = pa.array([b"a", LONG])
    bitmap = pa.py_buffer(b"\xff")
    counted = pa.Array.from_buffers(pa.binary(), 2, [bitmap, *plain.buffers()[1:]], null_count=-1)
    assert taken(counted) == [[b"a", LONG]]


def test_nanoarrow_arrays() -> None:
    assert taken(na.Array(SOME, na.binary())) == [SOME]
    assert taken(na.c_array(SOME, na.binary())) == [SOME]


def test_polars_series() -> None:
    pl = pytest.importorskip("polars")
    assert taken(pl.Series(SOME)) == [SOME]
    assert taken(pl.Series(SOME).slice(1, 3)) == [SOME[1:4]]
    assert taken(pl.Series(SOME[:2]).append(pl.Series(SOME[2:]))) == [SOME[:2], SOME[2:]]
    with pytest.raises(ValueError, match="message 1 is null"):
        message_arrays(pl.Series([b"a", None]))
    with pytest.raises(TypeError, match="Arrow format"):
        message_arrays(pl.Series(["a"]))


@pytest.mark.parametrize(
    ("array", "form"),
    [
        (pa.array(["a"]), "'u'"),
        (pa.array([1]), "'l'"),
        (pa.array([b"ab"], pa.binary(2)), "'w:2'"),
        (pa.array([[b"a"]]), r"'\+l'"),
        (pa.nulls(1), "'n'"),
        (pa.record_batch({"data": [b"a"]}), r"'\+s'"),
        (pa.table({"data": [b"a"]}), r"'\+s'"),
        (pa.chunked_array([["a"]]), "'u'"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_arrow_types(array: object, form: str) -> None:
    with pytest.raises(TypeError, match=f"messages must be.*not Arrow format {form}"):
        message_arrays(array)


# Nothing is copied, and nothing goes away.


@pytest.mark.parametrize("kind", ARROW_TYPES[:2], ids=str)
def test_arrow_bytes_are_not_copied(kind: pa.DataType) -> None:
    array = pa.array(SOME, kind)
    sliced = array.slice(2)
    for each in (array, sliced):
        (messages,) = message_arrays(each)
        assert np.shares_memory(messages.data, np.frombuffer(array.buffers()[2], np.uint8))


def test_large_binary_offsets_are_not_copied() -> None:
    array = pa.array(SOME, pa.large_binary())
    (messages,) = message_arrays(array)
    assert np.shares_memory(messages.offsets, np.frombuffer(array.buffers()[1], np.int64))


@each_arrow_type
def test_bytes_outlive_the_array(kind: pa.DataType) -> None:
    gc.collect()  # what earlier tests left must not count
    before = pa.total_allocated_bytes()
    array = pa.array([bytes([i]) * 100_000 for i in range(10)], kind)
    (messages,) = message_arrays(array)
    del array
    gc.collect()
    assert [messages[i] for i in range(10)] == [bytes([i]) * 100_000 for i in range(10)]
    if kind != pa.binary_view():  # whose bytes are joined, so that nothing of it is needed
        assert pa.total_allocated_bytes() >= before + 1_000_000
    del messages
    gc.collect()
    assert pa.total_allocated_bytes() < before + 1_000_000


class Producer:
    """Exporter of an Arrow array that counts on its consumer to keep it."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.array = pa.array(messages)

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.array.__arrow_c_array__(requested_schema)


def test_any_object_with_the_arrow_interface() -> None:
    assert taken(Producer(SOME)) == [SOME]


def test_a_sequence_can_be_changed_after_decoding() -> None:
    data = [bytearray(each) for each in wire(transaction(T, insert(1, "1", "before", None)))]
    batch = only(pgc.Decoder().decode(data))
    for each in data:
        each[:] = bytes(len(each))
    assert batch.new["v"].to_pylist() == ["before"]


def test_columns_keep_the_input_alive() -> None:
    class Owned(np.ndarray):  # an ndarray that can be watched
        pass

    data = b"".join(parts := wire(transaction(T, insert(1, "1", "kept", None))))
    owned = np.frombuffer(data, np.uint8).view(Owned)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in parts])]).astype(np.int64)
    gone = weakref.ref(owned)
    array = na.c_array_from_buffers(na.large_binary(), len(parts), [None, offsets, owned])
    column = only(pgc.Decoder().decode(array)).new["v"]
    del array, owned
    gc.collect()
    assert gone() is not None
    assert column.to_pylist() == ["kept"]
    del column
    gc.collect()
    assert gone() is None


# LSNs.


def lsns(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.uint64)


@pytest.mark.parametrize(
    "given_",
    [
        [1, 2],
        (1, 2),
        np.array([1, 2]),
        np.array([1, 2], np.uint32),
        np.array([1, 2], np.uint64),
        pa.array([1, 2]),
        pa.array([1, 2], pa.uint64()),
        pa.array([1, 2], pa.int32()),
        pa.array([0, 1, 2, 3]).slice(1, 2),
        pa.array([None, 1, 2, None], pa.uint64()).slice(1, 2),
        pa.chunked_array([[1], [2]]),
        na.Array([1, 2], na.int64()),
    ],
    ids=lambda each: type(each).__name__,
)
def test_lsns(given_: object) -> None:
    taken_ = to_lsns(given_, 2)
    assert taken_ is not None
    assert taken_.dtype == np.uint64
    assert taken_.tolist() == [1, 2]


def test_lsns_have_64_bits() -> None:
    highest = to_lsns(np.array([2**64 - 1], np.uint64), 1)
    assert highest is not None
    assert highest.tolist() == [2**64 - 1]


def test_lsns_of_uint64_are_not_copied() -> None:
    given_ = lsns(1, 2)
    taken_ = to_lsns(given_, 2)
    assert taken_ is not None
    assert np.shares_memory(given_, taken_)


def test_no_lsns() -> None:
    assert to_lsns(None, 2) is None
    for empty in ([], pa.array([], pa.int64()), lsns()):
        taken_ = to_lsns(empty, 0)
        assert taken_ is not None
        assert taken_.tolist() == []


@pytest.mark.parametrize("given_", [[1], [1, 2, 3], [], [[1, 2]], "0/1", 5], ids=repr)
def test_lsns_not_one_a_message(given_: object) -> None:
    with pytest.raises(ValueError, match="one LSN a message: 2"):
        to_lsns(given_, 2)


@pytest.mark.parametrize(
    "given_",
    [["0/1", "0/2"], [1.0, 2.0], [True, False], [1, None], pa.array([1.0, 2.0])],
    ids=["text", "floats", "booleans", "a null", "Arrow floats"],  # repr() would have an address
)
def test_lsns_that_are_no_integers(given_: object) -> None:
    with pytest.raises(TypeError, match="lsn must be integers"):
        to_lsns(given_, 2)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int32()], ids=str)
def test_null_lsns(kind: pa.DataType) -> None:
    for array in (pa.array([1, None], kind), pa.array([0, 1, None], kind).slice(1)):
        with pytest.raises(ValueError, match="Null present"):
            to_lsns(array, 2)


@pytest.mark.parametrize("given_", [[5, -1], np.array([5, -1]), pa.array([5, -1])], ids=type)
def test_lsns_below_0(given_: object) -> None:
    with pytest.raises(ValueError, match="not -1"):
        to_lsns(given_, 2)


def test_lsns_go_with_their_messages_across_chunks() -> None:
    data = wire([*transaction(T, insert(1, "1", None, None), insert(1, "2", None, None))])
    chunked = pa.chunked_array([data[:3], data[3:]])
    changes = pgc.Decoder().decode(chunked, lsn=range(10, 10 + len(data)))
    assert [each.lsn.tolist() for each in changes if each.lsn is not None] == [[12], [13]]


def test_a_wrong_number_of_lsns_leaves_the_decoder_as_it_was() -> None:
    data = wire(transaction(T, insert(1, "1", None, None)))
    decoder = pgc.Decoder()
    with pytest.raises(ValueError, match="one LSN a message"):
        decoder.decode(data, lsn=[1])
    assert decoder.relations == {}
    assert len(only(decoder.decode(data, lsn=range(len(data))))) == 1


def test_messages_are_indexed_from_the_first_of_a_slice() -> None:
    (messages,) = message_arrays(pa.array(SOME).slice(2))
    assert isinstance(messages, Messages)
    assert messages[0] == LONG
