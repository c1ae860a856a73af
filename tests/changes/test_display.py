"""Reprs of changes, and the small tables that a notebook shows of them."""

from __future__ import annotations

import pgwire_codec as pgc
from tests.support.build import (
    T,
    column,
    decode,
    delete,
    insert,
    relation,
    row,
    transaction,
    truncate,
    update,
)
from tests.support.pages import Page

OTHER = relation(2, column("id", "int4", key=True), name="<other>")


def test_reprs_count_the_changes() -> None:
    changes = decode(
        [
            *transaction(T, insert(1, "1", "a", None), insert(1, "2", "b", None), lsn=100),
            *transaction(T, OTHER, truncate(1, 2), pgc.Message(None, 1, 5, "p", b""), lsn=200),
        ]
    )
    assert repr(changes) == (
        "<Changes: 4 changes in 2 transactions: public.t (2 inserts, 1 truncate), "
        'public."<other>" (1 truncate); 1 logical message>'
    )
    assert repr(changes.batches[0]) == (
        "<ChangeBatch public.t: 3 rows (2 inserts, 1 truncate), columns id, v, note>"
    )
    assert repr(decode([])) == "<Changes: 0 changes in 0 transactions>"
    wide = decode(transaction(relation(3, *(column(f"c{n}") for n in range(99))), truncate(3)))
    assert repr(wide.batches[0]).endswith("c10, c11, … (99)>")


def test_a_decoder_counts_what_it_keeps() -> None:
    decoder = pgc.Decoder()
    decoder.decode([pgc.encode_message(each) for each in [pgc.Begin(100, 0, 7), T]])
    assert repr(decoder) == "<Decoder: 1 relation, 1 open transaction>"


def test_a_batch_is_a_table_of_the_four_states() -> None:
    changes = decode(
        transaction(
            T,
            insert(1, "1", "a <b>", None),
            update(1, row("1", "x" * 99, ...)),
            delete(1, key=row("1", None, None)),
        )
    )
    for shown in (changes, changes.batches[0]):
        [(caption, cells)] = Page(shown._repr_html_()).tables.items()
        assert caption == "public.t: 3 rows (1 insert, 1 update, 1 delete)"
        assert cells == [
            ["operation", "id int4", "v text", "note text", "commit LSN"],
            ["I", "1", "a <b>", "NULL", "0/64"],
            ["U", "1", "x" * 60 + "…", "unchanged", "0/64"],
            ["D", "1", "not sent", "not sent", "0/64"],
        ]


def test_a_table_has_the_first_rows_and_columns_only() -> None:
    wide = relation(1, *(column(f"c{n}") for n in range(21)))
    inserts = [insert(1, *["1"] * 21)] * 11
    (batch,) = decode(transaction(wide, *inserts))
    [cells] = Page(batch._repr_html_()).tables.values()
    assert {len(line) for line in cells} == {23}
    assert len(cells) == 12
    assert cells[0][-2:] == ["…", "commit LSN"]
    assert cells[-1] == ["…", *[""] * 22]


def test_a_value_that_does_not_decode_is_shown_as_it_came() -> None:
    table = relation(1, column("n", "int4"), column("b"))
    (batch,) = decode(transaction(table, insert(1, "one", b"\xff")))
    [(_, line)] = Page(batch._repr_html_()).tables.values()
    assert line[1:3] == ["one", "0xff"]


def test_changes_of_several_tables_are_a_table_of_counts() -> None:
    changes = decode(transaction(T, OTHER, insert(1, "1", "a", None), truncate(1, 2)))
    assert Page(changes._repr_html_()).tables == {
        "3 changes of 2 tables": [
            ["table", "inserts", "updates", "deletes", "truncates"],
            ["public.t", "1", "0", "0", "1"],
            ['public."<other>"', "0", "0", "0", "1"],
        ]
    }
