"""Columns of a Delta table that have bounds: those whose bounds contain their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
deltalake = pytest.importorskip("deltalake")

from pgwire_codec.spark.sinks import delta_bounds  # noqa: E402  (needs what may be missing)
from pgwire_codec.spark.sinks.columns import (  # noqa: E402
    AddColumn,
    RenameColumn,
    WidenColumn,
    changed_columns,
)
from pgwire_codec.spark.sinks.delta_bounds import (  # noqa: E402
    COLUMNS,
    TableBounds,
    are_bounded,
    bounds_property,
)
from pgwire_codec.spark.sinks.delta_rs import DeltaRs  # noqa: E402
from tests.support.delta_tables import LARGEST, file_statistics, foreign_table  # noqa: E402

NESTED = pa.struct({"a": pa.int64(), "d": pa.decimal128(20, 0)})


def schema(**columns: pa.DataType) -> str:
    made: str = deltalake.Schema.from_arrow(pa.schema(columns)).to_json()
    return made


def bounds_of(made: str, listed: str | None = None) -> tuple[TableBounds, list[Any]]:
    """Bounds of a table with the property, if it is given, and the properties that are set."""
    calls: list[Any] = []
    configuration = {} if listed is None else {COLUMNS: listed}
    return TableBounds("t", made, configuration, [], calls.append), calls


TYPES = {
    "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(), "s": pa.string(),
    "f": pa.float32(), "g": pa.float64(), "n": pa.decimal128(9, 2), "d": pa.date32(),
    "t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC"), "b": pa.bool_(), "y": pa.binary(),
    "l": pa.list_(pa.float64()), "m": pa.map_(pa.string(), pa.float64()),
}  # fmt: skip


def test_columns_with_bounds() -> None:
    made = schema(**TYPES)
    assert bounds_property(made) == {COLUMNS: "`i8`,`i16`,`i32`,`i64`,`s`"}
    assert bounds_property(made, ["i8", "s"]) == {COLUMNS: "`i16`,`i32`,`i64`"}
    assert bounds_property(schema(id=pa.int32(), y=pa.binary(), l=TYPES["l"])) == {}
    assert bounds_property(schema(id=pa.int32(), b=pa.bool_())) == {COLUMNS: "`id`"}
    assert bounds_property(schema(g=pa.float64())) == {COLUMNS: ""}
    wide = schema(n=pa.decimal128(9, 2), **{f"c{number}": pa.int32() for number in range(100)})
    assert bounds_property(wide)[COLUMNS].count(",") == 31
    # delta-rs takes a for s.a, too, and d for s.d.
    nested = schema(a=pa.int32(), d=pa.int32(), s=NESTED)
    assert bounds_property(nested) == {COLUMNS: "`a`"}


def test_columns_of_which_bounds_are_used() -> None:
    made = schema(**TYPES, x=NESTED)
    assert are_bounded(made, ["i8", "i16", "i32", "i64", "s"])
    for name in {*TYPES, "x", "a"} - {"i8", "i16", "i32", "i64", "s"}:
        assert not are_bounded(made, ["i8", name])


@pytest.mark.parametrize(
    ("listed", "certain"),
    [
        (None, False), ("", True), ("id", True), ("`id`, `a b`", True), ("id,n", False),
        ("id,N", False), ("`n`", False), ("s", False), ("s.a", True), ("s.d", False),
        ("`s`.`d`", False), ("`s.d`", True), ("d", False), ("gone", True), ("`x.y`", False),
        ("x.y", False), ("id,", True),
    ],
)  # fmt: skip
def test_properties(listed: str | None, certain: bool) -> None:
    columns = {"id": pa.int32(), "a b": pa.int32(), "n": pa.decimal128(9, 2), "s": NESTED}
    made = schema(**columns, **{"x.y": pa.float64()})
    assert bounds_of(made, listed)[0].are_certain == certain
    assert bounds_of(schema(id=pa.int32()), listed)[0].are_certain
    none = {"delta.dataSkippingNumIndexedCols": "0"}
    assert TableBounds("t", made, none, [], print).are_certain


@given(st.lists(st.text(min_size=1), unique=True))
def test_names_in_the_property(names: list[str]) -> None:
    paths = [(name,) for name in names]
    listed = delta_bounds._property(paths)[COLUMNS]
    assert list(delta_bounds._parse(listed)) == paths


def test_names_that_delta_rs_reads(tmp_path: Path) -> None:
    names = [
        "id", "order", "1a", "a b", "a.b", "a`b", "a,b", 'a"b', "Größe", "a\nb", " lead", "日本",
        "--c", "'", "x y.z", "1e5", "-1", "$x", "@x", "#x", "*", "null",
    ]  # fmt: skip
    table = pa.table({**{name: [1, 2] for name in names}, "f": [0.5, 1.5], "f.g": [0.5, 1.5]})
    made = schema(**{field.name: field.type for field in table.schema})
    deltalake.write_deltalake(tmp_path, table, configuration=bounds_property(made))
    [stats] = file_statistics(tmp_path)
    assert set(stats["minValues"]) == set(stats["maxValues"]) == set(names)


def test_a_table_with_other_bounds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its files are written again in one commit; if that is interrupted, by the next writer."""
    foreign_table(tmp_path)
    rows = deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("k")
    opened = DeltaRs(str(tmp_path), "made", {})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(opened, "_update", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opened._ensure_bounds()
    for number in range(2):
        opened = DeltaRs(str(tmp_path), "made", {})
        opened._ensure_bounds()
        table = deltalake.DeltaTable(tmp_path)
        assert table.version() == 4, number
        assert len(caplog.messages) == 2
    assert [each["operation"] for each in table.history(3)] == [
        "SET TBLPROPERTIES", "UPDATE", "SET TBLPROPERTIES",
    ]  # fmt: skip
    for stats in file_statistics(tmp_path):
        assert stats["minValues"].keys() == stats["maxValues"].keys() == {"v"}
    assert table.to_pyarrow_table().sort_by("k") == rows
    assert "has bounds that may not contain their values" in caplog.messages[0]


def test_a_table_without_such_columns_is_left_alone(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"k": [1], "v": ["a"]}))
    DeltaRs(str(tmp_path), "made", {})._ensure_bounds()
    assert deltalake.DeltaTable(tmp_path).version() == 0


def test_booleans(tmp_path: Path) -> None:
    """Their bounds are only missing in files of Spark: the property is enough."""
    deltalake.write_deltalake(tmp_path, pa.table({"k": [1], "b": [True]}))
    for _ in range(2):
        DeltaRs(str(tmp_path), "made", {})._ensure_bounds()
        table = deltalake.DeltaTable(tmp_path)
        assert table.version() == 1
        assert table.metadata().configuration == {COLUMNS: "`k`"}


def test_a_table_that_is_only_appended_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """delta-rs refuses to write its files again. Its own readers follow the property."""
    deltalake.write_deltalake(
        tmp_path,
        pa.table({"k": pa.array([LARGEST], pa.decimal128(20, 0)), "v": ["a"]}),
        configuration={"delta.appendOnly": "true"},
    )
    for _ in range(2):
        DeltaRs(str(tmp_path), "made", {})._ensure_bounds()
        table = deltalake.DeltaTable(tmp_path)
        assert table.version() == 1
    found = table.to_pyarrow_table(filters=ds.field("k") == pa.scalar(LARGEST))
    assert found["v"].to_pylist() == ["a"]
    assert ["can only be appended to" in each for each in caplog.messages] == [True]


def test_columns_that_are_added(tmp_path: Path) -> None:
    """They get no bounds: PyArrow would not find their nulls in files without them."""
    from pyspark.sql.types import DecimalType, IntegerType

    deltalake.write_deltalake(tmp_path, pa.table({"k": [1], "v": ["a"]}))
    DeltaRs(str(tmp_path), "made", {}).alter([AddColumn("i", IntegerType())])
    DeltaRs(str(tmp_path), "made", {}).alter([AddColumn("n", DecimalType(20, 0))])
    rows = {"k": [2], "v": ["b"], "i": pa.array([3], pa.int32())}
    rows["n"] = pa.array([LARGEST], pa.decimal128(20, 0))
    deltalake.write_deltalake(tmp_path, pa.table(rows), mode="append")
    assert file_statistics(tmp_path)[-1]["maxValues"] == {"k": 2, "v": "b"}
    table = deltalake.DeltaTable(tmp_path)
    for column in ("i", "n"):
        found = table.to_pyarrow_table(filters=ds.field(column).is_null())
        assert found["k"].to_pylist() == [1]


def test_the_property_before_columns_change() -> None:
    """It lists only columns that are there before and after: Delta's Spark refuses others."""
    from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType

    before = StructType([StructField(name, IntegerType()) for name in "abc"])
    rename = RenameColumn("a", "z")
    widen, add = WidenColumn("b", DecimalType(20, 0)), AddColumn("d", StringType())

    def restricted(steps: list[Any], listed: str | None) -> list[Any]:
        bounds, calls = bounds_of(before.json(), listed)
        after, renamed = changed_columns(before, steps)
        bounds.restrict(after.json(), renamed)
        return [call[COLUMNS] for call in calls]

    assert changed_columns(before, [rename, widen, add])[0].names == ["b", "c", "z", "d"]
    assert restricted([rename, widen, add], None) == ["`a`,`c`"]
    assert restricted([rename, widen, add], "a,b") == ["`a`"]
    assert restricted([rename], None) == []
    assert restricted([add], None) == ["`a`,`b`,`c`"]
    assert restricted([add], "c") == []


def test_the_property_while_rows_are_replaced() -> None:
    before, after = schema(a=pa.int32(), b=pa.int32()), schema(b=pa.int32(), c=pa.float64())
    bounds, calls = bounds_of(before)
    with bounds.replacing(after):
        assert calls == [{COLUMNS: "`b`"}]
    bounds, calls = bounds_of(after, "`b`")
    with bounds.replacing(before):
        assert calls == [{COLUMNS: "`b`"}]
    assert calls[1:] == [{COLUMNS: "`a`,`b`"}]
    bounds, calls = bounds_of(before)
    with bounds.replacing(before):
        pass
    assert not calls


def test_nothing_is_done_for_certain_bounds() -> None:
    made = schema(k=pa.decimal128(20, 0), id=pa.int32())
    bounds, calls = bounds_of(made, "id")
    bounds.ensure(calls.append)
    assert not calls
