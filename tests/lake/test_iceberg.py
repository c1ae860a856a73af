"""Iceberg tables: commits of this package, read and continued by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.data_files import NewFile, write_data_files
from pgwire_codec.lake.fold import NetRows
from pgwire_codec.lake.lookup import find_rows
from pgwire_codec.lake.merge import merge_rows
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.row_types import cast_batch
from pgwire_codec.lake.tables.column_steps import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    RenameColumn,
    WidenColumn,
    changed_schema,
)
from pgwire_codec.lake.tables.target import Commit, CommitConflict
from pgwire_codec.lake.vectors import bitmap, positions_of
from pgwire_codec.lake.verify import verify
from tests.support.lakehouse import ICEBERG, has, iceberg_catalog, iceberg_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgwire_codec.lake.tables.iceberg import IcebergTarget

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])
LIST = pa.list_(pa.field("element", pa.string()))


def rows(ids: Iterable[int], tag: str = "row") -> pa.RecordBatch:
    ids = list(ids)
    return pa.record_batch([ids, [f"{tag} {number}" for number in ids]], SCHEMA)


class Table:
    """A table of an Iceberg catalog in a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.catalog = iceberg_catalog(spark, folder / "lake")
        self.name = f"{self.catalog}.made.t"
        self.folder = folder / "lake" / "made" / "t"
        self.spark = spark
        self._spark: Any = spark  # its Java objects have no types

    def target(self, **options: Any) -> IcebergTarget:
        from pgwire_codec.lake.tables.iceberg import IcebergTarget

        return IcebergTarget(self._spark, self.name, "mirror", **options)

    def create(self, count: int = 10) -> IcebergTarget:
        """The table with rows numbered from 0."""
        target = self.target()
        file = new_file(target, rows(range(count)))
        target.commit(Commit(Position(100, 16384), [file], schema=SCHEMA))
        return target

    def sql(self, statement: str) -> list[Any]:
        self._spark.sql(f"REFRESH TABLE {self.name}")
        return self._spark.sql(statement.format(t=self.name)).collect()

    def call(self, procedure: str) -> None:
        self._spark.sql(f"CALL {self.catalog}.system.{procedure}").collect()

    def compact(self) -> None:
        self.call("rewrite_data_files(table => 'made.t', options => map('rewrite-all', 'true'))")

    def expire(self, retained: int = 1) -> None:
        older = "older_than => TIMESTAMP '2100-01-01 00:00:00'"
        self.call(f"expire_snapshots(table => 'made.t', {older}, retain_last => {retained})")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        found = iceberg_table(self._spark, self.name).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    @property
    def operations(self) -> list[str]:
        found = self.sql("SELECT operation FROM {t}.snapshots ORDER BY committed_at")
        return [row[0] for row in found]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    if not has(ICEBERG):
        pytest.skip("needs Iceberg's Spark runtime, which Maven fetches for Spark 4.1")
    return Table(spark, tmp_path)


def new_file(
    target: IcebergTarget, batch: pa.RecordBatch, steps: Iterable[ColumnStep] = ()
) -> NewFile:
    schema = target.file_schema(batch.schema, [*steps])
    return _written(target, schema, cast_batch(batch, schema))


def test_rows_are_marked_and_added(table: Table) -> None:
    target = table.create()
    (file,) = target.files.files
    assert (file.rows, file.deleted, file.bounds.lower) == (10, 0, {"id": 0, "note": "row 0"})
    assert file.bounds.upper == {"id": 9, "note": "row 9"}
    for number in (3, 5):
        update = new_file(target, rows([number], "new"))
        counts = {"updated": 1}
        deleted = {file.path: bitmap([number])}
        target.commit(Commit(Position(200 + number), [update], deleted, counts=counts))
    assert table.rows == [(n, f"new {n}" if n in (3, 5) else f"row {n}") for n in range(10)]
    assert table.operations == ["append", "overwrite", "overwrite"]
    opened = table.target()
    assert opened.position == target.position == Position(205, 16384)
    assert opened.version == target.version
    assert opened.schema == SCHEMA
    assert opened.files == target.files
    (marked,) = (each for each in opened.files.files if each.deleted)
    assert positions_of(opened.files.vector(marked)).tolist() == [3, 5]
    assert table.sql("SELECT summary['mirror.rows.updated'] FROM {t}.snapshots")[2][0] == "1"


def test_the_properties_of_a_new_table(table: Table) -> None:
    assert table.target().schema is table.target().version is None
    assert table.target().position == Position()
    table.create()
    properties = {row[0]: row[1] for row in table.sql("SHOW TBLPROPERTIES {t}")}
    assert properties["format-version"] == "3"
    assert properties["mirror.commit_lsn"] == "0/64"
    assert properties["mirror.relation_oid"] == "16384"
    assert properties["mirror.sequence_number"] == "1"


def test_rows_that_are_deleted_already(table: Table) -> None:
    target = table.create()
    (file,) = target.files.files
    for positions in ([4], [4], []):
        target.commit(Commit(Position(200), (), {file.path: bitmap(positions)}))
    assert table.rows == [(n, f"row {n}") for n in range(10) if n != 4]
    assert len(list((table.folder / "data").glob("*.puffin"))) == 1
    assert table.operations == ["append", "delete", "append", "append"]


def test_a_file_without_rows_is_removed(table: Table) -> None:
    target = table.create()
    (file,) = target.files.files
    target.commit(Commit(Position(200), (), {file.path: bitmap(range(4))}))
    target.commit(Commit(Position(300), (), {file.path: bitmap(range(4, 10))}))
    assert target.files.files == ()
    assert table.rows == []
    assert table.sql("SELECT * FROM {t}.all_delete_files WHERE false") == []
    assert table.sql("SELECT * FROM {t}.files") == []


def test_many_positions(table: Table) -> None:
    target = table.create(20_000)
    (file,) = target.files.files
    odd = bitmap(range(1, 20_000, 2))
    target.commit(Commit(Position(200), (), {file.path: odd}))
    assert [row[0] for row in table.rows] == list(range(0, 20_000, 2))
    opened = table.target().files
    assert opened.vector(opened.files[0]) == odd
    assert opened.files[0].deleted == 10_000


def test_vectors_of_several_files(table: Table) -> None:
    """Each is in a file of its own, whose entry has the location of its data file as bounds."""
    target = table.create(20_000)
    target.commit(Commit(Position(200), [new_file(target, rows(range(20_000, 20_010)))]))
    large, small = sorted(target.files.files, key=lambda file: -file.size)
    deleted = {large.path: bitmap(range(3000)), small.path: bitmap([1])}
    target.commit(Commit(Position(300), (), deleted))
    assert [row[0] for row in table.rows] == [*range(3000, 20_001), *range(20_002, 20_010)]
    entries = table.sql(
        "SELECT file_path, lower_bounds[2147483546], upper_bounds[2147483546],"
        " referenced_data_file, record_count FROM {t}.delete_files"
    )
    assert len({row[0] for row in entries}) == 2
    assert {row[4]: Path(row[3]).name for row in entries} == {
        3000: Path(large.path).name,
        1: Path(small.path).name,
    }
    assert all(row[1].decode() == row[2].decode() == row[3] for row in entries)
    found = verify(f"iceberg:{table.catalog}", spark=table.spark)
    assert (found.tables, found.files, found.damage) == (1, 2, ())
    (table.folder / large.path).write_bytes(b"")
    Path(entries[0][0] if entries[0][4] == 1 else entries[1][0]).unlink()
    found = verify(f"iceberg:{table.catalog}.made", spark=table.spark)
    texts = sorted(each.text.split("/t/data/")[0] for each in found.damage)
    assert [text.split(" ")[0] for text in texts] == ["data", "deletion"]


def test_a_table_is_replaced(table: Table) -> None:
    """Also its columns: the same names with other types are other columns."""
    target = table.create()
    (file,) = target.files.files
    target.commit(Commit(Position(150), (), {file.path: bitmap([1])}))
    schema = pa.schema([("id", pa.string()), ("names", LIST), ("at", pa.timestamp("us"))])
    batch = pa.record_batch([["7"], [["a", None]], [None]], schema)
    file_schema = target.file_schema(schema)
    file = _written(target, file_schema, cast_batch(batch, file_schema))
    target.commit(Commit(Position(200, 16400), [file], replaces=True, schema=schema))
    assert table.rows == [("7", ["a", None], None)]
    assert target.schema == table.target().schema == schema
    assert target.position == Position(200, 16400)
    target.commit(Commit(Position(300), replaces=True))
    assert table.rows == []


def test_files_are_written_again(table: Table) -> None:
    target = table.create()
    target.commit(Commit(Position(150), [new_file(target, rows([10, 11]))]))
    first = next(file for file in target.files.files if file.rows == 10)
    target.commit(Commit(Position(200), (), {first.path: bitmap([0, 1])}))
    paths = [file.path for file in target.files.files]
    one = new_file(target, rows(range(2, 12)))
    target.commit(Commit(Position(), [one], removed=paths, keeps_rows=True))
    assert [(file.rows, file.vector) for file in target.files.files] == [(10, None)]
    assert target.position == Position(200, 16384)
    assert table.rows == [(n, f"row {n}") for n in range(2, 12)]
    assert table.operations[-1] == "replace"


def test_files_are_replaced_by_others(table: Table) -> None:
    target = table.create()
    (first,) = target.files.files
    second = new_file(target, rows([10, 11]))
    target.commit(Commit(Position(150), [second]))
    other = new_file(target, rows([20]))
    deleted = {second.path: bitmap([0])}
    target.commit(Commit(Position(200), [other], deleted, removed=[first.path]))
    assert table.rows == [(11, "row 11"), (20, "row 20")]
    with pytest.raises(TableError, match="has no file absent"):
        target.commit(Commit(Position(300), removed=["absent"]))


STEPS = (
    AddColumn("more", LIST),
    RenameColumn("note", "text"),
    ClearColumn("count"),
    WidenColumn("small", pa.int64()),
    WidenColumn("price", pa.decimal128(20, 2)),
    WidenColumn("share", pa.float64()),
    AddColumn("note", pa.int16()),
)
ALTERED = pa.schema([
    ("id", pa.int64()), ("small", pa.int16()), ("note", pa.string()), ("count", pa.int32()),
    ("price", pa.decimal128(10, 2)), ("share", pa.float32()),
])  # fmt: skip


def test_columns_are_changed(table: Table) -> None:
    """Each step in the commit of the rows that need it; no file is written again."""
    target = table.target()
    batch = pa.record_batch([[1], [2], ["a"], [3], [None], [0.5]], ALTERED)
    target.commit(Commit(Position(100), [new_file(target, batch)], schema=ALTERED))
    (old,) = target.files.files
    assert target.schema is not None
    assert target.schema.field("small").type == pa.int32()
    assert target.takes(STEPS)
    assert target.takes([RenameColumn("small", "x"), WidenColumn("x", pa.int64())])
    assert not target.takes([*STEPS, WidenColumn("small", pa.string())])
    assert not target.takes([WidenColumn("price", pa.decimal128(20, 4))])
    schema = changed_schema(target.schema, STEPS)
    more = pa.record_batch([[2], [1 << 40], ["b"], [None], [None], [0.25], [["x"]], [7]], schema)
    file = new_file(target, more, STEPS)
    target.commit(Commit(Position(200), [file], schema=schema, steps=STEPS))
    assert target.schema == table.target().schema
    assert target.schema.names == schema.names
    assert target.schema.field("note").type == pa.int32()
    assert table.rows == [
        (1, 2, "a", None, None, 0.5, None, None),
        (2, 1 << 40, "b", None, None, 0.25, ["x"], 7),
    ]
    assert old.path in {file.path for file in target.files.files}
    (same,) = (file for file in target.files.files if file.path == old.path)
    assert same.bounds.lower == {"id": 1, "small": 2, "text": "a"}


def test_rows_are_found_after_a_rename(table: Table) -> None:
    """Columns of files are found by their field IDs, whatever their names are by now."""
    target = table.create(1000)
    steps = [RenameColumn("id", "number"), AddColumn("id", pa.int64())]
    assert target.schema is not None
    target.commit(Commit(Position(200), schema=changed_schema(target.schema, steps), steps=steps))
    keys = pa.table({"number": pa.array([5, 700, 5000], pa.int64())})
    found = find_rows(target.files, keys)
    assert found.position.tolist() == [5, 700, -1]
    (file,) = target.files.files
    assert file.bounds.lower == {"number": 0, "note": "row 0"}
    deleted = {file.path: bitmap(found.position[found.exists])}
    target.commit(Commit(Position(300), (), deleted))
    assert not find_rows(target.files, keys).exists.any()
    assert np.array([row[0] for row in table.rows]).tolist() == [
        n for n in range(1000) if n not in (5, 700)
    ]


def test_changes_are_merged_after_a_rename(table: Table) -> None:
    """A value that an update does not send is read from a file with the former name."""
    target = table.create(1000)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.int32())])
    steps = [RenameColumn("note", "text"), AddColumn("more", pa.int32())]
    keys = pa.table({"id": pa.array([5, 700, 7, 5000], pa.int64())})
    values = [[5, 700, 7, 5000], [None, "new", None, "born"], [1, 2, None, 3]]
    net = NetRows(
        pa.table(values, schema=schema),
        np.array([False, False, True, False]),
        keys.set_column(0, "id", pa.array([5, 700, 7, None], pa.int64())),
        {"text": np.array([0])},
    )
    target.commit(Commit(Position(150), schema=schema, steps=steps))
    merge = merge_rows(target.files, net)
    assert (merge.inserted, merge.updated, merge.removed) == (1, 2, 1)
    added = [new_file(target, batch) for batch in merge.added.to_batches() if len(batch)]
    target.commit(Commit(Position(200), added, merge.deleted))
    expected = {number: (f"row {number}", None) for number in range(1000) if number != 7}
    expected |= {5: ("row 5", 1), 700: ("new", 2), 5000: ("born", 3)}
    assert table.rows == sorted((key, *value) for key, value in expected.items())


def test_a_file_with_other_columns(table: Table) -> None:
    target = table.create()
    file = _written(target, SCHEMA, rows([10]))
    with pytest.raises(TableError, match="the column id of type bigint with the field ID -1"):
        target.commit(Commit(Position(200), [file]))
    assert target.position == Position(100, 16384)


@pytest.mark.parametrize("replaces", [False, True])
def test_a_type_that_needs_other_files(table: Table, replaces: bool) -> None:
    """A widening that Iceberg lacks is another column with the same name, in other files."""
    target = table.create()
    schema = pa.schema([("id", pa.string()), ("note", pa.string())])
    steps = [WidenColumn("id", pa.string())]
    with pytest.raises(TableError, match="cannot change the type of column id to string"):
        target.commit(Commit(Position(200), schema=schema, steps=steps))
    file = new_file(target, pa.record_batch([["1"], ["a"]], schema), steps)
    removed = [] if replaces else [file.path for file in target.files.files]
    commit = Commit(
        Position(200), [file], removed=removed, replaces=replaces, schema=schema, steps=steps
    )
    other = table.target()
    other.commit(Commit(Position(100), [new_file(other, rows([10]))]))
    with pytest.raises(CommitConflict, match="another commit added files"):
        target.commit(commit)
    if not replaces:
        commit = replace(commit, removed=[file.path for file in target.files.files])
    target.commit(commit)
    assert table.rows == [("1", "a")]
    assert target.schema == schema


def test_values_of_each_type(table: Table) -> None:
    from datetime import date, datetime, timezone
    from decimal import Decimal

    values = {
        "bool": (pa.bool_(), True),
        "int2": (pa.int16(), -1),
        "int4": (pa.int32(), -(1 << 31)),
        "int8": (pa.int64(), -(1 << 63)),
        "float4": (pa.float32(), float("inf")),
        "float8": (pa.float64(), 0.1),
        "numeric": (pa.decimal128(38, 10), Decimal("-1.5")),
        "text": (pa.string(), "\U0010ffff" * 40),
        "bytea": (pa.binary(), b"\0"),
        "date": (pa.date32(), date(1, 1, 1)),
        "timestamp": (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999)),
        "timestamptz": (pa.timestamp("us", "UTC"), datetime(1970, 1, 1, tzinfo=timezone.utc)),
        "list": (pa.list_(pa.field("element", pa.int16())), [1, None]),
        "a.b `c`": (pa.int32(), 1),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    row = {name: value for name, (_, value) in values.items()}
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], schema)
    target = table.target()
    target.commit(Commit(Position(100), [new_file(target, batch)], schema=schema))
    assert iceberg_table(table._spark, table.name).to_pylist() == [row, dict.fromkeys(row)]
    (file,) = table.target().files.files
    assert file.bounds.lower["int8"] == file.bounds.upper["int8"] == -(1 << 63)
    assert file.bounds.nulls["text"] == 1
    for where in (
        "int4 = -2147483648", "int8 = -9223372036854775808", "numeric = -1.5", "bool",
        "date = DATE '0001-01-01'", "timestamp = TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'",
        "timestamptz = TIMESTAMP '1970-01-01 00:00:00Z'", "float4 > 1e30", "text > 'z'",
    ):  # fmt: skip
        assert table.sql(f"SELECT count(*) FROM {{t}} WHERE {where}")[0][0] == 1, where
    (readable,) = table.sql("SELECT readable_metrics FROM {t}.files")[0]
    for name in ("numeric", "date", "timestamp", "bool", "int4"):
        metrics = readable[name]
        assert metrics.lower_bound == metrics.upper_bound == row[name]
        assert (metrics.value_count, metrics.null_value_count) == (2, 1)


def update(table: Table) -> None:
    table.sql("UPDATE {t} SET note = 'theirs 2' WHERE id = 2")


def delete(table: Table) -> None:
    table.sql("DELETE FROM {t} WHERE id = 2")


def merge(table: Table) -> None:
    table.sql(
        "MERGE INTO {t} t USING (SELECT 2L AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET note = 'theirs 2'"
    )


def mark(table: Table) -> None:
    modes = ", ".join(f"'write.{name}.mode' = 'merge-on-read'" for name in ("update", "delete"))
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})")
    update(table)


@pytest.mark.parametrize("other", [update, delete, merge, mark, Table.compact])
def test_another_writer_comes_first(table: Table, other: Callable[[Table], None]) -> None:
    """If it has changed a touched file, nothing is committed; what follows is decided again."""
    target = table.create()
    target.commit(Commit(Position(150), [new_file(target, rows([10, 11]))]))
    first = next(file for file in target.files.files if file.rows == 10)
    added = [new_file(target, rows([1], "new"))]
    other(table)
    with pytest.raises(CommitConflict, match="another commit changed the file"):
        target.commit(Commit(Position(200), added, {first.path: bitmap([1])}))
    assert target.position == Position(150, 16384)
    files = target.files
    found = find_rows(files, pa.table({"id": [1]}))
    deleted = {files.files[found.file[0]].path: bitmap(found.position)}
    target.commit(Commit(Position(200), added, deleted))
    expected = {n: f"row {n}" for n in range(12)} | {1: "new 1"}
    if other is delete:
        del expected[2]
    elif other is not Table.compact:
        expected[2] = "theirs 2"
    assert table.rows == sorted(expected.items())
    table.compact()
    assert table.rows == sorted(expected.items())
    target.refresh()
    assert target.position == table.target().position == Position(200, 16384)


def test_another_writer_appends_first(table: Table) -> None:
    target = table.create()
    (file,) = target.files.files
    table.sql("INSERT INTO {t} VALUES (20, 'row 20')")
    target.commit(Commit(Position(200), (), {file.path: bitmap([0])}))
    table.sql("INSERT INTO {t} VALUES (21, 'row 21')")
    with pytest.raises(CommitConflict, match="another commit added files"):
        target.commit(Commit(Position(300), replaces=True))
    assert table.rows == [(n, f"row {n}") for n in (*range(1, 10), 20, 21)]


def test_another_mirror_comes_first(table: Table) -> None:
    target, other = table.create(), table.target()
    other.commit(Commit(Position(200), [new_file(other, rows([10]))]))
    with pytest.raises(CommitConflict, match="another mirror"):
        target.commit(Commit(Position(200), [new_file(target, rows([10]))]))
    assert target.position == Position(200, 16384)
    assert len(table.rows) == 11


def test_other_columns_come_first(table: Table) -> None:
    target = table.create()
    table.sql("ALTER TABLE {t} ADD COLUMNS (more string)")
    with pytest.raises(CommitConflict, match="changed the columns"):
        target.commit(Commit(Position(200), [new_file(target, rows([10]))]))


def test_two_mirrors_create_a_table(table: Table) -> None:
    target = table.target()
    file = new_file(target, rows([1]))
    table.create()
    with pytest.raises(CommitConflict, match="was created by another writer"):
        target.commit(Commit(Position(100), [file], schema=SCHEMA))
    assert target.position == Position(100, 16384)
    assert len(table.rows) == 10


class Interrupted:
    """A Java table whose transaction begins, and then something happens before it commits."""

    def __init__(self, table: Any, act: Callable[[], object]) -> None:
        self._table, self._act = table, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def newTransaction(self) -> Any:  # noqa: N802  (Java's name)
        transaction, act = self._table.newTransaction(), self._act

        class Transaction:
            def __getattr__(self, name: str) -> Any:
                return getattr(transaction, name)

            def commitTransaction(self) -> None:  # noqa: N802
                act()
                transaction.commitTransaction()

        return Transaction()


def interrupt(target: IcebergTarget, *acts: Callable[[], object]) -> None:
    """Have something happen at the end of a target's next commits."""
    remaining = list(acts)
    target._table = Interrupted(target._table, lambda: remaining.pop(0)() if remaining else None)


def test_a_race_while_a_transaction_is_written(table: Table) -> None:
    """Iceberg itself would write it again on whatever another mirror has committed."""
    target, other = table.create(), table.target()
    (file,) = target.files.files
    interrupt(
        target,
        lambda: table.sql("INSERT INTO {t} VALUES (20, 'row 20')"),
        lambda: other.refresh(),
    )
    target.commit(Commit(Position(150), [new_file(target, rows([10]))], {file.path: bitmap([0])}))
    assert len(table.rows) == 11
    files = set((table.folder / "metadata").glob("*.avro"))
    other.refresh()
    theirs = Commit(Position(200), [new_file(other, rows([11]))])
    interrupt(target, lambda: other.commit(theirs))
    with pytest.raises(CommitConflict, match="another mirror"):
        target.commit(Commit(Position(200), [new_file(target, rows([11]))]))
    assert len(table.rows) == 12
    assert len(set((table.folder / "metadata").glob("*.avro")) - files) == 2


def unknown(table: Table) -> Exception:
    """Error of Java about a commit whose end is not known."""
    from py4j.protocol import Py4JJavaError

    exceptions = table._spark._jvm.org.apache.iceberg.exceptions
    cause = table._spark._jvm.java.io.IOException("connection reset")
    return Py4JJavaError("", exceptions.CommitStateUnknownException(cause))


@pytest.mark.parametrize("written", [False, True])
def test_a_commit_whose_end_is_not_known(
    table: Table, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    from pgwire_codec.lake.tables.iceberg_transaction import IcebergTransaction

    target = table.create()
    commit, calls = IcebergTransaction.commit, []

    def fail(self: Any, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) > 1 or written:
            commit(self, *arguments)
        if len(calls) == 1:
            raise unknown(table)

    monkeypatch.setattr(IcebergTransaction, "commit", fail)
    target.commit(Commit(Position(200), [new_file(target, rows([10]))]))
    assert len(calls) == (1 if written else 2)
    assert table.rows == [(n, f"row {n}") for n in range(11)]


def test_an_error_of_java(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the cause of an error without Java's stack."""
    target = table.create()
    file = new_file(target, rows([10]))
    monkeypatch.setattr("pgwire_codec.lake.tables.iceberg.data_file_json", lambda *_: "{}")
    with pytest.raises(TableError, match="Cannot parse missing int: spec-id") as caught:
        target.commit(Commit(Position(200), [file]))
    assert "\n" not in str(caught.value)
    assert not caught.value.is_transient


def test_maintenance_by_others(table: Table) -> None:
    """Compaction writes a snapshot without the position, and expiry removes the one that has it."""
    table.create()
    for act in (table.compact, table.expire, table.compact):
        act()
        assert table.target().position == Position(100, 16384)
    assert table.sql("SELECT summary['mirror.commit_lsn'] FROM {t}.snapshots")[0][0] is None


def test_snapshots_that_are_old(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are removed as the table's properties have it, and their files with them."""
    monkeypatch.setattr("pgwire_codec.lake.tables.iceberg._EXPIRY_COMMITS", 4)
    target = table.create()
    (first,) = target.files.files
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '1')")
    target.refresh()
    for number in range(1, 4):
        removed = [first.path] if number == 1 else []
        added = [new_file(target, rows([number]))]
        target.commit(Commit(Position(200 + number), added, removed=removed))
        assert len(table.operations) == (1 if number == 3 else number + 1)
    assert not (table.folder / first.path).exists()
    assert table.rows == [(n, f"row {n}") for n in range(1, 4)]
    assert table.target().position == target.position == Position(203, 16384)


def test_a_table_that_was_rolled_back(table: Table) -> None:
    """It gets the later changes again, or an error if it is unknown which these are."""
    target = table.create()
    table.compact()
    compacted = table.target().version
    target.refresh()
    target.commit(Commit(Position(200), [new_file(target, rows([10]))]))
    table.call(f"rollback_to_snapshot('made.t', {compacted})")
    target.refresh()
    assert target.position == Position(100, 16384)
    target.commit(Commit(Position(200), [new_file(target, rows([10]))]))
    table.expire(2)
    table.call(f"rollback_to_snapshot('made.t', {compacted})")
    with pytest.raises(TableError, match="was rolled back to a snapshot without a commit LSN"):
        target.refresh()


def test_tables_that_are_not_supported(table: Table) -> None:
    from pgwire_codec.lake.tables.iceberg import IcebergTarget

    spark = table._spark
    spark.sql(f"CREATE NAMESPACE {table.catalog}.made")
    spark.sql(f"CREATE TABLE {table.name} (id bigint, note string) USING iceberg")
    target = table.target()
    target.commit(Commit(Position(100), [new_file(target, rows(range(3)))]))
    (file,) = target.files.files
    assert not target.marks
    with pytest.raises(CommitConflict, match="has no deletion vectors any more"):
        target.commit(Commit(Position(200), (), {file.path: bitmap([0])}))
    modes = "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    table.sql(f"ALTER TABLE {{t}} SET {modes}")
    table.sql("DELETE FROM {t} WHERE id = 1")
    target.refresh()
    with pytest.raises(TableError, match="deleted rows in files that are not deletion vectors"):
        _ = target.files
    spark.sql(f"DROP TABLE {table.name}")
    columns = "(id bigint) USING iceberg PARTITIONED BY (bucket(2, id))"
    spark.sql(f"CREATE TABLE {table.name} {columns}")
    table.sql("INSERT INTO {t} VALUES (1)")
    with pytest.raises(TableError, match="is partitioned"):
        table.target().commit(Commit(Position(200), ()))
    with pytest.raises(TableError, match="is partitioned"):
        _ = table.target().files
    with pytest.raises(OptionError, match="Spark has no catalog 'absent'"):
        IcebergTarget(spark, "absent.made.t", "mirror")


def test_a_table_of_another_source(table: Table) -> None:
    """Some catalogs have the same name for public.Orders and public.orders."""
    target = table.target(source="public.orders")
    target.commit(Commit(Position(100), schema=SCHEMA))
    assert table.target(source="public.orders").position == Position(100)
    with pytest.raises(TableError, match=r"is the table of public\.orders, not of public\.Orders"):
        table.target(source="public.Orders")


def test_a_table_that_another_one_takes_the_place_of(table: Table) -> None:
    target = table.create()
    table.sql("DROP TABLE {t} PURGE")
    target.refresh()
    assert target.schema is None
    assert target.files.files == ()
    file = new_file(target, rows([1]))
    target.commit(Commit(Position(300), [file], schema=SCHEMA))
    assert table.rows == [(1, "row 1")]


def test_a_folder_that_is_named_by_a_uri(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Some catalogs name local folders so, and files of other writers, too."""
    moved = Table(spark, Path(f"file:{tmp_path}/named"))
    target = moved.create()
    assert target.files.uri == f"{tmp_path}/named/lake/made/t"
    moved.sql("INSERT INTO {t} VALUES (20, 'row 20')")
    target.refresh()
    for file in target.files.files:
        target.commit(Commit(Position(200), (), {file.path: bitmap([0])}))
    assert moved.rows == [(n, f"row {n}") for n in range(1, 10)]
    assert moved.target().files == target.files


def test_tables_side_by_side(spark: SparkSession, table: Table) -> None:
    """Threads commit different tables of a session at the same time."""
    from pgwire_codec.lake.tables.iceberg import IcebergTarget

    def write(number: int) -> int:
        target = IcebergTarget(spark, f"{table.catalog}.made.t{number}", "mirror")
        for lsn in range(1, 4):
            schema = SCHEMA if lsn == 1 else None
            target.commit(Commit(Position(lsn), [new_file(target, rows([lsn]))], schema=schema))
        return sum(file.rows or 0 for file in target.files.files)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write, range(4))) == [3] * 4
    for number in range(4):
        assert len(iceberg_table(spark, f"{table.catalog}.made.t{number}")) == 3


def _written(target: IcebergTarget, schema: pa.Schema, batch: pa.RecordBatch) -> NewFile:
    (file,) = write_data_files(target.folder, schema, [batch], target.layout)
    return file
