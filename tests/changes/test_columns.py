"""Column: four states, where the bytes are, values; the options of a decoder."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.errors import ErrorCode
from pgwire_codec.lake.row_types import ROW_TYPES
from tests.support.build import (
    T,
    Value,
    batch,
    column,
    commit,
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

NULL, VALUE, UNCHANGED, NOT_SENT = range(4)
ALL_NOT_SENT = [[NOT_SENT]] * 3

#: A table under REPLICA IDENTITY FULL: every column is flagged as key.
FULL = relation(
    1,
    column("id", "int4", key=True),
    column("v", key=True),
    column("note", key=True),
    identity="f",
)


def states(columns: Any) -> list[list[int]]:
    return [each.state.tolist() for each in columns.values()]


# The four states.


def test_value_null_and_unchanged_in_a_new_tuple() -> None:
    made = batch(update(1, row("1", None, ...)))
    assert states(made.new) == [[VALUE], [NULL], [UNCHANGED]]
    assert states(made.old) == ALL_NOT_SENT


def test_an_insert_can_hold_an_unchanged_value() -> None:
    """A row filter turns an update into an insert."""
    made = batch(insert(1, "1", "a", ...))
    assert states(made.new) == [[VALUE], [VALUE], [UNCHANGED]]


def test_a_key_tuple_does_not_send_what_is_not_part_of_the_key() -> None:
    made = batch(update(1, row("2", "a", "b"), key=row("1", None, None)))
    assert states(made.old) == [[VALUE], [NOT_SENT], [NOT_SENT]]
    assert made.old["id"].to_pylist() == [1]
    assert made.new["id"].to_pylist() == [2]


def test_a_key_tuple_of_another_key_does_not_send_the_key() -> None:
    """A partition's key can be another one than its root's, and a key has no NULL."""
    made = batch(update(1, row("2", "a", "b"), key=row(None, "x", None)))
    assert states(made.old) == [[NOT_SENT], [VALUE], [NOT_SENT]]
    assert made.partial_keys.tolist() == [True]


def test_a_key_tuple_s_values_count_even_outside_of_the_key() -> None:
    made = batch(update(1, row("2", "a", "b"), key=row("1", "x", ...)))
    assert states(made.old) == [[VALUE], [VALUE], [UNCHANGED]]
    assert made.old["v"].to_pylist() == ["x"]


def test_null_in_an_old_tuple_is_null() -> None:
    made = batch(update(1, row("1", "a", "b"), old=row("1", None, "b")), relation=FULL)
    assert states(made.old) == [[VALUE], [NULL], [VALUE]]


def test_null_in_an_old_tuple_is_null_even_outside_of_the_key() -> None:
    made = batch(update(1, row("1", "a", "b"), old=row("1", None, "b")))
    assert states(made.old) == [[VALUE], [NULL], [VALUE]]


def test_unchanged_values_in_old_tuples() -> None:
    made = batch(
        delete(1, key=row(..., None, None)), delete(1, old=row("1", ..., None)), relation=T
    )
    assert states(made.old) == [[UNCHANGED, VALUE], [NOT_SENT, UNCHANGED], [NOT_SENT, NULL]]


def test_a_new_key_can_be_unchanged_while_the_old_one_is_sent() -> None:
    made = batch(update(1, row(..., "a", None), key=row("1", None, None)))
    assert states(made.new) == [[UNCHANGED], [VALUE], [NULL]]
    assert states(made.old) == [[VALUE], [NOT_SENT], [NOT_SENT]]


def test_deletes_and_truncates_have_no_new_tuple() -> None:
    made = batch(delete(1, key=row("1", None, None)), truncate(1))
    assert states(made.new) == [[NOT_SENT, NOT_SENT]] * 3
    assert states(made.old) == [[VALUE, NOT_SENT], [NOT_SENT] * 2, [NOT_SENT] * 2]


def test_length_0_is_a_value() -> None:
    made = batch(insert(1, "1", "", None))
    assert states(made.new) == [[VALUE], [VALUE], [NULL]]
    assert made.new["v"].lengths.tolist() == [0]
    assert made.new["v"].to_pylist() == [""]
    assert made.new["note"].to_pylist() == [None]


def test_kinds_of_values_can_be_mixed_in_a_column() -> None:
    made = batch(insert(1, "1", "a", None), insert(1, b"\0\0\0\2", b"b", None))
    assert made.new["id"].formats.tolist() == [0, 1]
    assert made.new["id"].to_pylist() == [1, 2]
    assert made.new["v"].to_pylist() == ["a", "b"]


sent = st.one_of(
    st.sampled_from([None, ...]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8),
)


@given(st.lists(st.tuples(sent, sent), min_size=1, max_size=8))
def test_any_rows(rows: list[tuple[Value, Value]]) -> None:
    made = batch(*(insert(1, str(i), *each) for i, each in enumerate(rows)))
    assert made.new["id"].to_pylist() == list(range(len(rows)))
    for number, name in ((0, "v"), (1, "note")):
        values = [each[number] for each in rows]
        wanted = [{None: NULL, ...: UNCHANGED}.get(each, VALUE) for each in values]
        assert made.new[name].state.tolist() == wanted
        assert made.new[name].to_pylist() == [
            each if isinstance(each, str) else None for each in values
        ]


# Tuples that do not have their Relation's width.


def test_a_wider_tuple_is_read_and_told_of() -> None:
    changes = decode(transaction(T, insert(1, "1", "a", "b"), insert(1, "2", "c", "d", "more")))
    made = only(changes)
    assert made.new["note"].to_pylist() == ["b", "d"]
    assert list(made.new) == ["id", "v", "note"]
    (warning,) = changes.warnings
    assert (warning.code, warning.message_index, warning.offset) == (ErrorCode.TOO_WIDE, 3, 6)
    assert warning.expected == "3 columns of public.t, not 4"
    assert changes.rejected == []


def test_a_narrower_tuple_is_read_and_told_of() -> None:
    changes = decode(transaction(T, insert(1, "1"), delete(1, old=row("1", None))))
    made = only(changes)
    assert states(made.new) == [[VALUE, NOT_SENT], [NOT_SENT] * 2, [NOT_SENT] * 2]
    assert states(made.old) == [[NOT_SENT, VALUE], [NOT_SENT, NULL], [NOT_SENT] * 2]
    assert [(each.code, each.message_index) for each in changes.warnings] == [
        (ErrorCode.TOO_NARROW, 2),
        (ErrorCode.TOO_NARROW, 3),
    ]


def test_odd_widths_are_told_of_in_the_order_of_the_messages() -> None:
    other = relation(2, column("a"), name="other")
    changes = decode(
        transaction(T, other, insert(2), insert(1, "1"), insert(2, "a"), insert(2, "a", "b"))
    )
    assert [(each.message_index, each.code) for each in changes.warnings] == [
        (3, ErrorCode.TOO_NARROW),
        (4, ErrorCode.TOO_NARROW),
        (6, ErrorCode.TOO_WIDE),
    ]


def test_odd_widths_are_told_of_among_many_transactions() -> None:
    messages = [T]
    for number in range(30):
        values = ("1", "a", None, "more") if number == 20 else ("1", "a", None)
        messages += transaction(insert(1, *values), lsn=100 + number)
    changes = decode(messages)
    assert len(only(changes)) == 30
    (warning,) = changes.warnings
    assert (warning.code, warning.message_index) == (ErrorCode.TOO_WIDE, 1 + 3 * 20 + 1)


def test_tuples_of_the_right_width_are_not_told_of() -> None:
    changes = decode(transaction(T, insert(1, "1", None, None), truncate(1)))
    assert changes.warnings == []


# Positions of the bytes.


def test_values_are_views_of_the_input() -> None:
    data = pa.array(wire(transaction(T, insert(1, "12", "abc", None))))
    made = only(pgc.Decoder().decode(data))
    memory = np.frombuffer(data.buffers()[2], np.uint8)
    for columns in (made.new, made.old):
        for each in columns.values():
            assert np.shares_memory(each.buffer, memory)
            assert len(each.buffer) == len(memory)
            assert not each.buffer.flags.writeable
    each = made.new["v"]
    start, length = each.offsets[0], each.lengths[0]
    assert each.buffer[start : start + length].tobytes() == b"abc"


def test_arrays_of_a_column() -> None:
    each = batch(insert(1, "1", "a", None), insert(1, "2", "b", None)).new["v"]
    assert (each.name, len(each), each.type.pg.name) == ("v", 2, "text")
    arrays = (each.state, each.offsets, each.lengths, each.formats, each.buffer)
    assert [array.dtype for array in arrays] == [np.uint8, np.int64, np.int32, np.uint8, np.uint8]
    assert [len(array) for array in arrays[:4]] == [2] * 4


def test_views_of_strings_are_views_of_the_input() -> None:
    text = "a text that is too long to lie in the view itself"
    data = pa.array(wire(transaction(T, insert(1, "1", text, "short"))))
    made = only(pgc.Decoder(strings="view").decode(data))
    array = made.new["v"].to_arrow()
    assert array.type == pa.string_view()
    assert array.to_pylist() == [text]
    memory = np.frombuffer(data.buffers()[2], np.uint8)
    assert any(
        np.shares_memory(np.frombuffer(buffer, np.uint8), memory)
        for buffer in array.buffers()[2:]
        if buffer is not None
    )
    assert made.new["note"].to_arrow().to_pylist() == ["short"]


# The mappings.


def test_columns_are_a_mapping_in_the_table_s_order() -> None:
    made = batch(insert(1, "1", "a", None))
    assert list(made.new) == list(made.old) == ["id", "v", "note"]
    assert len(made.new) == 3
    assert "v" in made.new
    assert "V" not in made.new
    assert made.new["v"] is made.new["v"]
    with pytest.raises(KeyError):
        made.new["none"]


def test_current_is_the_new_tuple_or_the_deleted_one() -> None:
    made = batch(
        update(1, row("2", "b", None), key=row("1", None, None)),
        delete(1, key=row("3", None, None)),
    )
    assert made.current["id"].to_pylist() == [2, 3]
    assert made.current["v"].state.tolist() == [VALUE, NOT_SENT]


# Values.


def one(kind: str, *values: Value, **options: Any) -> pgc.Column:
    """The column ``v`` of inserts that hold these values."""
    table = relation(1, column("v", kind, typmod=options.pop("typmod", -1)))
    return batch(*(insert(1, each) for each in values), relation=table, **options).new["v"]


def masked(values: Any) -> list[Any]:
    assert isinstance(values, np.ma.MaskedArray)
    return list(values.tolist())


def test_to_numpy() -> None:
    numbers = one("int4", "1", "-2").to_numpy()
    assert type(numbers) is np.ndarray
    assert (numbers.dtype, numbers.tolist()) == (np.int32, [1, -2])
    assert masked(one("int4", "1", None, ...).to_numpy()) == [1, None, None]
    times = one("timestamp", "2024-01-02 03:04:05", None).to_numpy()
    assert times.dtype == "datetime64[us]"
    assert np.isnat(times).tolist() == [False, True]
    assert one("text", "a", None).to_numpy().tolist() == ["a", None]


def test_to_arrow_of_a_column() -> None:
    array = one("int8", "1", None, ..., "4").to_arrow()
    assert array.equals(pa.array([1, None, None, 4], pa.int64()))


def test_a_column_is_taken_by_its_arrow_interface() -> None:
    values = one("text", "a", None)
    assert pa.array(values).equals(pa.array(["a", None]))
    assert na.Array(values).to_pylist() == ["a", None]
    polars = pytest.importorskip("polars")
    assert polars.Series(values).to_list() == ["a", None]


def test_types_text_gives_every_column_as_the_server_writes_it() -> None:
    values = one("int4", "007", b"\0\0\0\7", None, types="text")
    assert values.to_pylist() == ["007", "7", None]
    assert values.to_arrow().type == pa.string()


@pytest.mark.parametrize(
    ("option", "kind", "values"),
    [
        ("string", pa.string(), ["0.10", None]),
        ("float64", pa.float64(), [0.1, None]),
        ("decimal128(38,2)", pa.decimal128(38, 2), ["0.10", None]),
        ("decimal256(76, 2)", pa.decimal256(76, 2), ["0.10", None]),
    ],
)
def test_numeric_without_precision(option: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    array = one("numeric", "0.10", None, numeric=option).to_arrow()
    assert array.type == kind
    text = [None if each is None else str(each) for each in array.to_pylist()]
    assert text == [None if each is None else str(each) for each in values]


def test_user_types_of_the_stream_and_of_a_registry() -> None:
    domain = pgc.Type(None, 16400, "", "int4")
    table = relation(1, column("v", 16400), column("mood", 16500))
    registry = pgc.TypeRegistry()
    pgc.register_type(16500, "mood", like="text", registry=registry)
    messages = transaction(domain, table, insert(1, "5", b"glad"))
    made = only(decode(messages, registry=registry))
    assert made.new["v"].to_pylist() == [5]
    assert made.new["mood"].to_pylist() == ["glad"]
    untold = only(decode(messages))
    assert untold.new["mood"].to_pylist() == [b"glad"]  # its binary form, of who knows what


# Values that do not decode, without on_error="skip".


def test_a_value_that_does_not_decode_says_where() -> None:
    messages = wire(transaction(T, insert(1, "1", "a", None), insert(1, "x2", "b", None)))
    messages_before = wire(transaction(lsn=50))
    made = only(pgc.Decoder().decode(pa.chunked_array([messages_before, messages])))
    assert made.new["v"].to_pylist() == ["a", "b"]  # a good column is not harmed
    with pytest.raises(pgc.DecodeError) as raised:
        made.new["id"].to_pylist()
    error = raised.value
    assert (error.code, error.message_index) == (ErrorCode.BAD_VALUE, 2 + 3)
    assert error.context == "column id (int4)"
    assert messages[3][error.offset :].startswith(b"x2")


def test_a_value_that_the_type_cannot_hold_says_where() -> None:
    table = relation(1, column("d", "date"))
    messages = wire(transaction(table, insert(1, "2024-01-01"), insert(1, "infinity")))
    made = only(pgc.Decoder().decode(messages))
    with pytest.raises(pgc.DecodeError) as raised:
        made.new["d"].to_arrow()
    assert (raised.value.code, raised.value.message_index) == (ErrorCode.UNREPRESENTABLE, 3)
    assert messages[3][raised.value.offset :] == b"infinity"


def test_values_not_asked_for_are_not_decoded() -> None:
    made = batch(insert(1, "x", "a", None))
    assert made.to_arrow(columns=["v"]).column("v").to_pylist() == ["a"]


# Options.


@pytest.mark.parametrize(
    "options",
    [
        {"types": "arrow"},
        {"numeric": "decimal"},
        {"numeric": "decimal128(39,0)"},
        {"numeric": "decimal128(3,4)"},
        {"numeric": "decimal256(77,0)"},
        {"strings": "views"},
        {"before": "all"},
        {"before": None},
        {"unrepresentable": "drop"},
        {"on_error": "ignore"},
        {"arrow_types": "pandas"},
        {"arrow_types": ROW_TYPES, "strings": "view"},
    ],
    ids=str,
)
def test_options_that_are_none(options: dict[str, Any]) -> None:
    (name, *_) = options
    with pytest.raises(pgc.OptionError, match=name if len(options) == 1 else "Spark") as raised:
        pgc.Decoder(**options)
    assert isinstance(raised.value, ValueError)


def test_options_are_named() -> None:
    with pytest.raises(TypeError):
        pgc.Decoder(True)
    with pytest.raises(TypeError, match="typo"):
        pgc.Decoder(typo=True)


def test_a_new_decoder_knows_nothing() -> None:
    decoder = pgc.Decoder()
    assert dict(decoder.relations) == {}
    assert decoder.pending == []
    with pytest.raises(pgc.DecodeError):
        decoder.decode(wire([commit()]))


def test_options_as_one_value() -> None:
    options = pgc.DecoderOptions(types="text", before="full")
    assert pgc.Decoder(options=options).options == options
    assert pgc.Decoder(types="text", before="full").options == options
    with pytest.raises(pgc.OptionError, match="options= excludes"):
        pgc.Decoder(options=options, before="none")
    wrong: Any
    for wrong in ("text", {"types": "text"}):
        with pytest.raises(pgc.OptionError, match="options must be DecoderOptions, not"):
            pgc.Decoder(options=wrong)
    assert pickle.loads(pickle.dumps(options)) == options
    assert len({options, pgc.DecoderOptions(before="full", types="text")}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.types = "native"  # type: ignore[misc]
