"""Lines and JSON of ``pgwire-codec inspect``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from pgwire_codec.protocol import messages as m
from tests.support.commands import as_json, inspected, relation, row, without_place
from tests.support.corpus import Capture, capture, captures

# Lines for people


def test_transactions_are_indented() -> None:
    lines = inspected(capture("dml.pg18.v1-text").path, "--limit", 6)
    assert [without_place(line)[:19] for line in lines] == [
        "BEGIN xid 5505, com",
        "  RELATION public.d",
        "  INSERT public.def",
        "  INSERT public.def",
        "  INSERT public.def",
        "COMMIT at 0/126BBE0",
    ]


def test_streamed_blocks_are_indented_and_name_the_subtransaction(stored: Any) -> None:
    lines = inspected(
        stored(
            m.StreamStart(5, True),
            relation("k", xid=5),
            m.Insert(6, 7, row(b"t", b"1")),
            m.StreamStop(),
            m.StreamAbort(5, 6, None, None),
            m.StreamCommit(5, 0, 16, 32, 0),
        )
    )
    assert [without_place(line) for line in lines] == [
        "STREAM START xid 5, first block",
        "  RELATION public.t (oid 7, replica identity default): k text key",
        "  (subxid 6) INSERT public.t new: k='1'",
        "STREAM STOP",
        "STREAM ABORT xid 5, from subxid 6 on",
        "STREAM COMMIT xid 5, at 0/10, 2000-01-01 00:00:00Z",
    ]


def test_the_four_states_and_both_forms_differ(stored: Any) -> None:
    new = row(b"tnutbt", b"1", None, None, b"NULL", b"\x00\xff", b"")
    key = row(b"tnnnnn", b"0", None, None, None, None, None)
    path = stored(relation(*"abcdef"), m.Update(None, 7, key, None, new))
    assert without_place(inspected(path)[1]) == (
        "UPDATE public.t "
        "key: a='0' b=(not sent) c=(not sent) d=(not sent) e=(not sent) f=(not sent) "
        "new: a='1' b=NULL c=(unchanged) d='NULL' e=x'00ff' f=''"
    )
    assert as_json(path)[1] == {
        "index": 1,
        "lsn": "0/FF",
        "type": "Update",
        "table": "public.t",
        "xid": None,
        "relation_oid": 7,
        "key": {"a": "0"} | {name: {"state": "not_sent"} for name in "bcdef"},
        "old": None,
        "new": {
            "a": "1",
            "b": None,
            "c": {"state": "unchanged"},
            "d": "NULL",
            "e": {"binary": "00ff"},
            "f": "",
        },
    }


def test_null_in_a_whole_old_tuple_is_null(stored: Any) -> None:
    path = stored(relation("a", "b"), m.Delete(None, 7, None, row(b"tn", b"1", None)))
    assert without_place(inspected(path)[1]) == "DELETE public.t old: a='1' b=NULL"
    assert as_json(path)[1]["old"] == {"a": "1", "b": None}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it's", "'it''s'"),
        ("ελ", "'ελ'"),
        ("\\x00", "'\\x00'"),
        ("a\nb\\", "E'a\\nb\\\\'"),
        ("\x1b[2J", "E'\\u001b[2J'"),
        ("\u202e", "E'\\u202e'"),
    ],
)
def test_text_is_quoted_and_harmless(stored: Any, value: str, shown: str) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", value.encode())))
    assert without_place(inspected(path)[1]) == f"INSERT public.t new: a={shown}"
    assert as_json(path)[1]["new"] == {"a": value}


def test_text_that_is_not_utf8(stored: Any) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", b"caf\xe9")))
    assert without_place(inspected(path)[1]) == "INSERT public.t new: a=E'caf\\xe9'"
    assert as_json(path)[1]["new"] == {"a": {"bytes": "636166e9"}}


@pytest.mark.parametrize("length", [60, 61])
def test_long_values_are_shortened_for_people_only(stored: Any, length: int) -> None:
    text, data = "ё" * length, bytes(length)
    path = stored(relation("a", "b"), m.Insert(None, 7, row(b"tb", text.encode(), data)))
    shown = f"'{text}'" if length == 60 else f"'{'ё' * 60}'... (122 bytes)"
    expected = f"INSERT public.t new: a={shown} b=x'{'00' * 30}'... ({length} bytes)"
    assert without_place(inspected(path)[1]) == expected
    assert as_json(path)[1]["new"] == {"a": text, "b": {"binary": data.hex()}}


def test_unusual_names_are_quoted(stored: Any) -> None:
    path = stored(relation("Id", 'a"b', "c\n", name="order"), m.Truncate(None, 3, (7,)))
    assert [without_place(line) for line in inspected(path)] == [
        "RELATION public.order (oid 7, replica identity default): "
        '"Id" text key, "a""b" text, "c\\n" text',
        "TRUNCATE public.order cascade restart identity",
    ]


def test_without_a_relation_columns_have_numbers(stored: Any) -> None:
    path = stored(m.Insert(None, 7, row(b"tn", b"1", None)))
    assert without_place(inspected(path)[0]) == "INSERT (unknown relation 7) new: $1='1' $2=NULL"
    assert as_json(path)[0]["table"] is None


def test_more_columns_than_the_relation(stored: Any) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"tt", b"1", b"2")))
    assert without_place(inspected(path)[1]) == "INSERT public.t new: a='1' $2='2'"


def test_a_streamed_relation_counts_once_it_commits(stored: Any) -> None:
    insert = m.Insert(None, 7, row(b"t", b"1"))
    block = [m.StreamStart(5, True), relation("new", xid=5), m.StreamStop()]
    end = m.StreamCommit(5, 0, 1, 2, 0)
    lines = inspected(stored(relation("old"), *block, insert, end, insert))
    changes = [without_place(line) for line in lines if "INSERT" in line]
    assert changes == ["INSERT public.t new: old='1'", "INSERT public.t new: new='1'"]
    rolled_back = m.StreamAbort(5, 5, None, None)
    lines = inspected(stored(relation("old"), *block, rolled_back, insert))
    assert without_place(lines[-1]) == "INSERT public.t new: old='1'"


def test_times_beyond_the_calendar(stored: Any) -> None:
    path = stored(m.Commit(0, 1, 2, 2**63 - 1))
    assert without_place(inspected(path)[0]) == (
        "COMMIT at 0/1, 2000-01-01 +9223372036854775807 us"
    )


def test_colour_only_on_a_terminal(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", b"[bold]x[/bold]")))
    assert "\x1b" not in "".join(inspected(path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    line = inspected(path)[1]
    assert "\x1b[" in line
    assert "[bold]x[/bold]" in line


# Selection


def test_limit() -> None:
    path = capture("dml.pg18.v1-text").path
    assert len(inspected(path, "--limit", 3)) == 3
    assert inspected(path, "--limit", 0) == []


@pytest.mark.parametrize("table", ["u", "public.u"])
def test_table_shows_its_changes_and_the_transactions_around(table: str) -> None:
    path = capture("immediate.pg18.v4-parallel").path
    whole = {entry["index"]: entry for entry in as_json(path)}
    chosen = as_json(path, "--table", table)
    assert all(entry == whole[entry["index"]] for entry in chosen)

    def changes(entries: Iterable[dict[str, Any]]) -> list[int]:
        return [each["index"] for each in entries if each.get("table") == "public.u"]

    assert changes(chosen) == changes(whole.values()) != []
    assert not [each for each in chosen if each.get("table") not in (None, "public.u")]
    types = Counter(entry["type"] for entry in chosen)
    assert types["StreamStart"] == types["StreamStop"] > 0
    inside = False
    for entry in chosen:
        if entry["type"] in ("StreamStart", "Begin"):
            assert not inside
            inside = True
        elif entry["type"] in ("StreamStop", "Commit"):
            assert inside
            inside = False


def test_table_leaves_out_a_prepare_without_its_begin(stored: Any) -> None:
    """It is not the end of the transaction before it, in which the table occurs."""
    change = [relation("v"), m.Insert(None, 7, row(b"n", None))]
    plain = [m.Begin(5, 0, 7), *change, m.Commit(0, 5, 6, 0)]
    path = stored(*plain, m.Prepare(0, 8, 9, 0, 8, "g"))
    assert [entry["type"] for entry in as_json(path, "--table", "t")] == [
        *("Begin", "Relation", "Insert", "Commit")
    ]


def test_table_that_does_not_occur() -> None:
    assert inspected(capture("dml.pg18.v1-text").path, "--table", "no_such") == []


# The corpus


@pytest.mark.parametrize(
    "each", captures("dml") + captures("traps") + captures("immediate"), ids=str
)
def test_captures_are_shown_whole(each: Capture) -> None:
    lines = inspected(each.path)
    assert len(lines) == len(each.messages)
    assert not [line for line in lines if "unknown relation" in line]
    entries = as_json(each.path)
    assert [entry["index"] for entry in entries] == list(range(len(each.messages)))
