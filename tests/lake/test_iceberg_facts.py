"""Columns, files and vectors of Iceberg tables, as JSON and bytes have them: no JVM is needed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import Bounds, BoundsBuilder, NewFile, bounded_columns
from pgwire_codec.lake.folder import LocalFolder
from pgwire_codec.lake.tables.column_steps import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    RenameColumn,
    WidenColumn,
)
from pgwire_codec.lake.tables.iceberg_files import (
    data_file_json,
    local_path,
    scanned_files,
    write_vectors,
)
from pgwire_codec.lake.tables.iceberg_metrics import file_metrics
from pgwire_codec.lake.tables.iceberg_schema import (
    Columns,
    DeleteColumn,
    PutColumn,
    SchemaChange,
    can_widen,
    changed_columns,
    check_fields,
    from_json,
    new_columns,
    plain_schema,
    to_json,
)
from pgwire_codec.lake.vectors import StoredVector, bitmap, from_blob

TEXTS = pa.list_(pa.field("element", pa.string()))
SCHEMA = pa.schema([("id", pa.int32()), ("texts", TEXTS), ("note", pa.string())])


def test_ids_of_a_new_table() -> None:
    """Columns first, then what is in them."""
    pair = pa.struct([("a", pa.int16()), ("b", TEXTS)])
    columns = new_columns(SCHEMA.append(pa.field("pair", pair)))
    fields = {field["name"]: field for field in json.loads(to_json(columns.schema))["fields"]}
    assert {name: field["id"] for name, field in fields.items()} == columns.field_ids
    assert columns.field_ids == {"id": 1, "texts": 2, "note": 3, "pair": 4}
    assert fields["texts"]["type"]["element-id"] == 5
    first, second = fields["pair"]["type"]["fields"]
    assert (first["id"], first["type"], second["id"]) == (6, "int", 7)
    assert (second["type"]["element-id"], columns.last_id) == (8, 8)
    assert from_json(to_json(columns.schema)).equals(columns.schema, check_metadata=True)
    assert plain_schema(columns.schema).field("texts").type.value_field.metadata is None


def test_types_that_iceberg_lacks() -> None:
    for kind in (pa.time64("us"), pa.uint32(), pa.list_(pa.duration("s"))):
        with pytest.raises(TableError, match=r"column c of type .* cannot be in an Iceberg table"):
            new_columns(pa.schema([("c", kind)]))
    fields = [{"id": 1, "name": "c", "required": False, "type": "uuid"}]
    with pytest.raises(TableError, match="unsupported type uuid of column c"):
        from_json(json.dumps({"type": "struct", "fields": fields}))


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int32(), pa.int16(), True),  # both are int
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.decimal128(9, 2), pa.decimal128(20, 2), True),
        (pa.decimal128(9, 2), pa.decimal128(20, 3), False),
        (pa.int32(), pa.decimal128(20, 0), False),
        (pa.string(), pa.string(), True),
        (pa.string(), pa.binary(), False),
    ],
)
def test_wider_types(old: pa.DataType, new: pa.DataType, can: bool) -> None:
    assert can_widen(old, new) is can


def changed(
    steps: Sequence[ColumnStep], schema: pa.Schema | None = None, **options: Any
) -> tuple[Columns, list[SchemaChange]]:
    return changed_columns(new_columns(SCHEMA), schema, steps, **options)


def test_steps_keep_ids() -> None:
    columns, changes = changed([
        RenameColumn("id", "number"),
        AddColumn("id", TEXTS),
        WidenColumn("number", pa.int64()),
        ClearColumn("number"),
        ClearColumn("note"),
    ])  # fmt: skip
    assert columns.field_ids == {"number": 7, "texts": 2, "note": 8, "id": 5}
    assert columns.last_id == 8
    assert columns.schema.names == ["number", "texts", "note", "id"]
    assert changes == [
        RenameColumn("id", "number"),
        PutColumn("id", TEXTS, after="note"),
        WidenColumn("number", pa.int64()),
        PutColumn("number", pa.int64(), replaces=True),
        PutColumn("note", pa.string(), replaces=True, after="texts"),
    ]


def test_columns_of_another_schema() -> None:
    """Types that have the values of the others stay; columns are only deleted if asked for."""
    other = pa.schema([("id", pa.int16()), ("note", pa.binary()), ("more", pa.int32())])
    columns, changes = changed([], other)
    assert columns.field_ids == {"id": 1, "texts": 2, "note": 5, "more": 6}
    note = PutColumn("note", pa.binary(), replaces=True, after="texts", needs_files=True)
    more = PutColumn("more", pa.int32(), after="note")
    assert changes == [note, more]
    columns, changes = changed([], other, deletes=True)
    assert columns.field_ids == {"id": 1, "note": 5, "more": 6}
    assert changes[0] == DeleteColumn("texts")
    assert changed([], SCHEMA) == (new_columns(SCHEMA), [])


def test_fields_of_data_files() -> None:
    columns = new_columns(SCHEMA)
    check_fields("t", columns.schema, changed([WidenColumn("id", pa.int64())])[0])
    others = [
        (SCHEMA, "field ID -1"),
        (changed([RenameColumn("id", "number")])[0].schema, "the column number of type int"),
        (changed([ClearColumn("note")])[0].schema, "the column note .* with the field ID 5"),
        (changed([WidenColumn("id", pa.int64())])[0].schema, "the column id of type bigint"),
    ]
    for schema, message in others:
        with pytest.raises(TableError, match=message):
            check_fields("t", schema, columns)


FOLDER = "file:/lake/t"


def test_locations() -> None:
    for location in ("/lake/t", "file:/lake/t", "file:///lake/t"):
        assert local_path(location) == "/lake/t"
    assert local_path("s3://bucket/t") == "s3://bucket/t"


def footer(columns: Columns, *groups: list[dict[str, Any]]) -> pq.FileMetaData:
    """Footer of a file with some row groups."""
    collected: list[Any] = []
    schema = columns.schema
    with pq.ParquetWriter(io.BytesIO(), schema, metadata_collector=collected) as writer:
        for rows in groups:
            writer.write_table(pa.Table.from_pylist(rows, schema))
    return collected[0]


def content(columns: Columns, rows: Sequence[dict[str, Any]] = ({},)) -> dict[str, Any]:
    batch = pa.RecordBatch.from_pylist([*rows], plain_schema(columns.schema))
    builder = BoundsBuilder(bounded_columns(batch.schema))
    builder.add(batch)
    new = NewFile("data/a.parquet", 100, len(rows), builder.build())
    text = data_file_json(new, footer(columns, [*rows]), FOLDER, 0)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def scan(columns: Columns, *files: dict[str, Any], deletes: Sequence[dict[str, Any]] = ()) -> Any:
    tasks = [
        {"data-file": file, "delete-file-references": [*range(len(deletes))]} for file in files
    ]
    text = json.dumps({"file-scan-tasks": tasks, "delete-files": [*deletes]})
    return scanned_files("t", FOLDER, columns, text)


def test_bounds_after_columns_changed() -> None:
    columns = new_columns(SCHEMA)
    file = content(columns, [{"id": -(1 << 31), "note": "a"}, {"id": 7, "note": "é"}, {"id": 0}])
    assert file["lower-bounds"] == {"keys": [1, 3], "values": ["00000080", "61"]}
    assert file["upper-bounds"] == {"keys": [1, 3], "values": ["07000000", "C3A9"]}
    steps = [WidenColumn("id", pa.int64()), RenameColumn("note", "text"), AddColumn("note", TEXTS)]
    later, _ = changed_columns(columns, None, steps)
    (scanned,) = scan(later, file).values()
    assert scanned.location == "file:/lake/t/data/a.parquet"
    bounds = scanned.file.bounds
    assert bounds == Bounds({"id": -(1 << 31), "text": "a"}, {"id": 7, "text": "é"}, bounds.nulls)
    assert bounds.nulls == {"id": 0, "text": 1}
    (scanned,) = scan(changed([ClearColumn("id")])[0], file).values()
    assert "id" not in scanned.file.bounds.lower


def test_metrics_of_row_groups() -> None:
    """Bounds are in Iceberg's form for single values; a row group of nulls does not hide them."""
    columns = new_columns(
        pa.schema([
            ("at", pa.timestamp("us")), ("day", pa.date32()), ("price", pa.decimal128(38, 2)),
            ("paid", pa.bool_()), ("share", pa.float64()), ("texts", TEXTS),
        ])
    )  # fmt: skip
    names = [name for name in columns.schema.names if name != "texts"]
    first = [datetime(1970, 1, 1), date(1969, 12, 31), Decimal("-1.28"), True, 0.5]
    second = [datetime(1969, 12, 31, 23, 59, 59), date(1970, 1, 2), Decimal("1.28"), True, 1.5]
    groups: list[list[dict[str, Any]]] = [
        [{**dict(zip(names, first, strict=True)), "texts": ["a", None]}],
        [{}],
        [dict(zip(names, second, strict=True))],
    ]
    metrics = file_metrics(footer(columns, *groups), Bounds())
    maps = {
        name: dict(zip(each["keys"], each["values"], strict=True))
        for name, each in metrics.items()
        if name != "split-offsets"
    }
    assert maps["lower-bounds"] == {1: "C0BDF0FFFFFFFFFF", 2: "FFFFFFFF", 3: "80", 4: "01"}
    assert maps["upper-bounds"] == {1: "00" * 8, 2: "01000000", 3: "0080", 4: "01"}
    assert maps["value-counts"] == {1: 3, 2: 3, 3: 3, 4: 3, 5: 3, 7: 4}
    assert maps["null-value-counts"] == dict.fromkeys(range(1, 6), 1)
    assert all(size > 0 for size in maps["column-sizes"].values())
    assert metrics["split-offsets"][0] == 4
    assert metrics["split-offsets"] == sorted(set(metrics["split-offsets"]))


def test_files_that_are_not_supported() -> None:
    columns = new_columns(SCHEMA)
    file = content(columns)
    vector = {
        "content": "position-deletes", "file-format": "puffin", "file-path": "/lake/t/data/v",
        "record-count": 2, "content-offset": 4, "content-size-in-bytes": 40,
    }  # fmt: skip
    (scanned,) = scan(columns, file, deletes=[vector]).values()
    assert scanned.file.deleted == 2
    assert scanned.file.vector == StoredVector("data/v", 4, 40, count=2)
    for changes, message in (
        ({"partition": [1]}, "is partitioned"),
        ({"file-format": "orc"}, "data files in the format orc"),
        ({"file-path": "/lake/t2/data/a.parquet"}, "outside of its folder /lake/t/"),
        ({"file-path": "/lake/t/../a.parquet"}, "outside of its folder /lake/t/"),
    ):
        with pytest.raises(TableError, match=message):
            scan(columns, file | changes)
    for changes, message in (
        ({"content": "equality-deletes"}, "equality deletes"),
        ({"file-format": "parquet"}, "not deletion vectors"),
    ):
        with pytest.raises(TableError, match=message):
            scan(columns, file, deletes=[vector | changes])


def test_files_of_vectors(tmp_path: Path) -> None:
    """Each vector has one, with the bounds that readers know its data file by."""
    vectors = {"/t/data/a": bitmap([1, 1 << 40]), "/t/data/b": bitmap(range(1000))}
    written = write_vectors(LocalFolder(tmp_path), "/t", 0, vectors)
    for location, text in written.items():
        entry = json.loads(text)
        bounds = {"keys": [2147483546], "values": [location.encode().hex()]}
        assert entry["lower-bounds"] == entry["upper-bounds"] == bounds
        data = (tmp_path / entry["file-path"].removeprefix("/t/")).read_bytes()
        assert data[:4] == data[-4:] == b"PFA1"
        size = int.from_bytes(data[-12:-8], "little")
        assert data[-16 - size : -12 - size] == b"PFA1"
        (blob,) = json.loads(data[-12 - size : -12])["blobs"]
        begin, length = entry["content-offset"], entry["content-size-in-bytes"]
        assert (blob["offset"], blob["length"]) == (begin, length)
        assert from_blob(data[begin : begin + length]) == vectors[location]
        assert blob["properties"]["cardinality"] == str(entry["record-count"])
    assert len(list(tmp_path.rglob("*.puffin"))) == 2
