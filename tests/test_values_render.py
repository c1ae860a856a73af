"""Binary forms rendered as the text that the server sends of the same value."""

from __future__ import annotations

import pytest

from pgwire_codec.arrow.values import to_pylist
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.types.builtin import BUILTIN
from tests.support.corpus import captures, truth
from tests.values import decode
from tests.values_golden import GOLDEN


def name_of(kind: str) -> str:
    return f"_{kind[:-2]}" if kind.endswith("[]") else kind


@pytest.mark.parametrize(("kind", "text", "sent"), GOLDEN)
def test_golden(kind: str, text: str, sent: str) -> None:
    raw = bytes.fromhex(sent)
    rendered = decode(name_of(kind), [raw], binary=True, types="text")
    assert to_pylist(rendered.array) == [text]
    by_binary = decode(name_of(kind), [raw], binary=True, unrepresentable="clamp")
    by_text = decode(name_of(kind), [text.encode()], unrepresentable="clamp")
    assert repr(to_pylist(by_binary.array)) == repr(to_pylist(by_text.array))
    assert by_binary.invalid.tolist() == by_text.invalid.tolist()


@pytest.mark.parametrize(("kind", "text", "sent"), GOLDEN)
def test_golden_cut(kind: str, text: str, sent: str) -> None:
    raw = bytes.fromhex(sent)
    for cut in range(len(raw)):
        if kind in ("jsonpath", "jsonb") and cut:
            continue  # text of any length
        with pytest.raises(ValueProblem) as caught:
            decode(name_of(kind), [raw[:cut]], binary=True, types="text")
        assert caught.value.code in ("bad_length", "bad_value")
        assert caught.value.offset <= cut
    if kind not in ("jsonpath", "jsonb"):
        with pytest.raises(ValueProblem):
            decode(name_of(kind), [raw + b"\0"], binary=True, types="text")


@pytest.mark.parametrize(
    ("kind", "sent", "offset"),
    [
        ("path", "02" + "00000001" + "00" * 16, 0),
        ("tsquery", "00000001" + "01" + "10" + "00" + "6100", 4),
        ("tsquery", "00000001" + "01" + "00" + "02" + "6100", 4),
        ("tsquery", "00000001" + "02" + "05", 4),
        ("tsquery", "00000001" + "03" + "00", 4),
        ("int2vector", "0000000100000001000000150000000100000000ffffffff", 0),
    ],
)
def test_bytes_that_no_value_has(kind: str, sent: str, offset: int) -> None:
    with pytest.raises(ValueProblem) as caught:
        decode(kind, [bytes.fromhex(sent)], binary=True)
    assert (caught.value.code, caught.value.offset) == ("bad_value", offset)


def test_every_family_is_there() -> None:
    oids = {row["oid"] for row in truth(captures("types", "v1-binary", 18)[0]).values()}
    names = {kind for kind, _, _ in GOLDEN}
    seen = {family for oid, name, family, *_ in BUILTIN if oid in oids or name in names}
    # regclass and its like are names in a catalog: there is no text to compare with.
    assert {family for _, _, family, *_ in BUILTIN} - seen == {"reg"}
