"""Changes that are folded, looked up and merged leave the rows that a dictionary has."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.fold import NetCounts, NetRows, count_events, fold_events, key_events
from pgwire_codec.lake.key_codes import group_codes, match_codes
from pgwire_codec.lake.lookup import find_rows, read_rows
from pgwire_codec.lake.merge import merge_counts, merge_rows
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.row_counts import split_updates
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.target import Commit
from pgwire_codec.lake.vectors import bitmap
from tests.support.histories import KEYS, VALUES, History

deltalake: Any = pytest.importorskip("deltalake")

TABLE = (*KEYS, *VALUES)
NAMES = pa.list_(pa.string())
KINDS = dict(zip(TABLE, (pa.int32(), pa.int32(), pa.string(), pa.string(), NAMES), strict=True))
SCHEMA = pa.schema(KINDS)
METADATA = {
    "_op": pa.string(),
    "_xid": pa.int64(),
    "_lsn": pa.int64(),
    "_commit_lsn": pa.int64(),
    "_commit_time": pa.timestamp("us", "UTC"),
    "_seq": pa.int64(),
    "_origin": pa.string(),
    "_unchanged": NAMES,
}


def changes_of(changes: list[tuple[Any, ...]], *, full: bool) -> pa.Table:
    before = TABLE if full else KEYS
    struct = pa.struct([(name, KINDS[name]) for name in before])
    schema = pa.schema({**KINDS, **METADATA, "_before": struct})
    rows = [dict(zip(schema.names, change, strict=True)) for change in changes]
    for row in rows:
        if row["_before"] is not None:
            row["_before"] = dict(zip(before, row["_before"], strict=True))
    return pa.Table.from_pylist(rows, schema)


def columns_of(changes: pa.Table) -> ChangeColumns:
    before = changes.schema.field("_before").type
    return ChangeColumns.from_names(changes.column_names, [each.name for each in before], KEYS)


def numbered(changes: pa.Table, columns: ChangeColumns) -> pa.RecordBatch:
    numbers = {name: f"c{place}" for place, name in enumerate(columns.table)}
    members = changes.schema.field("_before").type
    before = changes.column("_before").combine_chunks()
    names = [numbers[member.name] for member in members]
    struct = pa.StructArray.from_arrays(before.flatten(), names=names, mask=before.is_null())
    arrays = {
        numbers.get(name, name): changes.column(name).combine_chunks()
        for name in changes.column_names
    }
    return pa.RecordBatch.from_pydict(arrays | {"_before": struct})


def fold(changes: pa.Table, columns: ChangeColumns) -> NetRows:
    return fold_events(key_events(numbered(changes, columns), columns), columns)


def count(changes: pa.Table, columns: ChangeColumns) -> NetCounts:
    return count_events(split_updates(numbered(changes, columns), columns), columns)


def rows_of(path: Path) -> dict[Any, Any]:
    table = deltalake.DeltaTable(str(path))
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
    rows = pa.table(query.read_all()).to_pylist()
    found = {tuple(row.pop(name) for name in KEYS): row for row in rows}
    assert len(found) == len(rows)
    return found


def apply(target: DeltaTarget, changes: pa.Table) -> None:
    merge = merge_rows(target.files, fold(changes, columns_of(changes)))
    added = write_data_files(target.folder, SCHEMA, merge.added.to_batches())
    lsn = changes.column("_commit_lsn")[-1].as_py()
    target.commit(Commit(Position(lsn), added, merge.deleted))


def create(path: Path) -> DeltaTarget:
    target = DeltaTarget(str(path), "mirror")
    target.commit(Commit(Position(0), schema=SCHEMA))
    return target


@pytest.mark.parametrize("full", [False, True], ids=["identity default", "identity full"])
@pytest.mark.parametrize("seed", range(3))
def test_micro_batches_of_a_history(tmp_path: Path, seed: int, full: bool) -> None:
    """Moved keys, unsent values, deletes and rows that come again, in batches of any length."""
    history, target = History(seed, full=full), create(tmp_path)
    chance, done = Random(seed), 0
    for _ in range(25):
        for shelf in range(chance.randrange(1, 12)):
            history.transaction(shelf, chance.randrange(1, 9))
        batch = history.changes[done:]
        done = len(history.changes)
        if not batch:
            continue
        apply(target, changes_of(batch, full=full))
        assert rows_of(tmp_path) == history.expected()


#: Columns of a table without a key; values that are equal only as texts.
PLAIN = pa.schema([("a", pa.float64()), ("b", NAMES), ("c", pa.decimal128(5, 1))])
PLAIN_VALUES = ([0.0, -0.0, float("nan"), None], [["x"], [], None], [Decimal("1.0"), None])


def plain_changes(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Changes (op, old row, new row) of one transaction each."""
    struct = pa.struct(list(PLAIN))
    schema = pa.schema([*PLAIN, *METADATA.items(), ("_before", struct)])
    names = PLAIN.names
    table = []
    for number, (op, old, new) in enumerate(rows):
        # A delete has its old row in the table's columns.
        row = dict(zip(names, old if op == "D" else new, strict=True))
        before = dict(zip(names, old, strict=True)) if op == "U" else None
        table.append(row | {"_op": op, "_commit_lsn": number, "_seq": 0, "_before": before})
    return pa.Table.from_pylist(table, schema)


@pytest.mark.parametrize("seed", range(4))
def test_equal_rows_are_counted(tmp_path: Path, seed: int) -> None:
    chance, target = Random(seed), DeltaTarget(str(tmp_path), "mirror")
    target.commit(Commit(Position(0), schema=PLAIN))
    rows: list[Any] = []
    for lsn in range(1, 16):
        changes: list[tuple[Any, ...]] = []
        for _ in range(chance.randrange(1, 20)):
            new = tuple(chance.choice(values) for values in PLAIN_VALUES)
            op = chance.choice("IUD") if rows else "I"
            old = None if op == "I" else rows.pop(chance.randrange(len(rows)))
            rows += [] if op == "D" else [new]
            changes.append((op, old, new))
        table = plain_changes(changes)
        before = [field.name for field in table.schema.field("_before").type]
        net = count(table, ChangeColumns.from_names(table.column_names, before, None))
        merge = merge_counts(target.files, net)
        added = write_data_files(target.folder, PLAIN, merge.added.to_batches())
        target.commit(Commit(Position(lsn), added, merge.deleted))
        read = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
        found = pa.table(read.execute("SELECT * FROM t").read_all()).to_pylist()
        assert Counter(repr(tuple(row.values())) for row in found) == Counter(map(repr, rows))


def test_a_row_that_is_removed_too_often(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path), "mirror")
    row = (1.5, None, None)
    table = plain_changes([("I", None, row)])
    rows = table.select(PLAIN.names)
    (file,) = write_data_files(target.folder, PLAIN, rows.to_batches())
    target.commit(Commit(Position(0), [file], schema=PLAIN))
    removals = plain_changes([("D", row, row), ("D", row, row)])
    columns = ChangeColumns.from_names(removals.column_names, PLAIN.names, None)
    with pytest.raises(TableError, match=r"has 1 rows with a = 1\.5, .* remove 2"):
        merge_counts(target.files, count(removals, columns))


def test_changes_in_any_order_and_twice() -> None:
    history = History(7)
    for shelf in range(40):
        history.transaction(shelf % 8, 6)
    changes = changes_of(history.changes, full=False)
    columns = columns_of(changes)
    order = np.random.default_rng(7).permutation(np.append(np.arange(len(changes)), range(50)))
    shuffled = fold(changes.take(pa.array(order)), columns)
    straight = fold(changes, columns)
    by_key = [("shelf", "ascending"), ("id", "ascending")]
    assert shuffled.rows.sort_by(by_key).equals(straight.rows.sort_by(by_key))
    assert shuffled.missing == straight.missing == {}


def test_no_changes_at_all() -> None:
    changes = changes_of([], full=False)
    net = fold(changes, columns_of(changes))
    assert (len(net), net.rows.schema.names, net.missing) == (0, list(TABLE), {})


def one(op: str, key: tuple[int, int], note: str | None, **about: Any) -> tuple[Any, ...]:
    unchanged, before, seq = (about.get(name) for name in ("unchanged", "before", "seq"))
    return (*key, None, note, None, op, 1, 1, 500, None, seq or 0, None, unchanged, before)


def test_a_row_that_is_missing(tmp_path: Path) -> None:
    target = create(tmp_path)
    update = changes_of([one("U", (1, 2), None, unchanged=["note"])], full=False)
    with pytest.raises(TableError, match="no row shelf = 1, id = 2, which an update changed"):
        apply(target, update)
    moved = changes_of([one("U", (1, 3), None, unchanged=["note"], before=(1, 2))], full=False)
    with pytest.raises(TableError, match="no row shelf = 1, id = 2, which an update changed"):
        apply(target, moved)
    apply(target, changes_of([one("D", (1, 2), None)], full=False))
    apply(target, changes_of([one("U", (1, 2), "sent")], full=False))
    assert rows_of(tmp_path) == {(1, 2): {"v": None, "note": "sent", "tags": None}}


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    target = create(tmp_path)
    rows = pa.Table.from_pylist([{"shelf": 1, "id": 2}, {"shelf": 1, "id": 3}], SCHEMA)
    for _ in range(2):
        (file,) = write_data_files(target.folder, SCHEMA, rows.to_batches())
        target.commit(Commit(Position(0), [file]))
    with pytest.raises(TableError, match="two rows with the key shelf = 1, id = 3"):
        apply(target, changes_of([one("U", (1, 3), "new")], full=False))
    both = pa.concat_tables([rows, rows])
    target = create(tmp_path / "one file")
    (file,) = write_data_files(target.folder, SCHEMA, both.to_batches())
    target.commit(Commit(Position(0), [file]))
    with pytest.raises(TableError, match="two rows with the key shelf = 1, id = 2"):
        apply(target, changes_of([one("U", (1, 2), "new")], full=False))
    target.commit(Commit(Position(0), (), {file.path: bitmap([0])}))
    apply(target, changes_of([one("U", (1, 2), "new")], full=False))


def test_rows_of_several_files_and_row_groups(tmp_path: Path) -> None:
    """Found and read in the order of the keys, by one column, and by two."""
    target = create(tmp_path)
    count = 600_000
    rows = pa.table(
        {
            "shelf": pa.array(np.arange(count) % 7, pa.int32()),
            "id": pa.array(np.arange(count), pa.int32()),
            "v": pa.array([f"v{number}" for number in range(count)]),
            "note": pa.nulls(count, pa.string()),
            "tags": pa.nulls(count, NAMES),
        }
    )
    for part in (rows.slice(0, 400_000), rows.slice(400_000)):
        (file,) = write_data_files(target.folder, SCHEMA, part.to_batches())
        target.commit(Commit(Position(0), [file]))
    ids = np.random.default_rng(1).permutation(count)[:1000]
    ids[3] = count + 5
    keys = pa.table({"id": pa.array(ids, pa.int32())})
    found = find_rows(target.files, keys)
    assert np.flatnonzero(~found.exists).tolist() == [3]
    wanted = np.flatnonzero(found.exists)
    values = read_rows(target.files, found, wanted, pa.schema([SCHEMA.field("v")]))
    assert values.column("v").to_pylist() == [f"v{number}" for number in ids[wanted]]
    both = keys.add_column(0, "shelf", pa.array(ids % 7, pa.int32()))
    assert np.array_equal(find_rows(target.files, both).position, found.position)
    wrong = keys.add_column(0, "shelf", pa.array((ids + 1) % 7, pa.int32()))
    assert not find_rows(target.files, wrong).exists.any()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None, 1]),
        pa.array(["a", "", None, "a"]),
        pa.array([b"a", b"", None, b"a"]),
        pa.array([1.5, float("nan"), None, 1.5]),
        pa.array([[1, 2], [], None, [1, 2]]),
        pa.array([True, False, None, True]),
        pa.array([1, 2, None, 1], pa.date32()),
        pa.array(["1.50", "2", None, "1.50"]).cast(pa.decimal128(20, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_numbers_of_keys(column: pa.Array) -> None:
    other = pa.array(["x", "x", "x", "y"])
    codes = group_codes([column])
    assert codes[0] == codes[3]
    assert len(set(codes.tolist())) == 3
    assert len(set(group_codes([column, other]).tolist())) == 4
    keys = [column.take(pa.array([1, 3])), other.take(pa.array([1, 3]))]
    row_codes, key_codes = match_codes([column, other], keys)
    assert row_codes.tolist() == [-1, key_codes[0], -1, key_codes[1]]
