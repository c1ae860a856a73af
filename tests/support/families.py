"""Tests that each type family has, over the cases that its file lists.

A file ``tests/families/test_NAME.py`` has one subclass of FamilyTests. A test without cases is not
one of the subclass's.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec.arrow.export import to_pyarrow
from pgwire_codec.arrow.layout import valid_rows
from pgwire_codec.arrow.values import to_pylist
from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.reference import values as reference_values
from pgwire_codec.reference.families import family_of
from pgwire_codec.types import NATIVE, ArrowTypes
from tests.support.build import column, relation
from tests.support.encoding import decoded, each_form, encoded, written
from tests.support.examples import examples
from tests.support.implementations import Implementation, implementation
from tests.support.values import (
    OPTIONS,
    POLICIES,
    Row,
    decode,
    every_way,
    laid_out,
    one,
    problem,
    same_broken_values,
    same_values,
    type_of,
    with_options,
)

Options = dict[str, Any]

#: Test to the names of its arguments and the attribute that has the cases.
CASES: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "test_golden": (("kind", "text", "sent"), "golden"),
    "test_golden_cut": (("kind", "text", "sent"), "golden"),
    "test_golden_written": (("kind", "text", "sent"), "golden"),
    "test_text": (("kind", "raw", "value"), "texts"),
    "test_representable": (("kind", "raw", "options", "value"), "representable"),
    "test_unrepresentable": (("kind", "raw", "options", "nearest"), "unrepresentable"),
    "test_malformed_text": (("kind", "raw", "code", "offset"), "malformed_text"),
    "test_malformed_binary": (("kind", "raw", "code", "offset"), "malformed_binary"),
    "test_other_arrow_types": (("kind", "array"), "arrow_types"),
    "test_unwritable": (("kind", "array", "typmod", "wanted"), "unwritable"),
    "test_random_values": (("kind",), "random_values"),
    "test_blocks": (("kind",), "mixed"),
    "test_counts_of_rows": (("kind",), "mixed"),
    "test_ordinary_values_do_not_need_the_reference": (("kind",), "mixed"),
    "test_text_does_not_need_the_reference": (("kind", "text"), "by_kernel"),
    "test_one_other_among_ordinary_values": (("kind", "ordinary", "others"), "alike"),
}


class FamilyTests:
    """Tests of a family: a type is given by its name, as ``"int4[]"`` or ``"numeric(15,2)"``."""

    #: Type, text form and binary form in hex, as a server (PostgreSQL 18) sends them:
    #: ``select format('%s', v), TYPEsend(v)`` under the settings that a capture pins.
    #: test_server.py asks a live server for the same and more.
    golden: ClassVar[list[tuple[str, str, str]]] = []
    #: Type, text form, value in Python.
    texts: ClassVar[list[tuple[str, bytes, Any]]] = []
    #: Type, text form, options, and the value that the column's type just holds.
    representable: ClassVar[list[tuple[str, bytes, Options, Any]]] = []
    #: Type, text form of a value that the column's type cannot hold, options, the nearest it can.
    unrepresentable: ClassVar[list[tuple[str, bytes, Options, Any]]] = []
    #: Type, bytes that are not a form of it, code and offset of the error.
    malformed_text: ClassVar[list[tuple[str, bytes, str, int]]] = []
    malformed_binary: ClassVar[list[tuple[str, bytes, str, int]]] = []
    #: Type, and an array of three rows, the last null, of an Arrow type that it does not decode to.
    arrow_types: ClassVar[list[tuple[str, pa.Array]]] = []
    #: Type, an array whose second value is not one of the type, type modifier, part of the error.
    unwritable: ClassVar[list[tuple[str, pa.Array, int, str]]] = []
    #: Type to the binary form of its values, from which the reference makes the text form.
    random_values: ClassVar[dict[str, st.SearchStrategy[bytes]]] = {}
    #: Type to a text form and a binary form (hex) that a kernel decodes, and a text form that it
    #: leaves to the reference.
    mixed: ClassVar[dict[str, tuple[bytes, str, bytes]]] = {}
    #: Type and text forms that a kernel decodes.
    by_kernel: ClassVar[list[tuple[str, str]]] = []
    #: Type, text forms of one kind, and others.
    alike: ClassVar[list[tuple[str, list[bytes], list[bytes]]]] = []

    def __init_subclass__(cls) -> None:
        for test, (_, attribute) in CASES.items():
            if not getattr(cls, attribute):
                setattr(cls, test, None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise a test with the cases of the subclass."""
        names, attribute = CASES.get(metafunc.function.__name__, ((), ""))
        if attribute:
            cases = getattr(type(self), attribute)
            metafunc.parametrize(names, [each if len(names) > 1 else (each,) for each in cases])

    # Results of each codec.

    def test_golden(self, codec: Implementation, kind: str, text: str, sent: str) -> None:
        """Both forms are one value, and the binary form is rendered as the text form."""
        raw = bytes.fromhex(sent)
        rendered = decode(codec, kind, [raw], binary=True, types="text")
        assert to_pylist(rendered.array) == [text]
        by_binary = decode(codec, kind, [raw], binary=True, unrepresentable="clamp")
        by_text = decode(codec, kind, [text.encode()], unrepresentable="clamp")
        assert repr(to_pylist(by_binary.array)) == repr(to_pylist(by_text.array))
        assert by_binary.invalid.tolist() == by_text.invalid.tolist()

    def test_golden_cut(self, codec: Implementation, kind: str, text: str, sent: str) -> None:
        raw = bytes.fromhex(sent)
        textual = family_of(type_of(kind)).text_prefix
        if kind == "bytea" or textual == b"":
            return  # bytes of any length are a value
        for cut in range(len(raw)):
            if textual and cut:
                continue  # text of any length
            with pytest.raises(ValueProblem) as caught:
                decode(codec, kind, [raw[:cut]], binary=True, types="text")
            assert caught.value.code in ("bad_length", "bad_value")
            assert caught.value.offset <= cut
        if not textual:
            with pytest.raises(ValueProblem):
                decode(codec, kind, [raw + b"\0"], binary=True, types="text")

    @each_form
    def test_golden_written(
        self, codec: Implementation, kind: str, text: str, sent: str, binary: bool
    ) -> None:
        """A decoded value is written as the server sent it; without a binary form, as text."""
        batch = decode(codec, kind, [text.encode()], unrepresentable="null")
        if len(batch.invalid) or text.startswith("["):
            array = pa.array([text])  # an array's first index is not in a list
        else:
            array = to_pyarrow(batch.array)
            array = array.storage if isinstance(array, pa.ExtensionArray) else array
        kinds, form = written(kind, array, binary=binary)
        assert form == (bytes.fromhex(sent) if kinds == b"b" else text.encode())
        described, arrow = type_of(kind), array.type
        while pa.types.is_list(arrow):
            assert described.child is not None
            described, arrow = described.child, arrow.value_type
        is_textual = family_of(described).text_prefix is not None
        assert (kinds == b"b") == (binary and (is_textual or not pa.types.is_string(arrow)))

    def test_text(self, codec: Implementation, kind: str, raw: bytes, value: Any) -> None:
        assert repr(one(codec, kind, raw)) == repr(value)

    def test_representable(
        self, codec: Implementation, kind: str, raw: bytes, options: Options, value: Any
    ) -> None:
        assert repr(one(codec, kind, raw, **options)) == repr(value)

    def test_unrepresentable(
        self, codec: Implementation, kind: str, raw: bytes, options: Options, nearest: Any
    ) -> None:
        with pytest.raises(ValueProblem) as caught:
            decode(codec, kind, [raw], **options)
        assert (caught.value.code, caught.value.row) == ("unrepresentable", 0)
        assert stored(codec, kind, raw, "clamp", options) == nearest
        nulled = stored(codec, kind, raw, "null", options)
        if isinstance(nearest, list):
            assert nulled[0] is not None
            assert nulled[1] is None
        else:
            assert nulled is None

    def test_malformed_text(
        self, codec: Implementation, kind: str, raw: bytes, code: str, offset: int
    ) -> None:
        assert problem(codec, kind, raw) == (code, offset)

    def test_malformed_binary(
        self, codec: Implementation, kind: str, raw: bytes, code: str, offset: int
    ) -> None:
        assert problem(codec, kind, raw, binary=True) == (code, offset)

    # Written by the reference.

    @each_form
    def test_other_arrow_types(self, kind: str, array: pa.Array, binary: bool) -> None:
        """Arrays of other Arrow types than the column decodes to are written, too."""
        table = relation(1, column("c", kind))
        for rows in (array, array.slice(1)):
            messages = encoded(table, [rows], binary=binary)
            assert [pgc.decode_message(data).new.kinds == b"n" for data in messages] == [
                not valid for valid in rows.is_valid().to_pylist()
            ]
        messages = pgc.reference.encode_batch(table, [array], binary=binary)
        batch = decoded(table, messages, unrepresentable="null")
        assert len(batch.new["c"].to_arrow()) == 3

    @each_form
    def test_unwritable(
        self, kind: str, array: pa.Array, typmod: int, wanted: str, binary: bool
    ) -> None:
        table = relation(1, column("id", "int4"), column("c", kind, typmod=typmod))
        columns = {"id": pa.array(range(len(array))), "c": array}
        message = encoded(table, columns, binary=binary)
        assert isinstance(message, str)
        assert message.startswith("column 'c', row 1: wanted ")
        assert wanted in message

    # Both implementations compared.

    @pytest.mark.differential
    def test_golden_by_both(self) -> None:
        for name, text, binary in self.golden:
            rows = [(text.encode(), False), (bytes.fromhex(binary), True), (None, False)]
            for kind in every_way(name):
                for policy in POLICIES:
                    assert same_values(kind, rows * 2, policy=policy) or policy == "raise"

    @pytest.mark.differential
    @pytest.mark.parametrize("lead", [0, 1, 11, 12, 13])
    def test_golden_at_both_ends_of_the_data(self, lead: int) -> None:
        for name, text, binary in self.golden:
            for kind in every_way(name):
                assert same_values(kind, [(text.encode(), False)], lead=lead, policy="clamp")
                assert same_values(kind, [(bytes.fromhex(binary), True)], lead=lead, policy="clamp")

    @pytest.mark.differential
    def test_golden_cut_and_changed(self) -> None:
        outcomes = np.zeros(2, int)
        for name, text, binary in self.golden:
            kinds = every_way(name)
            outcomes += same_broken_values(kinds, text.encode(), False, name)
            outcomes += same_broken_values(kinds, bytes.fromhex(binary), True, name)
        assert outcomes.min() > len(self.golden)

    @pytest.mark.differential
    @examples(20, 200)
    def test_random_values(self, kind: str, examples: int) -> None:
        as_text = family_of(type_of(kind, types="text"))

        @settings(max_examples=examples)
        @given(st.data())
        def check(data: st.DataObject) -> None:
            rows: list[Row] = []
            values = st.lists(self.random_values[kind], min_size=1, max_size=4)
            for raw in data.draw(values):
                try:
                    text = as_text.render(raw)
                except ValueProblem:
                    continue  # not in the type's range
                rows += [(raw, True), (text, False), (None, False)]
            column = with_options(kind, data.draw(st.sampled_from(OPTIONS)))
            for policy in POLICIES:
                same_values(column, rows, policy=policy)

        check()

    @pytest.mark.differential
    def test_blocks(self, kind: str) -> None:
        """Many blocks; whole ones of values, of none, of hard rows, and all of them mixed."""
        chosen = random.Random(kind)
        ordinary, binary, other = self.mixed_rows(kind)
        none = (None, False)
        rows: list[Row] = [
            *[ordinary] * 300,
            *[binary] * 300,
            *[none] * 300,
            *[other] * 20,
            *chosen.choices([ordinary, binary, none, other], (40, 20, 20, 1), k=700),
        ]
        for way in every_way(kind):
            for policy in ("null", "clamp"):
                assert same_values(way, rows, policy=policy)
                assert same_values(way, rows[:-1], policy=policy)
            same_values(way, rows[:900])
            same_values(way, rows)
            same_values(way, rows[600:905])
            same_values(way, rows[920:])

    @pytest.mark.differential
    @pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 255, 256, 257])
    def test_counts_of_rows(self, kind: str, count: int) -> None:
        for row in (*self.mixed_rows(kind), (None, False)):
            assert same_values(type_of(kind), [row] * count, policy="clamp")
            same_values(type_of(kind), [row] * count)

    @pytest.mark.differential
    @pytest.mark.parametrize("arrow_types", [NATIVE, ROW_TYPES], ids=["arrow", "spark"])
    def test_ordinary_values_do_not_need_the_reference(
        self, kind: str, arrow_types: ArrowTypes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decode_values = implementation("cython").decode_values
        monkeypatch.setattr(reference_values, "decode_values", refuse)
        column = type_of(kind, arrow_types=arrow_types)
        ordinary, binary, _ = self.mixed_rows(kind)
        rows = [ordinary, (None, False)]
        if not (kind in ("inet", "interval") and column.format == "u"):
            rows.append(binary)
        assert decode_values(column, *laid_out(rows)).array.length == len(rows)

    @pytest.mark.differential
    @pytest.mark.parametrize("arrow_types", [NATIVE, ROW_TYPES], ids=["arrow", "spark"])
    def test_text_does_not_need_the_reference(
        self, kind: str, text: str, arrow_types: ArrowTypes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decode_values = implementation("cython").decode_values
        monkeypatch.setattr(reference_values, "decode_values", refuse)
        column = type_of(kind, arrow_types=arrow_types)
        got = decode_values(column, *laid_out([(text.encode(), False)]))
        assert got.array.null_count == 0

    @pytest.mark.differential
    def test_one_other_among_ordinary_values(
        self, kind: str, ordinary: list[bytes], others: list[bytes]
    ) -> None:
        """Blocks of one kind go by a quicker loop: it has to see the one row that is not of it."""
        chosen = random.Random(kind)
        column = type_of(kind)
        rows: list[Row] = [(value, False) for value in chosen.choices(ordinary, k=600)]
        same_values(column, rows)
        unlike: list[Row] = [(value, False) for value in (*others, b"", b"0" * 9)]
        for other in (*unlike, (None, False), (b"\0\0\0\1", True)):
            for at in (0, 255, 256, 599):
                changed = [*rows[:at], other, *rows[at + 1 :]]
                same_values(column, changed, policy=chosen.choice(POLICIES))

    def mixed_rows(self, kind: str) -> tuple[Row, Row, Row]:
        """Rows of `mixed`: ordinary in text form and in binary form, and another."""
        ordinary, binary, other = self.mixed[kind]
        return (ordinary, False), (bytes.fromhex(binary), True), (other, False)


def refuse(*_: Any, **__: Any) -> Decoded:
    """Fail, in place of the reference."""
    raise AssertionError("asked the reference")


def stored(codec: Implementation, kind: str, raw: bytes, policy: str, options: Options) -> Any:
    """Decode one value that the column's type cannot hold, to what the array holds of it."""
    result = decode(codec, kind, [raw], unrepresentable=policy, **options)
    assert result.invalid.tolist() == [0]
    (value,) = to_pylist(result.array)
    array = result.array
    if array.format == "tin" and value is not None:
        return array.buffers[0].tolist()[0]
    if array.format == "+l" and array.children[0].format == "tdD" and value is not None:
        days = array.children[0]
        pairs = zip(days.buffers[0].tolist(), valid_rows(days), strict=True)
        return [day if valid else None for day, valid in pairs]
    if array.format.startswith("t") and value is not None:
        return array.buffers[0].tolist()[0]
    return value
