"""Tables by delta-rs: files that tasks write, and merges that a task does again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from pgwire_codec import Insert
from pgwire_codec.errors import TableError
from tests.support import build
from tests.support.key_types import texts
from tests.support.mirrors import MirrorOf, Writer, relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

deltalake = pytest.importorskip("deltalake")

SCHEMA = (
    "id int, {}_op string, _commit_lsn long, _seq long, _unchanged array<string>, "
    "_before struct<id: int>, _relation_oid long"
)


def inserts(
    spark: SparkSession, lsn: int, *ids: int, relation: int = 1, value: str = ""
) -> DataFrame:
    """Inserts of one transaction; with ``value``, of rows with this column, too."""
    values = [None] if value else []
    rows = [(key, *values, "I", lsn, seq, None, None, relation) for seq, key in enumerate(ids)]
    return spark.createDataFrame(rows, SCHEMA.format(value and f"{value}, "))


def ids(path: Path) -> list[int]:
    found: list[int] = deltalake.DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("keyed", [True, False], ids=["key", "no key"])
def test_rows_do_not_pass_through_the_driver(
    spark: SparkSession, writer: Writer, tmp_path: Path, keyed: bool
) -> None:
    """A snapshot, changes of all rows, and another relation: each has more than its limit."""
    mirrored = MirrorOf(spark, tmp_path, "delta-rs")
    random = Random(3)
    identity = "d" if keyed else "f"

    def rows() -> dict[int, str]:
        return {key: random.randbytes(500).hex() for key in range(18_000)}

    def commit(oid: int, changes: Iterable[Any], expected: dict[int, str]) -> None:
        columns = build.column("id", "int4", key=True), build.column("v", key=not keyed)
        writer.commit(relation(oid, *columns, name="t", identity=identity), *changes)
        writer.flush()
        mirrored.run()
        assert {row["id"]: row["v"] for row in mirrored.rows("public.t")} == expected
        assert mirrored.status()["public.t"]["state"] == "ok"

    first, second, third = rows(), rows(), rows()
    row = {key: build.row(str(key), value) for key, value in first.items()}
    commit(1, (Insert(None, 1, each) for each in row.values()), first)
    changes = [
        build.update(1, build.row(str(key), value), old=None if keyed else row[key])
        for key, value in second.items()
    ]
    commit(1, changes, second)
    commit(2, (build.insert(2, str(key), value) for key, value in third.items()), third)


def test_a_failed_write_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    from pgwire_codec.spark.sinks.delta_files import TableForm, write_files

    rows = spark.range(0, 100, 1, 2)
    form = TableForm(rows.schema.json())
    added = write_files(rows, ["id"], form, str(tmp_path), {})
    assert [json.loads(each.stats)["numRecords"] for each in added] == [50, 50]
    before = {tmp_path / each.path for each in added}
    failing = rows.selectExpr("CASE WHEN id = 99 THEN raise_error('no value') ELSE id END")
    with pytest.raises(Exception, match="no value"):
        write_files(failing, ["id"], form, str(tmp_path), {})
    assert {each for each in tmp_path.rglob("*") if each.is_file()} == before


def test_files_that_the_driver_does_not_find(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors on other machines have disks of their own."""
    from pgwire_codec.spark.sinks import delta_files

    other = SubTreeFileSystem(str(tmp_path / "other"), LocalFileSystem())
    monkeypatch.setattr(delta_files, "_files", lambda path, options: other)
    rows = spark.range(3)
    form = delta_files.TableForm(rows.schema.json())
    with pytest.raises(TableError, match=f"wrote files of {tmp_path}/t that the driver does not"):
        delta_files.write_files(rows, ["id"], form, f"{tmp_path}/t", {})


def test_a_merge_that_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    """By a task that Spark starts again, or by another process."""
    from pgwire_codec.spark import Merged, merge_into
    from pgwire_codec.spark.reduction.change_columns import columns_of, numbered
    from pgwire_codec.spark.sinks.delta_merge import DeltaMerge
    from pgwire_codec.spark.sinks.delta_record import BatchRecord

    target = tmp_path / "t"
    merge_into(inserts(spark, 10, 1, 2), str(target), None)
    changes = inserts(spark, 20, 2, 3)
    columns = columns_of(changes, None)
    record = BatchRecord("pgwire_codec", 20, 1)
    rows = numbered(changes, columns).selectExpr("c0", "false AS removed", "1L AS count")
    schema: Any = changes.select("id").schema
    merge = DeltaMerge(str(target), {}, schema, columns, record, 10, False)
    assert merge(rows, None) == Merged(20, inserted=2)
    assert merge(rows, None) == Merged(20)
    assert ids(target) == [1, 2, 2, 3]
    behind = DeltaMerge(
        str(target), {}, schema, columns, BatchRecord("pgwire_codec", 30, 1), 10, False
    )
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="another process"):
        behind(rows, None)
    assert ids(target) == [1, 2, 2, 3]


NAN = float("nan")
LONG = "x" * 100
TENTH = Decimal("0.1234567890123456790")
EPSILON = Decimal("1e-19")


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (pa.int32(), [[1, 2], [-(2**31), 2**31 - 1], [5]]),
        (pa.string(), [["", LONG + "a"], [LONG + "b"], [LONG + "é", "\U0010ffff" * 40]]),
        (pa.decimal128(38, 10), [[Decimal("1234567890123456789012345678.0123456789")], [-1, 0]]),
        (pa.decimal128(20, 0), [[2**64 - 2, 2**64 - 1], [2**63 - 1, 2**63], [-1, 0]]),
        (pa.decimal128(38, 0), [[Decimal("9" * 38), 1], [Decimal("-" + "9" * 38)]]),
        (pa.decimal128(38, 19), [[Decimal("0.1234567890123456789")], [TENTH, TENTH - 2 * EPSILON]]),
        (pa.date32(), [[date(1, 1, 1), date(2026, 1, 1)], [date(9999, 12, 31)]]),
        (pa.timestamp("us", "UTC"), [[-1, 0], [253402300799999999], [-62135596800000000]]),
        (pa.timestamp("us"), [[-1, 0], [253402300799999999], [-62135596800000000]]),
        (pa.timestamp("us"), [[-1, 0], [2**63 - 2, 2**63 - 1], [-210866803200000000]]),
        (pa.binary(), [[b"a", b"\xff" * 100], [b""], [b"\xff" * 100 + b"1"]]),
        (pa.bool_(), [[True], [False]]),
        (pa.float64(), [[1.5, NAN], [2.5], [0.1, float("inf")]]),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
@pytest.mark.parametrize("is_own", [True, False], ids=["own", "foreign"])
def test_files_with_a_key(
    tmp_path: Path, kind: pa.DataType, files: list[list[Any]], is_own: bool
) -> None:
    """Files are found by their bounds, if these contain their values."""
    from pyspark.sql.types import StructType

    from pgwire_codec.lake.change_columns import ChangeColumns
    from pgwire_codec.spark.sinks.delta_bounds import bounds_property
    from pgwire_codec.spark.sinks.delta_merge import DeltaMerge
    from pgwire_codec.spark.sinks.delta_record import BatchRecord

    parts = [pa.array(values, kind) for values in files]
    keys = [key for part in parts for key in part]
    columns = ChangeColumns(("k",), (0,), (), {}, ())
    schema = deltalake.Schema.from_arrow(pa.schema({"k": kind})).to_json()
    configuration = bounds_property(schema) if is_own else None
    for number, key in enumerate(keys):
        path = str(tmp_path / str(number))
        for part in parts:
            rows = pa.table({"k": part})
            deltalake.write_deltalake(path, rows, mode="append", configuration=configuration)
        record = BatchRecord("made", 10, None)
        merge = DeltaMerge(path, {}, StructType(), columns, record, None, False)
        source = pa.table({"gone": [True], "c0": pa.array([key], kind)})
        assert merge._merge(source) == {"inserted": 0, "updated": 0, "deleted": 1}
        left = texts(deltalake.DeltaTable(path).to_pyarrow_table()["k"])
        remaining = [each for each in keys if each is not key]
        assert sorted(left) == sorted(texts(pa.array(remaining, kind)))


def test_changes_that_leave_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Spark does not run a task that it knows to have no rows."""
    from pgwire_codec.spark import Merged, merge_into

    target = tmp_path / "t"
    merge_into(inserts(spark, 10, 1, 2), str(target), ["id"])
    schema = SCHEMA.format("")
    truncate = spark.createDataFrame([(None, "T", 20, 0, None, None, 1)], schema)
    assert merge_into(truncate, str(target), ["id"]) == Merged(20, deleted=2)
    assert ids(target) == []
    assert merge_into(truncate, str(target), ["id"]) == Merged(20)


def test_a_table_of_the_user(spark: SparkSession, tmp_path: Path) -> None:
    """It keeps its partitions, types, constraints, and columns that the source does not have."""
    from pgwire_codec.spark import Merged, merge_into

    target = str(tmp_path / "t")
    columns = [("id", pa.int64()), ("k", pa.string()), ("more", pa.int32())]
    deltalake.DeltaTable.create(target, schema=pa.schema(columns), partition_by=["k"])
    deltalake.DeltaTable(target).alter.add_constraint({"is_small": "id < 10"})

    def changes(lsn: int, rows: list[tuple[int, str]]) -> DataFrame:
        found = [(*row, "I", lsn, seq, None, None, 1) for seq, row in enumerate(rows)]
        return spark.createDataFrame(found, SCHEMA.format("k string, "))

    with pytest.raises(Exception, match="1 rows failed validation check"):
        merge_into(changes(10, [(1, "a"), (10, "a")]), target, ["id"])
    assert not list(tmp_path.rglob("*.parquet"))
    rows = [(1, "a"), (2, "b c/%"), (3, "a")]
    assert merge_into(changes(10, rows), target, ["id"]) == Merged(10, inserted=3)
    assert merge_into(changes(20, [(4, "a")]), target, ["id"]) == Merged(20, inserted=1)
    table = deltalake.DeltaTable(target)
    assert table.metadata().partition_columns == ["k"]
    assert table.to_pyarrow_table(filters=[("k", "=", "b c/%")])["id"].to_pylist() == [2]
    found = table.to_pyarrow_table().sort_by("id").to_pylist()
    expected = [{"id": key, "k": k, "more": None} for key, k in [*rows, (4, "a")]]
    assert found == expected
    merge_into_replaced(spark, changes(30, [(5, "x y")]), tmp_path / "t")
    table = deltalake.DeltaTable(target)
    assert table.metadata().partition_columns == ["k"]
    assert table.to_pyarrow_table().to_pylist() == [{"id": 5, "k": "x y"}]


def test_a_replaced_table_with_a_timestamp(spark: SparkSession, tmp_path: Path) -> None:
    """Delta tables have those without a time zone only with a feature."""
    from pgwire_codec.spark import Merged, merge_into

    target = tmp_path / "t"
    merge_into(inserts(spark, 10, 1, 2), str(target), ["id"])
    other = inserts(spark, 20, 3, relation=2, value="at timestamp_ntz")
    for changes in (other, inserts(spark, 30, 4, relation=3, value="at timestamp_ntz")):
        made = merge_into_replaced(spark, changes, target)
        assert made == Merged(made.commit_lsn, inserted=1)
    assert ids(target) == [4]
    features = deltalake.DeltaTable(str(target)).protocol().reader_features
    assert features == ["timestampNtz"]


def merge_into_replaced(spark: SparkSession, changes: DataFrame, target: Path) -> Any:
    """Replace the rows and columns of a target, as a mirror does for another relation."""
    from pgwire_codec.spark.reduction.change_columns import columns_of
    from pgwire_codec.spark.sinks.merge import apply_changes, open_target

    opened = open_target(spark, "delta-rs", str(target), "pgwire_codec", None)
    merged, _ = apply_changes(opened, changes, columns_of(changes, ["id"]), replaces=True)
    return merged
