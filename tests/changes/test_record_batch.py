"""to_arrow and the Arrow interface: the table's columns, then what is known of each change."""

from __future__ import annotations

import datetime
from typing import Any

import nanoarrow as na
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.lake.row_types import ROW_TYPES
from tests.support.build import (
    T,
    batch,
    column,
    decode,
    delete,
    insert,
    only,
    relation,
    row,
    transaction,
    truncate,
    update,
)

FULL = relation(
    1,
    column("id", "int4", key=True),
    column("v", key=True),
    column("note", key=True),
    identity="f",
)


def made_of_everything(**options: Any) -> pgc.ChangeBatch:
    """Every kind of change to one table."""
    return batch(
        insert(1, "1", "a", None),
        update(1, row("1", "b", ...)),
        update(1, row("2", "c", ...), key=row("1", None, None)),
        delete(1, key=row("2", None, None)),
        truncate(1),
        **options,
    )


def test_schema() -> None:
    schema = made_of_everything().to_arrow().schema
    assert {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)} == {
        "id": "int32",
        "v": "string",
        "note": "string",
        "_op": "string",
        "_xid": "int64",
        "_lsn": "int64",
        "_commit_lsn": "int64",
        "_commit_time": "timestamp[us, tz=UTC]",
        "_seq": "int64",
        "_origin": "string",
        "_unchanged": "list<item: string>",
        "_before": "struct<id: int32>",
    }
    assert schema.names[:4] == ["id", "v", "note", "_op"]  # the table's columns come first


def test_rows() -> None:
    table = made_of_everything().to_arrow()
    table.validate(full=True)
    assert table.select(["id", "v", "note"]).to_pylist() == [
        {"id": 1, "v": "a", "note": None},
        {"id": 1, "v": "b", "note": None},
        {"id": 2, "v": "c", "note": None},
        {"id": 2, "v": None, "note": None},  # a delete carries what identifies the row
        {"id": None, "v": None, "note": None},  # a truncate carries nothing
    ]
    assert table["_op"].to_pylist() == ["I", "U", "U", "D", "T"]
    assert table["_xid"].to_pylist() == [7] * 5
    assert table["_commit_lsn"].to_pylist() == [100] * 5
    assert table["_seq"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["_unchanged"].to_pylist() == [None, ["note"], ["note"], None, None]
    assert table["_before"].to_pylist() == [None, None, {"id": 1}, {"id": 2}, None]


def test_commit_time() -> None:
    table = only(decode(transaction(T, insert(1, "1", None, None), time=1_000_000))).to_arrow()
    second = datetime.datetime(2000, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    assert table["_commit_time"].to_pylist() == [second]


def test_lsn_is_null_unless_it_is_told() -> None:
    messages = transaction(T, insert(1, "1", None, None), truncate(1))
    assert only(decode(messages)).to_arrow()["_lsn"].to_pylist() == [None, None]
    told = only(decode(messages, lsn=[10, 0, 11, 12, 13])).to_arrow()
    assert told["_lsn"].to_pylist() == [11, 12]
    assert told["_lsn"].null_count == 0


def test_origin() -> None:
    there = transaction(T, pgc.Origin(5, "other"), insert(1, "1", None, None))
    here = transaction(insert(1, "2", None, None), lsn=200)
    assert only(decode(there + here)).to_arrow()["_origin"].to_pylist() == ["other", None]


def test_unchanged_names_columns_in_the_table_s_order() -> None:
    table = batch(
        update(1, row("1", ..., ...)), update(1, row(..., "a", None), key=row("1", None, None))
    ).to_arrow()
    assert table["_unchanged"].to_pylist() == [["v", "note"], ["id"]]


def test_unchanged_is_of_a_delete_s_old_tuple() -> None:
    table = batch(delete(1, old=row("1", ..., None)), relation=FULL).to_arrow()
    assert table["_unchanged"].to_pylist() == [["v"]]
    assert table.select(["id", "v", "note"]).to_pylist() == [{"id": 1, "v": None, "note": None}]


# _before.


def test_before_has_the_key_s_columns() -> None:
    two = relation(1, column("a", key=True), column("b"), column("c", key=True))
    table = batch(
        update(1, row("1", "2", "3"), key=row("4", None, "5")),
        update(1, row("1", "2", "3")),
        relation=two,
    ).to_arrow()
    assert table["_before"].to_pylist() == [{"a": "4", "c": "5"}, None]
    assert table["_before"].null_count == 1


def test_before_has_every_column_under_replica_identity_full() -> None:
    table = batch(update(1, row("1", "b", None), old=row("1", "a", None)), relation=FULL)
    assert table.to_arrow()["_before"].to_pylist() == [{"id": 1, "v": "a", "note": None}]


def test_before_is_null_where_the_server_sent_no_old_tuple() -> None:
    table = batch(insert(1, "1", "a", None), truncate(1)).to_arrow()
    assert table["_before"].to_pylist() == [None, None]
    assert table["_before"].is_valid().to_pylist() == [False, False]


def test_before_of_nulls_is_not_null() -> None:
    table = batch(delete(1, old=row(None, None, None)), relation=FULL).to_arrow()
    assert table["_before"].to_pylist() == [{"id": None, "v": None, "note": None}]


def test_before_full_widens_it() -> None:
    table = made_of_everything(before="full").to_arrow()
    assert table["_before"].to_pylist() == [
        None,
        None,
        {"id": 1, "v": None, "note": None},
        {"id": 2, "v": None, "note": None},
        None,
    ]


def test_before_none_drops_it() -> None:
    assert "_before" not in made_of_everything(before="none").to_arrow().schema.names


@pytest.mark.parametrize("before", ["key", "none"])
def test_without_a_replica_identity_there_is_no_before(before: str) -> None:
    nothing = relation(1, column("id", "int4"), identity="n")
    table = batch(insert(1, "1"), relation=nothing, before=before).to_arrow()
    assert "_before" not in table.schema.names


# _invalid.


def test_invalid_is_not_there_where_the_option_raises() -> None:
    assert "_invalid" not in made_of_everything().to_arrow().schema.names


@pytest.mark.parametrize(
    ("option", "dates"),
    [
        ("null", [datetime.date(2024, 1, 1), None]),
        ("clamp", [datetime.date(2024, 1, 1), 2**31 - 1]),
    ],
)
def test_invalid_names_what_was_not_kept(option: str, dates: list[Any]) -> None:
    table = relation(1, column("d", "date"), column("n", "numeric", typmod=(5 << 16 | 2) + 4))
    made = batch(
        insert(1, "2024-01-01", "1.50"),
        insert(1, "infinity", "NaN"),
        relation=table,
        unrepresentable=option,
    ).to_arrow()
    assert made["_invalid"].to_pylist() == [None, ["d", "n"]]
    days = [None if each is None else each.as_py() for each in made["d"].cast(pa.int32())]
    wanted = [
        (d - datetime.date(1970, 1, 1)).days if isinstance(d, datetime.date) else d for d in dates
    ]
    assert days == wanted
    assert [None if each is None else str(each) for each in made["n"].to_pylist()] == ["1.50", None]


def test_invalid_is_null_where_everything_was_kept() -> None:
    table = made_of_everything(unrepresentable="null").to_arrow()
    assert table["_invalid"].to_pylist() == [None] * 5


# Names that the table has, too.


def test_metadata_gives_way_to_the_table_s_columns() -> None:
    table = relation(
        1, column("_op", key=True), column("__op"), column("_seq", "int4"), column("_before")
    )
    made = batch(update(1, row("x", "y", "5", "z"), key=row("w", None, None, None)), relation=table)
    record = made.to_arrow()
    assert len(set(record.schema.names)) == len(record.schema.names)
    (found,) = record.to_pylist()
    assert (found["_op"], found["__op"], found["_seq"], found["_before"]) == ("x", "y", 5, "z")
    assert (found["___op"], found["__seq"], found["__before"]) == ("U", 0, {"_op": "w"})


# Old tuples of a partition, which have its own key, in the columns of its root.


def root(*key: str, identity: str = "d") -> pgc.Relation:
    columns = (column(name, key=name in key) for name in ("id", "r", "code", "v"))
    return relation(1, *columns, identity=identity)


@pytest.mark.parametrize(
    ("table", "keys", "expected"),
    [
        (root("id", "r"), [(None, None, "103", None)], [{"code": "103"}]),
        (root("id", "r"), [(None, "2", None, None)], [{"r": "2"}]),
        (
            root("id", "r"),
            [("1", "2", None, None), (None, None, "103", None)],
            [{"id": "1", "r": "2", "code": None}, {"id": None, "r": None, "code": "103"}],
        ),
        (root("id", "r", "code", "v", identity="f"), [("1", None, None, None)], [{"id": "1"}]),
        (root(identity="n"), [("1", None, None, None)], [{"id": "1"}]),
    ],
    ids=["another key", "a part of the key", "two partitions", "whole rows", "no key"],
)
def test_before_has_the_columns_that_were_sent(
    table: pgc.Relation, keys: list[tuple[str | None, ...]], expected: list[dict[str, str | None]]
) -> None:
    inside = [delete(1, key=row(*key)) for key in keys]
    made = batch(*inside, relation=table)
    records = made.to_arrow()
    assert records["_before"].to_pylist() == expected
    assert [each["_before"] for each in made.to_pylist()] == expected
    assert pa.record_batch(made).equals(records)
    assert batch(insert(1, *"1234"), *inside, relation=table).to_arrow()["_before"].to_pylist() == [
        None,
        *expected,
    ]
    whole = batch(*inside, relation=table, before="full").to_arrow()["_before"].to_pylist()
    assert whole == [dict.fromkeys(("id", "r", "code", "v")) | each for each in expected]
    assert "_before" not in batch(*inside, relation=table, before="none").to_arrow().schema.names


def test_an_invalid_value_of_another_key() -> None:
    table = relation(1, column("id", key=True), column("at", "date"))
    made = batch(delete(1, key=row(None, "infinity")), relation=table, unrepresentable="null")
    (found,) = made.to_pylist()
    assert (found["_before"], found["_invalid"]) == ({"at": None}, ["at", "_before.at"])


def test_metadata_names_do_not_depend_on_the_columns_asked_for() -> None:
    table = relation(1, column("_op"), column("v"))
    record = batch(insert(1, "x", "y"), relation=table).to_arrow(columns=["v"])
    assert record.schema.names[:2] == ["v", "__op"]


def test_names_of_any_characters() -> None:
    names = ["", "a b", "Ünïcode", '"', "a.b", "\n"]
    table = relation(1, *(column(name) for name in names))
    record = batch(insert(1, *"123456"), relation=table).to_arrow()
    assert record.schema.names[: len(names)] == names
    assert list(record.to_pylist()[0].values())[: len(names)] == list("123456")


# Choice of columns.


def test_columns_chosen_come_in_the_order_given() -> None:
    record = made_of_everything().to_arrow(columns=["note", "id"])
    assert record.schema.names[:3] == ["note", "id", "_op"]
    assert record["id"].to_pylist() == [1, 1, 2, 2, None]
    assert record["_before"].to_pylist() == [None, None, {"id": 1}, {"id": 2}, None]


def test_no_columns_leave_the_metadata() -> None:
    record = made_of_everything().to_arrow(columns=[])
    assert record.num_rows == 5
    assert record.schema.names[0] == "_op"


def test_a_column_that_the_table_does_not_have() -> None:
    with pytest.raises(KeyError, match=r"public\.t has no column 'nope'"):
        made_of_everything().to_arrow(columns=["id", "nope"])


def test_one_name_is_no_sequence_of_names() -> None:
    with pytest.raises(TypeError, match="not a str"):
        made_of_everything().to_arrow(columns="id")


def test_a_relation_without_columns() -> None:
    record = batch(insert(1), truncate(1), relation=relation(1)).to_arrow()
    assert record.num_rows == 2
    assert record["_op"].to_pylist() == ["I", "T"]
    assert record.schema.names[0] == "_op"


def test_every_batch_of_a_table_has_the_same_schema() -> None:
    """Record batches of one table can be concatenated, whichever columns are null in them."""
    nothing = batch(truncate(1)).to_arrow()
    everything = made_of_everything().to_arrow()
    assert nothing.schema == everything.schema
    assert pa.Table.from_batches([nothing, everything]).num_rows == 6


# Options.


def test_types_text() -> None:
    record = made_of_everything(types="text").to_arrow()
    assert record.schema.field("id").type == pa.string()
    assert record["id"].to_pylist() == ["1", "1", "2", "2", None]
    assert record.schema.field("_xid").type == pa.int64()  # only the table's columns
    assert record["_before"].to_pylist()[2] == {"id": "1"}


def test_strings_view() -> None:
    record = made_of_everything(strings="view", before="full").to_arrow()
    assert record.schema.field("v").type == pa.string_view()
    assert record.schema.field("_op").type == pa.string()
    assert record["v"].to_pylist() == ["a", "b", "c", None, None]
    assert record["_before"].type.field("v").type == pa.string_view()
    record.validate(full=True)


def test_numeric() -> None:
    table = relation(1, column("n", "numeric"))
    record = batch(insert(1, "1.5"), relation=table, numeric="decimal128(10,2)").to_arrow()
    assert record.schema.field("n").type == pa.decimal128(10, 2)


def test_target_spark() -> None:
    table = relation(1, column("o", "oid"), column("t", "time"), column("u", "uuid"))
    made = batch(
        insert(1, "5", "01:02:03", "0" * 32), relation=table, arrow_types=ROW_TYPES
    ).to_arrow()
    assert [str(each) for each in made.schema.types[:3]] == ["int64", "string", "string"]


# Consumers.


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with their time as a number: how a time zone is shown is the reader's affair."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return [{**each, "_commit_time": each["_commit_time"] - epoch} for each in rows]


@pytest.fixture(params=["copy", "view"])
def mixed(request: pytest.FixtureRequest) -> pgc.ChangeBatch:
    return made_of_everything(strings=request.param)


def test_pyarrow_takes_it(mixed: pgc.ChangeBatch) -> None:
    taken = pa.record_batch(mixed)
    assert taken.to_pylist() == mixed.to_arrow().to_pylist()
    assert taken.schema.names == mixed.to_arrow().schema.names


def test_nanoarrow_takes_it(mixed: pgc.ChangeBatch) -> None:
    assert list(na.Array(mixed).to_pysequence()) == mixed.to_arrow().to_pylist()


def test_polars_takes_it(mixed: pgc.ChangeBatch) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(mixed)
    assert plain(frame.to_dicts()) == plain(mixed.to_arrow().to_pylist())


def test_duckdb_takes_it(mixed: pgc.ChangeBatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(
        "select id, v, _op, _xid, epoch_us(_commit_time), _unchanged, _before from mixed"
    ).fetchall()
    wanted = mixed.to_arrow()
    names = ["id", "v", "_op", "_xid", "_commit_time", "_unchanged", "_before"]
    assert found == list(
        zip(
            *(
                wanted[name].cast(pa.int64()).to_pylist()
                if name == "_commit_time"
                else wanted[name].to_pylist()
                for name in names
            ),
            strict=True,
        )
    )


def test_what_was_taken_outlives_the_batch() -> None:
    made = made_of_everything()
    wanted = made.to_arrow().to_pylist()
    taken = pa.record_batch(made)
    del made
    assert taken.to_pylist() == wanted


def test_invalid_names_what_was_not_kept_of_the_old_tuple() -> None:
    dated = relation(1, column("d", "date", key=True), column("v", key=True), identity="f")
    change = update(1, row("2024-02-29", "new"), old=row("infinity", "old"))
    table = batch(change, relation=dated, unrepresentable="null").to_arrow()
    assert table["_before"].to_pylist() == [{"d": None, "v": "old"}]
    assert table["_invalid"].to_pylist() == [["_before.d"]]
