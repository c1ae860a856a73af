"""All types: captured values and random bytes, in each implementation and compared."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgwire_codec.arrow.export import to_pyarrow
from pgwire_codec.arrow.values import to_numpy, to_pylist
from pgwire_codec.codec import value_buffers
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference import families
from pgwire_codec.types import ColumnType, TypeOptions, column_type
from pgwire_codec.types.builtin import BUILTIN
from tests.families.golden import FAMILIES, GOLDEN
from tests.support.corpus import Capture, capture, captures, oldest_and_newest, truth
from tests.support.examples import examples, in_turn
from tests.support.implementations import Implementation, implementation
from tests.support.values import (
    OPTIONS,
    POLICIES,
    Row,
    Rows,
    decode,
    laid_out,
    same_broken_values,
    same_values,
    take,
    type_of,
    user_registry,
)

CODES = {ErrorCode.BAD_VALUE, ErrorCode.BAD_LENGTH, ErrorCode.INVALID_UTF8}
FEW_OPTIONS = [TypeOptions(), TypeOptions(types="text"), TypeOptions(numeric="decimal128(20,3)")]
IN_BOTH_FORMS = ["types.pg18.v1-text", "types.pg18.v1-binary"]


def test_every_family_has_its_file_of_tests() -> None:
    """The same name in pgwire_codec/reference/families and here."""
    shared = {"__init__", "family", "forms", "calendar"}
    modules = {path.stem for path in Path(families.__file__).parent.glob("*.py")} - shared
    assert {each.__module__.rpartition(".test_")[2] for each in FAMILIES} == modules
    for each in FAMILIES:
        assert each.golden, each
        assert each.texts, each
        assert each.malformed_text, each
        assert each.malformed_binary, each


def test_every_family_is_captured_or_golden() -> None:
    oids = {row["oid"] for row in truth(captures("types", "v1-binary", 18)[0]).values()}
    names = {kind for kind, _, _ in GOLDEN}
    seen = {family for oid, name, family, *_ in BUILTIN if oid in oids or name in names}
    # regclass and its like are names in a catalog, which a binary form does not contain.
    assert {family for _, _, family, *_ in BUILTIN} - seen == {"reg"}
    assert {family for _, _, family, *_ in BUILTIN} | {"array", "unknown"} == {
        *families.FAMILIES,
        *families.CONTAINERS,
    }


# In each implementation.


def test_both_forms_in_one_column(codec: Implementation) -> None:
    found = decode(
        codec,
        "int4",
        [b"7", struct.pack(">i", 8), None, b"9"],
        binary=[False, True, False, False],
    )
    assert to_pylist(found.array) == [7, 8, None, 9]


def test_row_of_the_error(codec: Implementation) -> None:
    with pytest.raises(ValueProblem) as caught:
        decode(codec, "int4", [b"1", None, b"2", b"x", b"y"])
    assert (caught.value.row, caught.value.code) == (3, "bad_value")
    assert str(caught.value).startswith("bad_value: row 3, byte 0 of the value: ")


def test_states_without_bytes_are_not_read(codec: Implementation) -> None:
    kind = type_of("int4")
    assert to_pylist(decode(codec, kind, [None, b"7", None]).array) == [None, 7, None]


def survives(codec: Implementation, kind: ColumnType, raw: bytes, *, binary: bool) -> bool:
    """Decode one value; return True if it is one, which then is looked at in every way."""
    refused = None
    try:
        found = decode(codec, kind, [raw], binary=binary, unrepresentable="clamp")
    except ValueProblem as problem:
        refused = problem
    if refused is not None:
        assert refused.code in CODES
        assert refused.row == 0
        assert 0 <= refused.offset <= len(raw)
        assert refused.expected
        return False
    assert len(to_pylist(found.array)) == len(to_numpy(found.array)) == 1
    to_pyarrow(found.array).validate(full=True)
    return True


def columns(run: Capture, options: TypeOptions) -> list[tuple[ColumnType, Rows]]:
    """Type and rows of the column ``v`` of each table."""
    taken = take(run)
    return [
        (
            column_type(
                table["v"].oid,
                table["v"].typmod,
                options,
                user_types=taken.user_types,
                registry=user_registry(run),
            ),
            list(zip(table["v"].values, table["v"].binary, strict=True)),
        )
        for table in taken.tables.values()
    ]


@pytest.mark.parametrize("name", IN_BOTH_FORMS)
def test_captured_values_cut_and_changed(codec: Implementation, name: str) -> None:
    chosen = random.Random(name)
    outcomes = {True: 0, False: 0}
    for way in zip(*(columns(capture(name), options) for options in FEW_OPTIONS), strict=True):
        kinds = [kind for kind, _ in way]
        for value, binary in [row for row in way[0][1] if row[0]][:12]:
            assert value is not None
            cuts = range(len(value)) if len(value) <= 40 else chosen.sample(range(len(value)), 40)
            broken = [value[:cut] for cut in cuts]
            for _ in range(15):
                changed = bytearray(value)
                changed[chosen.randrange(len(value))] = chosen.randrange(256)
                broken.append(bytes(changed))
            broken.append(value + b"\0")
            for raw in broken:
                outcomes[survives(codec, chosen.choice(kinds), raw, binary=binary)] += 1
    assert min(outcomes.values()) > 1000


_SHAPED = st.binary(max_size=80) | st.from_regex(
    rb"[-+0-9a-fA-F:. ,;{}\[\]()<>\"'\\xNULinfty/TtzBC]{0,40}", fullmatch=True
)


@examples(100, 1000)
@pytest.mark.parametrize("form", ["text", "binary"])
def test_any_bytes_as_any_type(codec: Implementation, form: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(any_type(FEW_OPTIONS), _SHAPED)
    def check(kind: ColumnType, value: bytes) -> None:
        survives(codec, kind, value, binary=form == "binary")

    check()


@st.composite
def any_type(draw: st.DrawFn, options: list[TypeOptions]) -> ColumnType:
    oid, *_, array, _, _ = draw(st.sampled_from(BUILTIN))
    return column_type(draw(st.sampled_from([oid, array])), -1, draw(st.sampled_from(options)))


def test_columns_too_large_for_32_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the reference; a column that the core takes for too large is one of 2 GB."""
    codec = implementation("python")
    monkeypatch.setattr(value_buffers, "MAX_BYTES", 6)
    found = decode(codec, "text", [b"abc", None, b"def"])
    assert to_pylist(found.array) == ["abc", None, "def"]
    with pytest.raises(ValueProblem, match="in a batch") as caught:
        decode(codec, "text", [b"abc", None, b"def", b"g", b"h"])
    assert (caught.value.code, caught.value.row) == ("unrepresentable", 3)
    assert caught.value.hint == "Decode fewer messages at once."
    with pytest.raises(ValueProblem) as caught:
        decode(codec, "text[]", [b"{}", b"{abc,def}", None, b"{NULL,g}"])
    assert (caught.value.code, caught.value.row) == ("unrepresentable", 3)


# Both implementations compared.


@pytest.mark.differential
@pytest.mark.parametrize(
    "run",
    list(in_turn(captures("types"), [()], quick=oldest_and_newest().__contains__)),
    ids=str,
)
def test_captured_values_by_both(run: Capture) -> None:
    for options in OPTIONS:
        for kind, rows in columns(run, options):
            for policy in POLICIES:
                assert same_values(kind, rows, policy=policy) or policy == "raise"


@pytest.mark.differential
@pytest.mark.parametrize("name", IN_BOTH_FORMS)
def test_captured_values_cut_and_changed_by_both(name: str) -> None:
    ways = [columns(capture(name), options) for options in OPTIONS]
    outcomes = np.zeros(2, int)
    for way in zip(*ways, strict=True):
        kinds = [kind for kind, _ in way]
        _, rows = way[0]
        for value, binary in [row for row in rows if row[0]][:12]:
            assert value is not None
            outcomes += same_broken_values(kinds, value, binary, name)
    assert outcomes.min() > 1000


@pytest.mark.differential
@settings(max_examples=400)
@given(data=st.data())
def test_any_bytes_by_both(data: st.DataObject) -> None:
    kind = data.draw(any_type(OPTIONS))
    rows = data.draw(st.lists(st.tuples(st.none() | _SHAPED, st.booleans()), max_size=3))
    same_values(kind, rows, policy=data.draw(st.sampled_from(POLICIES)))


# The core's own.


@pytest.mark.differential
@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (0, 4), (3, 1), (2**62, 2)])
def test_values_outside_the_data(offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside the data"):
        implementation("cython").decode_values(
            type_of("int4"),
            np.frombuffer(b"123", np.uint8),
            np.array([offset], np.int64),
            np.array([length], np.int32),
            np.ones(1, np.uint8),
            np.zeros(1, np.uint8),
        )


def by_core(kind: str, texts: list[bytes]) -> Any:
    rows: list[Row] = [(text, False) for text in texts]
    return implementation("cython").decode_values(type_of(kind), *laid_out(rows)).array


@pytest.mark.differential
def test_memory_outlives_the_decoder() -> None:
    numbers = by_core("int8", [b"%d" % n for n in range(1000)]).buffers[0]
    assert numbers.tolist() == list(range(1000))
    assert not numbers.flags.owndata


@pytest.mark.differential
def test_large_columns() -> None:
    """Buffers that outgrow the first guess, and pages of every size."""
    count = 600_000
    texts = [b"x" * (row // 40_000) + b"%d" % row for row in range(count)]
    got = by_core("text", texts)
    assert got.buffers[1].tobytes() == b"".join(texts)
    assert got.buffers[0].tolist()[1:] == np.cumsum([len(text) for text in texts]).tolist()
    numbers = by_core("int8", [b"%d" % row for row in range(count)])
    assert numbers.buffers[0].tolist() == list(range(count))
