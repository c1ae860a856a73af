"""Lives of keys are the same wherever the changes are cut into batches, and hold little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.key_chains import resolve_chains
from pgwire_codec.lake.key_states import fold
from tests.support.histories import KEYS, VALUES, History

TABLE = (*KEYS, *VALUES)
NAMES = pa.list_(pa.string())
KINDS = (pa.int32(), pa.int32(), pa.string(), pa.string(), NAMES)


def columns_of(made: History) -> ChangeColumns:
    before = TABLE if made.full else KEYS
    metadata = {name: name for name in ("_op", "_commit_lsn", "_seq", "_unchanged", "_before")}
    return ChangeColumns(TABLE, (0, 1), metadata, before)


def events(changes: Iterable[tuple[Any, ...]]) -> pa.Table:
    """The changes after the last truncate, as Spark sorts them."""
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(KINDS)]
    schema = pa.schema(
        [
            *fields,
            ("_op", pa.string()),
            ("_unchanged", NAMES),
            ("_before", pa.struct(fields)),
            ("_commit_lsn", pa.int64()),
            ("_seq", pa.int64()),
            ("moved", pa.bool_()),
            ("leaving", pa.bool_()),
        ]
    )
    rows: list[dict[str, Any]] = []
    for change in changes:
        values = {f"c{number}": value for number, value in enumerate(change[:5])}
        op, lsn, seq, unchanged, before = (change[place] for place in (5, 8, 10, 12, 13))
        if op == "T":
            rows.clear()
            continue
        old = {f"c{number}": value for number, value in enumerate(before or ())}
        key = [values["c0"], values["c1"]]
        moved = op == "U" and before is not None and list(before[:2]) != key
        about = {"_op": op, "_unchanged": unchanged, "_commit_lsn": lsn, "_seq": seq}
        row = {**values, **about, "_before": old or None, "moved": moved, "leaving": False}
        rows.append(row)
        if moved:
            rows.append(row | {"c0": before[0], "c1": before[1], "leaving": True})
    rows.sort(key=lambda row: (row["c0"], row["c1"], row["_commit_lsn"], row["_seq"]))
    return pa.Table.from_pylist(rows, schema)


def folded(table: pa.Table, columns: ChangeColumns, chance: Random | None = None) -> pa.Table:
    return pa.Table.from_batches(fold(cut(table, chance), columns))


def cut(table: pa.Table, chance: Random | None) -> Iterator[pa.RecordBatch]:
    start = 0
    while start < len(table):
        count = len(table) if chance is None else chance.choice((0, 1, 1, 2, 3, 20))
        yield from table.slice(start, count).combine_chunks().to_batches()
        start += count


@pytest.mark.parametrize("full", [False, True], ids=["identity default", "identity full"])
@pytest.mark.parametrize("seed", range(4))
def test_lives_do_not_depend_on_batches(seed: int, full: bool) -> None:
    made = History(seed, full=full)
    for shelf in range(200):
        made.transaction(shelf % 20, made.random.randrange(1, 6))
        if shelf == 50:
            made.truncate()
    columns = columns_of(made)
    # A change that was stored twice counts once.
    table = events([*made.changes, *made.changes[-100:]])
    lives = folded(table, columns)
    for number in range(5):
        assert folded(table, columns, Random(number)).equals(lives)
    in_rows = lives.to_pylist()
    found = [row for row in in_rows if row["is_last"] and not row["far"] and not row["gone"]]
    chains = lives.filter(pa.array([row["far"] or row["left"] is not None for row in in_rows]))
    assert (chains.num_rows == 0) == full  # under FULL every change has all values
    found += resolve_chains(chains, columns).to_pylist()
    assert {row["unchanged"] is None for row in found} == {True}
    table_rows = {
        (row["c0"], row["c1"]): {name: row[f"c{n}"] for n, name in enumerate(VALUES, start=2)}
        for row in found
    }
    assert len(table_rows) == len(found)
    assert table_rows == made.expected()


def test_a_key_with_a_million_changes_needs_the_memory_of_a_batch() -> None:
    """An insert, and updates that send one of two columns."""
    count, rows = 10_000, 1_000_000
    columns = ChangeColumns(("id", "v", "large"), (0,), {}, ("id",))
    large = "x" * 100_000
    later = {
        "c0": pa.repeat(pa.scalar(1, pa.int32()), count),
        "c2": pa.nulls(count, pa.string()),
        "_op": pa.repeat("U", count),
        "_unchanged": pa.repeat(pa.scalar(["large"], NAMES), count),
        "_seq": pa.repeat(0, count),
        "moved": pa.repeat(False, count),
        "leaving": pa.repeat(False, count),
    }
    first = later | {
        "c2": pa.array([large, *[None] * (count - 1)]),
        "_op": pa.array(["I", *["U"] * (count - 1)]),
        "_unchanged": pa.array([None, *[["large"]] * (count - 1)], NAMES),
    }
    held = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, count):
            held.append(pa.total_allocated_bytes())
            lsn = pa.array(range(start, start + count))
            changes = later if start else first
            yield pa.RecordBatch.from_pydict(
                changes | {"c1": lsn.cast(pa.string()), "_commit_lsn": lsn}
            )

    [row] = pa.Table.from_batches(fold(batches(), columns)).to_pylist()
    assert (row["c0"], row["c1"], row["c2"] == large) == (1, f"{rows - 1}", True)
    assert row["unchanged"] is None
    assert max(held[1:]) - held[0] < 2 << 20


def test_values_of_every_type_are_compared() -> None:
    """Keys of lists, structs, floats and NULL; only the same are one key."""
    item = pa.struct([("a", pa.list_(pa.float64())), ("b", pa.string())])
    keys = [
        None,
        {"a": None, "b": None},
        {"a": [], "b": None},
        {"a": [1.0], "b": None},
        {"a": [1.0, None], "b": None},
        {"a": [1.0, 2.0], "b": None},
        {"a": [float("nan")], "b": None},
        {"a": [1.0, 2.0], "b": ""},
    ]
    rows = [
        change(op, key, lsn) for lsn, (key, op) in enumerate((k, o) for k in keys for o in "IU")
    ]
    found = folded(changes(rows, item), PLAIN).to_pylist()
    assert [row["c1"] for row in found] == [f"{lsn}" for lsn in range(1, len(rows), 2)]


@pytest.mark.parametrize("ops", ["IDU", "IIU"], ids=["deleted", "inserted again"])
def test_a_new_life_has_no_values_of_the_last(ops: str) -> None:
    """Also where what happened between them was not published."""
    rows = [change(op, 1, lsn) for lsn, op in enumerate(ops)]
    rows[1] |= {"_unchanged": ["v"], "c1": None}  # by a row filter
    rows[2] |= {"_unchanged": ["v"], "c1": None}
    [row] = folded(changes(rows, pa.int32()), PLAIN).to_pylist()
    assert (row["c0"], row["c1"], row["unchanged"], row["gone"]) == (1, None, ["v"], False)
    assert row["r0"] == (None if ops == "IIU" else 1)


PLAIN = ChangeColumns(("k", "v"), (0,), {}, ())


def change(op: str, key: Any, lsn: int) -> dict[str, Any]:
    place = {"_commit_lsn": lsn, "_seq": 0, "moved": False, "leaving": False}
    return {"c0": key, "c1": f"{lsn}", "_op": op, "_unchanged": None, **place}


def changes(rows: list[dict[str, Any]], key: pa.DataType) -> pa.Table:
    kinds = [key, pa.string(), pa.string(), NAMES, pa.int64(), pa.int64(), pa.bool_(), pa.bool_()]
    return pa.Table.from_pylist(rows, pa.schema(list(zip(rows[0], kinds, strict=True))))
