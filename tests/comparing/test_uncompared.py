"""Columns and rows about which a comparison gives no verdict, decided without Spark or a server."""

from __future__ import annotations

import pytest

from tests.support import build


@pytest.mark.parametrize(
    ("logged", "server", "target", "masked", "expected"),
    [
        ("ab", "ab", "ab", "", {}),
        ("ab", "ab", "abc", "", {}),  # dropped, or the mirror's own
        ("ab", "abc", "ab", "", {}),  # new, without changes
        ("ab", "abc", "abc", "", {}),
        ("", "ab", None, "", {}),
        ("ab", "ab", None, "", {}),
        ("ab", "ab", "a", "", {"b": "the target does not have it"}),
        ("ab", "a", "ab", "", {"b": "the server does not have it"}),
        ("ab", "a", "a", "", {"b": "the server does not have it"}),
        ("ab", "ab", "ab", "a", {"a": "it has a mask"}),
        ("ab", "ab", "b", "a", {"a": "it has a mask"}),
    ],
)
def test_columns(
    logged: str, server: str, target: str | None, masked: str, expected: dict[str, str]
) -> None:
    from pgwire_codec.comparing.compared_columns import uncompared_columns

    assert uncompared_columns(logged, server, target, masked) == expected


def test_relations_that_the_log_lacks() -> None:
    psycopg2 = pytest.importorskip("psycopg2")
    assert psycopg2
    from pgwire_codec.comparing.log_changes import changed_relations

    messages = build.wire(
        [
            *build.transaction(build.relation(1), build.insert(1, "1"), xid=1, lsn=10),
            *build.transaction(build.insert(2, "1"), build.truncate(3, 4), xid=2, lsn=20),
            *build.transaction(build.relation(5), xid=3, lsn=30),
            *build.transaction(build.update(6, build.row("1")), xid=4, lsn=40),
        ]
    )
    assert changed_relations(messages, 0) == {1, 2, 3, 4, 6}
    assert changed_relations(messages, 10) == {2, 3, 4, 6}
    assert changed_relations(messages, 20) == {6}
    assert changed_relations(messages, 40) == set()
    assert changed_relations([*messages, b"K" + bytes(30)], 40) is None
