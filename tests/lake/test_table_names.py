"""Names of tables, and patterns of them."""

from __future__ import annotations

from pgwire_codec.lake.table_names import TableNames


def test_a_pattern_matches_whole_names() -> None:
    names = TableNames.parse(["public.*", "a+b.c"])
    assert names.exact == ("a+b.c",)
    assert names.match("public.x")
    assert names.match("a+b.c")
    assert not names.match("publicxx")
    assert not names.match("x.public.x")
