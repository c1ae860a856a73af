"""Masks: which column has which, and when a column may be one that had a mask."""

from __future__ import annotations

from typing import Any

import pytest

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.masks import Masks, masked_column, without_values
from pgwire_codec.protocol.messages import Relation
from tests.support import build
from tests.support.build import column

MASKS = Masks.parse({"public.t.b": "keep", "public.t.*": "drop", "*.a": "constant:="}, None)


def table(*names: str, name: str = "t") -> Relation:
    return build.relation(1, *map(column, names), name=name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value 'NaN', row id='3'; public.t1", "value '…', row id='…'; public.t1"),
        ("the target's value 'x' of \"it's\"", "the target's value '…' of '…'"),
        ("value b'\\x00\\'', row id='it\\'s'", "value '…', row id='…'"),
        ("no value of the server's tables", "no value of the server's tables"),
    ],
)
def test_texts_without_values(text: str, expected: str) -> None:
    assert without_values(text) == expected


def test_the_first_that_matches() -> None:
    assert MASKS.of("public.t", ["a", "b"]) == {"a": "drop", "b": "keep"}
    assert MASKS.of("public.u", ["a", "b"]) == {"a": "constant:="}
    assert MASKS.recorded("public.t", table("a", "b")) == ("a=drop",)


@pytest.mark.parametrize(
    ("versions", "name", "clear"),
    [
        ([table("a", "b"), table("a", "b", "c")], "public.t", None),
        ([table("a", "b"), table("b")], "public.t", None),
        ([table("a", "b", name="u"), table("x", "b", name="u")], "public.u", "x"),
        ([table("a", "b", name="u"), table("b", name="u")], "public.u", None),
        ([table("b", "c", name="u"), table("b", "x", name="u")], "public.u", None),
        ([table("a", "b")], "public.u", None),
        ([table("c", "b")], "public.u", "c"),
        ([table("c", "b"), table("c", "b", name="u")], "public.u", "c"),
    ],
)
def test_columns_that_may_have_had_a_mask(
    versions: list[Relation], name: str, clear: str | None
) -> None:
    if clear is None:
        MASKS.check_versions(name, versions)
        return
    with pytest.raises(TableError, match=f"^column {clear} of public.u has no mask, and may have"):
        MASKS.check_versions(name, versions)


def test_recorded_masks() -> None:
    key = bytes(16)
    masks = Masks.parse({"*.a": "hash"}, key)
    held = masks.recorded("public.t", table("a"))
    masks.check_recorded("public.t", held, table("a"), table("a", "b"))
    masks.check_recorded("public.t", None, table("b"), table("a", "b"))
    masks.check_recorded("public.t", (), table("b"), table("a", "b"))  # a new column
    with pytest.raises(TableError, match=r"with the masks a=hash:\w{8}, and not with \(none\)"):
        Masks().check_recorded("public.t", held, table("a"), table("a"))
    with pytest.raises(TableError, match="and not with"):
        Masks.parse({"*.a": "hash"}, b"x" * 16).check_recorded(
            "public.t", held, table("a"), table("a")
        )


@pytest.mark.parametrize(
    ("mask", "key"), [("sha", None), ("hash", None), ("hash", b"short"), ("constant", None)]
)
def test_invalid_masks(mask: str, key: bytes | None) -> None:
    with pytest.raises(OptionError):
        Masks.parse({"public.t.a": mask}, key)


def test_names_of_any_characters() -> None:
    masks = Masks.parse({"*": "hash", "b": "keep"}, bytes(16))
    assert list(map(masked_column, masks.recorded("public.t", table("a=b", "=")))) == ["a=b", "="]
    constant = Masks.parse({"*": "constant:=drop"}, None).recorded("public.t", table("c"))
    assert list(map(masked_column, constant)) == ["c"]


def test_what_are_not_masks() -> None:
    masks: Any = ["public.t.a"]
    key: Any = "0123456789abcdef"
    with pytest.raises(TypeError, match="masks must be a mapping, not list"):
        Masks.parse(masks, None)
    with pytest.raises(TypeError, match="the key of masks must be bytes, not str"):
        Masks.parse({"public.t.a": "hash"}, key)


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(Masks.parse({"*.a": "hash"}, b"secret" * 3))
