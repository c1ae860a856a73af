"""format("pgoutput") reads relations, whatever their names; without a Spark session."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.protocol.lsn import format_lsn
from tests.support import build, spark_logs
from tests.support.build import column

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pyspark.sql.datasource import CaseInsensitiveDict

from pgwire_codec.spark import PgoutputDataSource, decode_partition

ID = column("id", "int4", key=True)


def change(oid: int, name: str, lsn: int, *columns: pgc.RelationColumn) -> list[bytes]:
    """A transaction that inserts the row of its LSN into a table that has this name."""
    relation = build.relation(oid, ID, *columns, name=name)
    values = [str(lsn), *["1"] * len(columns)]
    return build.wire(build.transaction(relation, build.insert(oid, *values), lsn=lsn))


#: Relations with the name r: 1; none; 2; 3, since 2 was dropped; 1 again.
HISTORY = {
    10: (1, "r"),
    20: (2, "s"),
    30: (1, "r"),
    40: (1, "q"),
    50: (2, "s"),
    60: (2, "r"),
    70: (3, "r"),
    80: (1, "r"),
}

#: Rows of micro-batches when other relations replace the one that had the name.
REPLACED = {
    (0, 10): [10],
    (10, 30): [30],
    (0, 30): [10, 30],
    (30, 40): [],
    (40, 50): [],
    (50, 60): [20, 50, 60],
    (45, 60): [20, 50, 60],
    (30, 60): [20, 50, 60],
    (60, 70): [70],
    (30, 70): [70],
    (70, 80): [10, 30, 40, 80],
    (30, 80): [40, 80],
    (0, 80): [10, 30, 40, 80],
}


def source(path: str, **options: str) -> PgoutputDataSource:
    return PgoutputDataSource(CaseInsensitiveDict({"path": path} | options))


def rows_in(reader: Any, partitions: Any) -> list[spark_logs.Row]:
    """The rows, as tasks read them."""
    reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))
    batches = [batch for each in partitions for batch in reader.read(each)]
    rows = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
    return sorted(rows, key=spark_logs.place)


def read(path: str, **options: str) -> list[spark_logs.Row]:
    made = source(path, **options)
    reader = made.reader(made.schema())
    return rows_in(reader, reader.partitions())


def stream_reader(path: str, **options: str) -> Any:
    made = source(path, **options)
    return made.streamReader(made.schema())


def micro_batch(reader: Any, after: int, until: int) -> list[spark_logs.Row]:
    start, end = ({"ordinal": 0, "lsn": format_lsn(lsn)} for lsn in (after, until))
    return rows_in(reader, reader.partitions(start, end))


def ids(rows: list[spark_logs.Row]) -> list[int]:
    return [row["id"] for row in rows]


@pytest.fixture
def path(tmp_path: Path) -> str:
    for lsn, (oid, name) in HISTORY.items():
        spark_logs.write(tmp_path / "log", change(oid, name, lsn))
    return str(tmp_path / "log")


def test_a_stream_replaces_one_relation_by_another(path: str) -> None:
    """By everything that it did, under all its names."""
    reader = stream_reader(path, table="public.r", onRelationChange="replace")
    assert {range_: ids(micro_batch(reader, *range_)) for range_ in REPLACED} == REPLACED
    (row,) = micro_batch(reader, 60, 70)
    assert list(row)[-1] == "_relation_oid"
    assert row["_relation_oid"] == 3


@pytest.mark.parametrize("in_one_part", [False, True], ids=["a part each", "in one part"])
def test_a_micro_batch_is_the_same_when_the_log_has_grown(
    tmp_path: Path, in_one_part: bool
) -> None:
    """Changes of the name after a range have no effect on it."""
    for until in HISTORY:
        folder = tmp_path / str(until) if in_one_part else tmp_path / "log"
        changes = [
            change(oid, name, lsn)
            for lsn, (oid, name) in HISTORY.items()
            if lsn == until or (in_one_part and lsn < until)
        ]
        path = spark_logs.write(folder, list(itertools.chain(*changes)))
        if HISTORY[until][1] != "r":
            continue  # no relation has the name: no stream begins here
        reader = stream_reader(path, table="public.r", onRelationChange="replace")
        for range_, expected in REPLACED.items():
            if range_[1] <= until:
                assert ids(micro_batch(reader, *range_)) == expected, (range_, until)


@pytest.mark.parametrize(
    ("after", "until", "message"),
    [
        (
            30,
            40,
            r"relation 1 had the name public\.r at 0/1E, but no relation has it "
            r"at 0/28; relation 1 is public\.q now — hint: Set relationOid=1 in .* the rows\.$",
        ),
        (
            30,
            60,
            r"relation 1 had the name public\.r at 0/1E, but relation 2 has it at 0/3C; relation 1 "
            r"is public\.q now — hint: Set relationOid=1 .* Set relationOid=2 .* new one\.$",
        ),
        (
            60,
            70,
            r"relation 2 had the name public\.r at 0/3C, but relation 3 has it at 0/46 — hint: Se",
        ),
    ],
)
def test_a_stream_fails_when_the_name_changes_hands(
    path: str, after: int, until: int, message: str
) -> None:
    reader = stream_reader(path, table="public.r")
    for _ in range(2):
        with pytest.raises(log.LogError, match=message):
            micro_batch(reader, after, until)


def test_a_stream_does_not_fail_while_one_relation_has_the_name(path: str) -> None:
    """Nor when a relation gets a name that nobody has."""
    reader = stream_reader(path, table="public.r")
    for range_ in [(0, 10), (10, 30), (40, 50), (50, 60), (45, 60), (30, 80), (0, 80)]:
        assert ids(micro_batch(reader, *range_)) == REPLACED[range_]


def test_a_new_relation_is_not_looked_for_before_the_range(path: str) -> None:
    """Its first change is in the range: the log before it need not be decoded."""
    reader = stream_reader(path, table="public.r", onRelationChange="replace")
    partitions = reader.partitions({"ordinal": 0, "lsn": "0/3C"}, {"ordinal": 0, "lsn": "0/46"})
    assert [each.partition.after for each in partitions] == [60]


def test_a_pruned_log(tmp_path: Path) -> None:
    """The whole history of a relation is there, or it is an error."""
    folder = tmp_path / "log"
    for lsn, (oid, name) in HISTORY.items():
        path = spark_logs.write(folder, change(oid, name, lsn))
        with log.LogWriter(folder, spark_logs.source()) as writer:
            writer.seal()
    assert log.prune(folder, 50)
    assert log.Log(folder).begin.lsn == 50
    reader = stream_reader(path, table="public.r", onRelationChange="replace")
    for after, until in ((50, 60), (70, 80)):
        with pytest.raises(
            log.LogError,
            match=rf"got the name public\.r between {format_lsn(after)} and {format_lsn(until)}, "
            r"but earlier changes of it were pruned from .*, up to 0/32 — hint: Take a new",
        ):
            micro_batch(reader, after, until)
    assert ids(micro_batch(reader, 60, 70)) == [70]
    assert ids(micro_batch(reader, 60, 60)) == []


def test_a_batch_has_the_relation_of_the_end_of_its_range(path: str) -> None:
    for ending, expected in {10: [10], 39: [10, 30], 60: [20, 50, 60], 79: [70]}.items():
        assert ids(read(path, table="public.r", endingLsn=str(ending))) == expected
    assert ids(read(path, table="public.r")) == [10, 30, 40, 80]
    assert ids(read(path, table="public.r", startingLsn="20")) == [30, 40, 80]
    with pytest.raises(ValueError, match=r"no relation has the name 'public\.r' .*relation 1 is p"):
        read(path, table="public.r", endingLsn="40")
    with pytest.raises(ValueError, match=r"no relation has the name 'public\.s' .*relation 2 is p"):
        read(path, table="public.s")


def test_a_relation_by_its_oid(path: str) -> None:
    rows = read(path, relationOid="2", withRelationOid="true")
    assert ids(rows) == [20, 50, 60]
    assert {row["_relation_oid"] for row in rows} == {2}
    assert ids(micro_batch(stream_reader(path, relationOid="1"), 30, 70)) == [40]
    assert "_relation_oid" not in read(path, relationOid="3")[0]
    with pytest.raises(
        ValueError, match=r"no relation 9 — hint: Their relations: 1 \(public\.r\), 2 \(pu"
    ):
        read(path, relationOid="9")
    with pytest.raises(
        ValueError, match=r"no relation 2 — hint: Their relations: 1 \(public\.r\)\.$"
    ):
        read(path, relationOid="2", endingLsn="10")


def test_all_tables_with_their_relations(path: str) -> None:
    rows = read(path, withRelationOid="true")
    found = {int(row["new"]["id"]): (row["_relation_oid"], row["relation"]) for row in rows}
    assert found == {lsn: (oid, f"public.{name}") for lsn, (oid, name) in HISTORY.items()}
    assert "_relation_oid" not in read(path)[0]


def test_a_table_with_a_column_of_that_name(tmp_path: Path) -> None:
    messages = change(1, "t", 10, column("_relation_oid"))
    path = spark_logs.write(tmp_path / "log", messages)
    (row,) = read(path, table="public.t", withRelationOid="true")
    assert (row["_relation_oid"], row["__relation_oid"]) == ("1", 1)
    (row,) = read(path, withRelationOid="true")
    assert (row["new"]["_relation_oid"], row["_relation_oid"]) == ("1", 1)


def test_the_newest_version_is_the_one_that_holds(tmp_path: Path) -> None:
    """Also when a column was added and dropped again, so that an older version came last."""
    messages = [
        *change(1, "t", 10),
        *change(1, "t", 20, column("more")),
        *change(1, "u", 30),
        *change(1, "t", 40),
        *change(2, "u", 50, column("other")),
    ]
    path = spark_logs.write(tmp_path / "log", messages)
    rows = read(path, table="public.t")
    assert ids(rows) == [10, 20, 30, 40]
    assert list(rows[0])[:2] == ["id", "_op"]
    assert list(read(path, table="public.t", endingLsn="29")[0])[:2] == ["id", "more"]


def test_rows_of_an_older_relation_in_the_schema_of_the_newest(tmp_path: Path) -> None:
    """Columns are matched by name; what the schema cannot hold is an error."""
    messages = [
        *change(1, "t", 10, column("n", "int2")),
        *change(2, "t", 20, column("new"), column("n", "int8")),
        *change(3, "t", 30, column("n", "int8")),
    ]
    path = spark_logs.write(tmp_path / "log", messages)
    reader = stream_reader(path, table="public.t", onRelationChange="replace")
    (row,) = micro_batch(reader, 0, 10)
    assert (row["id"], row["n"], row["_relation_oid"]) == (10, 1, 1)
    with pytest.raises(ValueError, match=r"public\.t has a new column new: .*the option columns"):
        micro_batch(reader, 0, 20)
    reader = stream_reader(path, table="public.t", onRelationChange="replace", columns="id,n")
    assert ids(micro_batch(reader, 10, 20)) == [20]


def test_decode_partition_by_oid() -> None:
    messages = list(itertools.chain(*(change(*HISTORY[lsn], lsn) for lsn in HISTORY)))
    rows = list(decode_partition(messages, relation_oid=2))
    assert [(row["id"], row["_table"]) for row in rows] == [
        (20, "public.s"),
        (50, "public.s"),
        (60, "public.r"),
    ]
    assert [row["id"] for row in decode_partition(messages, table="public.s")] == [20, 50]
