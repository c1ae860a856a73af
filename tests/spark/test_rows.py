"""The rows of format("pgoutput"), from a log to record batches; without a Spark session."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import TableError
from tests.support import build, corpus, spark_logs
from tests.support.build import column, row
from tests.support.spark_logs import Row

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pgwire_codec.spark import PgoutputDataSource


def read(path: str, **options: str) -> tuple[list[Row], list[InputPartition]]:
    """Return the rows that Spark would read, and the partitions, with Spark's check of schemas."""
    data_source = PgoutputDataSource(CaseInsensitiveDict({"path": path} | options))
    schema = data_source.schema()
    in_arrow = to_arrow_schema(schema, **({"timezone": "UTC"} if spark_logs.HAS_LIMITS else {}))
    reader = data_source.reader(schema)
    rows: list[Row] = []
    partitions = reader.partitions()
    assert isinstance(partitions, list)
    for partition in partitions:
        for batch in reader.read(partition):
            assert batch.schema.equals(in_arrow)
            batch.validate(full=True)
            rows += batch.to_pylist(maps_as_pydicts="strict")
    return rows, partitions


def read_stream(path: str, max_bytes: int) -> list[Row]:
    """The same by a stream's reader, as Spark uses it: pickled, and micro-batch by micro-batch."""
    from pyspark.sql.streaming.datasource import ReadMaxBytes

    data_source = PgoutputDataSource(CaseInsensitiveDict({"path": path}))
    reader: Any = data_source.streamReader(data_source.schema())
    rows: list[Row] = []
    start, limit = reader.initialOffset(), ReadMaxBytes(max_bytes)
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(start, limit)) != start:
        if start == reader.initialOffset():
            assert end == reader.latestOffset(start, limit)
        partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        reading = pickle.loads(pickle.dumps(reader))
        for partition in partitions:
            for batch in reading.read(partition):
                rows += batch.to_pylist(maps_as_pydicts="strict")
        start = json.loads(json.dumps(end))
    assert start["lsn"] == reader.reportLatestOffset()["lsn"]
    return rows


def tables_of(capture: corpus.Capture) -> list[str]:
    """The tables that change, by the names that they have in the end."""
    decoder = pgc.Decoder()
    batches = decoder.decode(capture.messages).batches
    known = decoder.carry.scope.relations
    return sorted({known[batch.relation.oid][1].qualified_name for batch in batches})


QUICK = [corpus.capture("dml.pg18.v1-text"), corpus.capture("traps.pg18.v2-stream")]


def captures() -> list[object]:
    slow, thorough = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.thorough]
    return [
        each if each in QUICK else pytest.param(each, marks=slow if each.major == 18 else thorough)
        for each in corpus.captures()
    ]


EVERYTHING = 8 << 20


def part_sizes(capture: corpus.Capture) -> list[int]:
    """From one message to all of them; the longest captures would take their time at that."""
    one = capture.major == 18 and capture.scenario not in ("streams", "types")
    some = max(sum(map(len, capture.messages)) // 50, 2000)
    return [*([1] if one else []), some, EVERYTHING]


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_every_capture(capture: corpus.Capture, tmp_path: Path) -> None:
    """All changes as text, at once and as a stream; and a table's in its own types."""
    expected = spark_logs.serial_changes(capture)
    message_bytes = sum(map(len, capture.messages))
    for part_bytes in part_sizes(capture):
        path = spark_logs.to_log(capture, tmp_path / str(part_bytes), part_bytes=part_bytes)
        rows, partitions = read(path, maxPartitionBytes=str(part_bytes))
        assert sorted(rows, key=spark_logs.in_order) == expected
        assert (len(partitions) == 1) == (part_bytes > message_bytes)
        if 1 < part_bytes < EVERYTHING and spark_logs.HAS_LIMITS:
            rows = read_stream(path, message_bytes // 20)
            assert sorted(rows, key=spark_logs.in_order) == expected
    # The scenario dml changes a column's type, and settings spell values so that their types do not
    # know them: there, compare what all types can be.
    types = "text" if capture.scenario in ("dml", "settings") else "native"
    for table in tables_of(capture)[: 3 if capture.major == 18 else 1]:
        rows, _ = read(path, table=table, types=types, unrepresentable="null")
        rows.sort(key=spark_logs.place)
        assert rows == spark_logs.serial_rows(
            capture, table, rows[0], types=types, unrepresentable="null"
        )


T = build.relation(1, column("id", "int4", key=True), column("v"), column("note"))
FULL = build.relation(
    2, *(column(name, kind, key=True) for name, kind in [("id", "int4"), ("v", "text")]),
    name="full", identity="f",
)  # fmt: skip

CHANGES = [
    *build.transaction(T, build.insert(1, "1", "a", "long"), xid=0, lsn=50),
    *build.transaction(
        build.insert(1, "2", None, ""),
        build.update(1, row("1", "b", ...)),
        build.update(1, row("3", "c", ...), key=row("1", None, None)),
        build.delete(1, key=row("2", None, None)),
        build.truncate(1),
        lsn=100,
    ),
    *build.transaction(
        FULL,
        build.insert(2, "1", "a"),
        build.update(2, row("2", "b"), old=row("1", "a")),
        build.delete(2, old=row("2", "b")),
        xid=8,
        lsn=200,
    ),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    messages = build.wire(CHANGES)
    return spark_logs.write(tmp_path / "log", messages, range(1, len(messages) + 1))


def only(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_rows_of_a_table(path: str) -> None:
    rows, _ = read(path, table="public.t")
    assert only(rows, "_op", "id", "v", "note", "_unchanged", "_before", "_xid", "_commit_lsn") == [
        ("I", 1, "a", "long", None, None, 0, 50),
        ("I", 2, None, "", None, None, 7, 100),
        ("U", 1, "b", None, ["note"], None, 7, 100),
        ("U", 3, "c", None, ["note"], {"id": 1}, 7, 100),
        ("D", 2, None, None, None, {"id": 2}, 7, 100),
        ("T", None, None, None, None, None, 7, 100),
    ]
    assert [row["_seq"] for row in rows] == [0, 0, 1, 2, 3, 4]
    assert [row["_lsn"] for row in rows] == [3, 6, 7, 8, 9, 10]


def test_chosen_columns(path: str) -> None:
    rows, _ = read(path, table="public.t", columns="note, id", before="none")
    assert list(rows[0])[:3] == ["note", "id", "_op"]
    assert "_before" not in rows[0]
    assert only(rows, "id", "note")[:2] == [(1, "long"), (2, "")]


def test_rows_of_all_tables(path: str) -> None:
    rows, _ = read(path)
    assert only(rows, "relation", "op", "new", "old", "_unchanged") == [
        ("public.t", "I", {"id": "1", "v": "a", "note": "long"}, None, None),
        ("public.t", "I", {"id": "2", "v": None, "note": ""}, None, None),
        ("public.t", "U", {"id": "1", "v": "b"}, None, ["note"]),
        ("public.t", "U", {"id": "3", "v": "c"}, {"id": "1"}, ["note"]),
        ("public.t", "D", None, {"id": "2"}, None),
        ("public.t", "T", None, None, None),
        ("public.full", "I", {"id": "1", "v": "a"}, None, None),
        ("public.full", "U", {"id": "2", "v": "b"}, {"id": "1", "v": "a"}, None),
        ("public.full", "D", None, {"id": "2", "v": "b"}, None),
    ]


def test_ranges_of_commits(path: str) -> None:
    """After startingLsn, and up to endingLsn: consecutive ranges have each change once."""
    for starting, ending, lsns in [
        ("0/0", "50", {50}),
        ("50", "0/64", {100}),
        ("49", "99", {50}),
        ("100", "1000", {200}),
        ("50", None, {100, 200}),
        ("200", None, set()),
    ]:
        options = {"startingLsn": starting} | ({} if ending is None else {"endingLsn": ending})
        rows, _ = read(path, **options)
        assert {row["_commit_lsn"] for row in rows} == lsns


def test_debezium(path: str) -> None:
    rows, _ = read(path, table="public.t", style="debezium")
    first = {"id": 1, "v": "a", "note": "long"}
    assert only(rows, "op", "before", "after") == [
        ("r", None, first),
        ("c", None, {"id": 2, "v": None, "note": ""}),
        ("u", None, {"id": 1, "v": "b", "note": None}),
        ("u", {"id": 1, "v": None, "note": None}, {"id": 3, "v": "c", "note": None}),
        ("d", {"id": 2, "v": None, "note": None}, None),
        ("t", None, None),
    ]
    assert rows[3]["source"] == {
        "connector": "postgresql",
        "ts_ms": 946_684_800_000,
        "snapshot": "false",
        "db": "shop",
        "schema": "public",
        "table": "t",
        "txId": 7,
        "lsn": 8,
        "commit_lsn": 100,
        "seq": 2,
        "origin": None,
        "unchanged": ["note"],
    }
    assert rows[0]["source"]["snapshot"] == "true"
    assert {row["ts_ms"] for row in rows} == {946_684_800_000}
    full, _ = read(path, table="public.full", style="debezium", columns="v")
    assert only(full, "op", "before", "after") == [
        ("c", None, {"v": "a"}),
        ("u", {"v": "a"}, {"v": "b"}),
        ("d", {"v": "b"}, None),
    ]


def test_names_that_collide(tmp_path: Path) -> None:
    table = build.relation(1, column("_op", "int4", key=True), column("_unchanged"))
    changes = build.transaction(table, build.insert(1, "1", "y"))
    path = spark_logs.write(tmp_path / "log", build.wire(changes))
    ((row,), _) = read(path, table="public.t")
    assert (row["_op"], row["__op"], row["_unchanged"], row["__unchanged"]) == (1, "I", "y", None)
    ((row,), _) = read(path)
    assert (row["op"], row["new"]["_op"]) == ("I", "1")


def test_an_older_version_is_matched_by_name(tmp_path: Path) -> None:
    older = build.relation(1, column("id", "int4", key=True), column("n", "int2"), column("gone"))
    newer = build.relation(1, column("new"), column("n", "int8"), column("id", "int4", key=True))
    path = spark_logs.write(
        tmp_path / "log",
        build.wire(
            [
                *build.transaction(older, build.insert(1, "1", "7", "x"), lsn=10),
                *build.transaction(newer, build.insert(1, "a", "8000000000", "2"), lsn=20),
            ]
        ),
    )
    rows, _ = read(path, table="public.t")
    assert only(rows, "new", "n", "id") == [(None, 7, 1), ("a", 8_000_000_000, 2)]
    rows, _ = read(path, table="public.t", columns="n", style="debezium")
    assert only(rows, "after") == [({"n": 7},), ({"n": 8_000_000_000},)]


def test_what_cannot_be_read_says_so(path: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no table 'public\.nope' — hint: Their tables: public\.full"
    ):
        read(path, table="public.nope")
    with pytest.raises(
        ValueError, match=r"public\.t has no column w, x — hint: Its columns are id, v, note"
    ):
        read(path, table="public.t", columns="id,w,x")
    with pytest.raises(log.LogError, match="is not a log"):
        read(str(tmp_path / "nothing"))
    data_source = PgoutputDataSource(CaseInsensitiveDict({"path": path, "table": "public.t"}))
    other = PgoutputDataSource(CaseInsensitiveDict({"path": path, "table": "public.full"}))
    with pytest.raises(ValueError, match=r"Leave out \.schema"):
        data_source.reader(other.schema())


def test_rejected_messages_are_left_out(tmp_path: Path) -> None:
    rows = [build.insert(1, key, "a", "b") for key in ("x", "2")]
    messages = build.wire(build.transaction(T, *rows))
    path = spark_logs.write(tmp_path / "log", messages)
    where = r"column id \(int4\), row id='x'; public\.t, commit LSN 0/64, segment 0+, .* 0 to 4"
    with pytest.raises(pgc.DecodeError, match=where):
        read(path, table="public.t")
    assert only(read(path, table="public.t", onError="skip")[0], "id") == [(2,)]


def test_a_table_that_changed_after_the_schema_was_made(tmp_path: Path) -> None:
    """A narrower type fits; a new column or another type would be lost, and is an error."""

    def table(number: int, *columns: pgc.RelationColumn) -> list[bytes]:
        values = ["1"] * (len(columns) + 1)
        relation = build.relation(1, column("id", "int4", key=True), *columns)
        lsn = 10 * number
        return build.wire(build.transaction(relation, build.insert(1, *values), lsn=lsn))

    folder = tmp_path / "log"
    path = spark_logs.write(folder, table(1, column("n", "int8"), column("gone")))

    def reader(**options: str) -> Any:
        options = {"path": path, "table": "public.t"} | options
        data_source = PgoutputDataSource(CaseInsensitiveDict(options))
        return data_source.reader(data_source.schema())

    made, narrow = reader(), reader(columns="id")
    spark_logs.write(folder, table(2, column("n", "int4")))
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    assert pa.Table.from_batches(batches).select(["id", "n", "gone"]).to_pylist() == [
        {"id": 1, "n": 1, "gone": "1"},
        {"id": 1, "n": 1, "gone": None},
    ]
    spark_logs.write(folder, table(3, column("n", "int4"), column("more")))
    with pytest.raises(
        ValueError, match=r"public\.t has a new column more: the query has an older schema"
    ):
        made.partitions()
    assert len(narrow.partitions()) > 0
    other = spark_logs.write(tmp_path / "other", table(1, column("n", "int8")))
    made = reader(path=other)
    spark_logs.write(tmp_path / "other", table(2, column("n", "text")))
    with pytest.raises(ValueError, match="has n as string, which was int64"):
        made.partitions()


def test_commit_times(tmp_path: Path) -> None:
    """From startingTimestamp to endingTimestamp, of a table and of all; the second is earlier."""
    seconds = {100: 5, 200: 3, 300: 9}
    changes = [
        message
        for lsn, second in seconds.items()
        for message in build.transaction(
            T, build.insert(1, "1", "a", None), lsn=lsn, time=second * 1_000_000
        )
    ]
    path = spark_logs.write(tmp_path / "log", build.wire(changes))
    for starting, ending, lsns in [
        ("03", "05", {100, 200}),
        ("04", None, {100, 300}),
        (None, "02", set()),
    ]:
        options = {
            name: f"2000-01-01T00:00:{second}Z"
            for name, second in (("startingTimestamp", starting), ("endingTimestamp", ending))
            if second is not None
        }
        for table in ({}, {"table": "public.t"}):
            rows, _ = read(path, **options, **table)
            assert {row["_commit_lsn"] for row in rows} == lsns


# Old tuples with the key of a partition.

ROOT = build.relation(1, column("id", "int4", key=True), column("code", "int4"), name="root")
LEAF = build.relation(
    2, column("code", "int4", key=True), column("id", "int4"), name="leaf", identity="i"
)


def test_an_old_tuple_without_the_key_is_an_error_of_its_table(tmp_path: Path) -> None:
    deleted = build.delete(1, key=build.row(None, "103"))
    inserted = build.insert(1, "1", "103")
    path = spark_logs.write(
        tmp_path / "log", build.wire(build.transaction(ROOT, LEAF, inserted, deleted))
    )
    error = (
        r'public\.root, commit LSN 0/64: .* the replica identity code of "public"\."leaf", and the '
        r'table has id: .* — hint: Run ALTER TABLE "public"\."leaf" REPLICA IDENTITY DEFAULT; on'
    )
    for options in ({}, {"style": "debezium"}):
        with pytest.raises(TableError, match=error):
            read(path, table="public.root", **options)
    rows, _ = read(path, table="public.root", before="none")
    assert only(rows, "_op", "id", "code") == [("I", 1, 103), ("D", None, 103)]
    rows, _ = read(path)
    assert only(rows, "op", "new", "old") == [
        ("I", {"id": "1", "code": "103"}, None),
        ("D", None, {"code": "103"}),
    ]


def test_the_partition_with_another_key_is_not_always_known(tmp_path: Path) -> None:
    messages = build.transaction(ROOT, build.delete(1, key=build.row(None, "103")))
    path = spark_logs.write(tmp_path / "log", build.wire(messages))
    with pytest.raises(
        TableError, match=r"code of a partition, .*pg_partition_tree\('\"public\"\.\"root\"'\)"
    ):
        read(path, table="public.root")


def test_a_partition_of_a_table_whose_rows_are_their_own_key(tmp_path: Path) -> None:
    """Its own identity is the one to change: the table has FULL already."""
    whole = build.relation(
        1, column("id", "int4", key=True), column("v", key=True), name="root", identity="f"
    )
    leaf = build.relation(2, column("v"), column("id", "int4", key=True), name="leaf")
    deleted = build.delete(1, key=build.row("1", None))
    path = spark_logs.write(tmp_path / "log", build.wire(build.transaction(whole, leaf, deleted)))
    error = r'identity id of "public"."leaf", .* ALTER TABLE "public"."leaf" REPLICA IDENTITY FULL;'
    with pytest.raises(TableError, match=error):
        read(path, table="public.root")


def test_updates_with_another_identity(tmp_path: Path) -> None:
    """They are refused, if a query asks for that: the newest key does not find their rows."""
    by_id = build.relation(1, column("id", "int4", key=True), column("x", "int4"))
    by_x = build.relation(1, column("id", "int4"), column("x", "int4", key=True))
    update = build.update(1, build.row("1", "2"))
    first = build.transaction(by_id, build.insert(1, "1", "1"), lsn=10)
    second = build.transaction(by_id, update, by_x, build.insert(1, "2", "3"), lsn=20)
    path = spark_logs.write(tmp_path / "log", build.wire([*first, *second]))
    options = {"table": "public.t", "checkIdentity": "true"}
    assert len(read(path, endingLsn="10", **options)[0]) == 1
    error = "commit LSN 0/14: an update or delete was sent with the replica identity id, and the "
    with pytest.raises(ValueError, match=error):
        read(path, **options)
