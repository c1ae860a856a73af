"""Schema changes in a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgwire_codec import log, report
from pgwire_codec.protocol.lsn import format_lsn
from tests.support.build import T, column, insert, relation, transaction
from tests.support.reports import page, written


def test_schema_changes(tmp_path: Path) -> None:
    versions = [
        T,
        relation(1, *T.columns, column("more", "numeric", typmod=(10 << 16 | 2) + 4)),
        relation(1, *T.columns, column("more", "numeric", typmod=(12 << 16 | 0x7FF) + 4)),
        relation(1, T.columns[0], T.columns[2], name="u", identity="f"),
        relation(2, column("v", "varchar", typmod=24), T.columns[0], name="u"),
        relation(2, T.columns[0], column("v", "varchar", typmod=24, key=True), name="u"),
    ]
    messages: list[Any] = []
    for number, version in enumerate(versions):
        values = ["1"] * len(version.columns)
        # In the middle of a transaction, too.
        again = versions[max(number - 1, 0)]
        before = [insert(again.oid, *["1"] * len(again.columns))] if number else []
        messages += transaction(
            *before,
            version,
            insert(version.oid, *values),
            lsn=100 + number,
            time=number * 1_000_000,
        )
    found = report.gather(written(tmp_path, *messages)).schema
    assert [(each.table, each.details) for each in found.first] == [
        ("public.t", (("+", "more numeric(10,2)"),)),
        ("public.t", (("~", "more numeric(10,2) → numeric(12,-1)"),)),
        (
            "public.u",
            (
                ("~", "was public.t"),
                ("-", "v text"),
                ("-", "more numeric(12,-1)"),
                ("~", "replica identity default → full"),
            ),
        ),
        (
            "public.u",
            (
                ("~", "another table of this name"),
                ("-", "note text"),
                ("+", "v varchar(20)"),
                ("~", "replica identity full → default"),
            ),
        ),
        (
            "public.u",
            (("~", "v is now part of the key"), ("~", "the order of columns")),
        ),
    ]
    assert [each.commit_lsn for each in found.first] == [101, 102, 103, 104, 105]
    assert found.count == 5
    shown = page(report.gather(log.Log(tmp_path)))
    rows = shown.tables["What changed"]
    assert [each[3] for each in rows[1:]] == [format_lsn(lsn) for lsn in range(101, 106)]
    assert rows[1][2] == "+more numeric(10,2)"
    [mark] = [each for each in shown.attributes["title"] if "was public.t\n- v text" in each]
    assert mark.startswith("2000-01-01 00:00:03.000\n")
    assert shown.text.count("table first seen") == 1


def test_a_column_that_comes_and_goes(tmp_path: Path) -> None:
    """Within one call of the decoder, and in the order of commits."""
    wide = relation(1, *T.columns, column("more"))
    messages: list[Any] = []
    for number in range(4):
        version = (T, wide)[number % 2]
        messages += transaction(version, insert(1, *["1"] * len(version.columns)), lsn=100 + number)
    found = report.gather(written(tmp_path, *messages)).schema
    assert [each.details for each in found.first] == [
        (("+", "more text"),),
        (("-", "more text"),),
        (("+", "more text"),),
    ]


def test_a_repeated_relation_is_no_schema_change(tmp_path: Path) -> None:
    found = report.gather(
        written(
            tmp_path,
            *transaction(T, insert(1, "1", "a", None), lsn=100),
            *transaction(T, insert(1, "1", "a", None), lsn=200),
        )
    )
    assert found.schema.count == 0
    assert "No table definition changed." in page(found).text
