"""Names of tables, as PostgreSQL writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgwire_codec.protocol.quoting import (
    identifier,
    parse_qualified_name,
    qualified_name,
    quote_literal,
)
from tests.support.servers import Database

NAMES = ["orders", "_x1", "Users", "a.b", 'say "hi"', "größe", "1st", "a b", "x$y", "*", "'", "\n"]

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(names, names)
def test_a_name_is_read_as_it_was_written(schema: str, name: str) -> None:
    assert parse_qualified_name(qualified_name(schema, name)) == (schema, name)
    assert parse_qualified_name(qualified_name("", name)) == ("", name)


@given(names, names, names, names)
def test_two_tables_have_two_names(a: str, b: str, c: str, d: str) -> None:
    assert (qualified_name(a, b) == qualified_name(c, d)) == ((a, b) == (c, d))


def test_dots_in_names() -> None:
    assert qualified_name("a.b", "c") == '"a.b".c'
    assert qualified_name("a", "b.c") == 'a."b.c"'
    assert parse_qualified_name("public.Users") == ("public", "Users")


@pytest.mark.parametrize("text", ["", "a.", ".a", "a..b", "a.b.c", '"a', 'a"b', '"a"b', 'a."b'])
def test_other_texts(text: str) -> None:
    assert parse_qualified_name(text) is None


@pytest.mark.slow
def test_as_the_server_writes_them(pg: Database) -> None:
    literals = ", ".join(f"quote_ident({quote_literal(name)})" for name in NAMES)
    assert pg.query(f"SELECT {literals}") == [tuple(map(identifier, NAMES))]
