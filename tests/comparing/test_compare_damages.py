"""compare finds each of many damages in a target of many tables, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import MirrorOf
from tests.support.servers import database

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")

Row = dict[str, Any]
Change = Callable[[list[Row]], object]

KEYED = [f"k{number:02}" for number in range(16)]
BAGS = [f"b{number}" for number in range(6)]
ROOTS = [f"p{number}" for number in range(3)]
SUMS = [f"s{number}" for number in range(2)]
OTHERS = ["typed", "bare", "empty"]


def create() -> list[str]:
    """Return the statements that make the tables, and fill them."""
    made = []
    for name in KEYED:
        made += [
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text, n numeric(10, 2))",
            f"INSERT INTO {name} SELECT n, 'v' || n, n FROM generate_series(1, 20) n",
        ]
    for name in BAGS:
        made += [
            f"CREATE TABLE {name} (v int, w text)",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
            f"INSERT INTO {name} SELECT n % 3, NULLIF(n % 2, 0) FROM generate_series(1, 12) n",
        ]
    for name in ROOTS:
        made += [
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_low PARTITION OF {name} FOR VALUES FROM (0) TO (10)",
            f"CREATE TABLE {name}_high PARTITION OF {name} FOR VALUES FROM (10) TO (20)",
            f"INSERT INTO {name} SELECT n, 'v' FROM generate_series(1, 19) n",
        ]
    for name in SUMS:
        made += [
            f"CREATE TABLE {name} (id int PRIMARY KEY,"
            " net int GENERATED ALWAYS AS (id + 1) STORED)",
            f"INSERT INTO {name} SELECT n FROM generate_series(1, 5) n",
        ]
    return [
        *made,
        "CREATE TABLE typed (id int PRIMARY KEY, b bool, i bigint, f float8, d date, ts timestamp,"
        " tz timestamptz, u uuid, x bytea, a int[], t text, c char(5))",
        "INSERT INTO typed SELECT n, true, n, n, '2020-01-01', '2020-01-01 01:00', now(),"
        " gen_random_uuid(), '\\x00ff', ARRAY[n, NULL], 'Text', 'c' FROM generate_series(1, 12) n",
        "CREATE TABLE bare (id int PRIMARY KEY, v text)",
        "INSERT INTO bare SELECT n FROM generate_series(1, 3) n",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES"
        " WITH (publish_via_partition_root, publish_generated_columns = stored)",
    ]


def put(place: int, **values: Any) -> Change:
    """Return the damage that changes values of a row."""
    return lambda rows: rows[place].update(values)


def delete(*places: int) -> Change:
    return lambda rows: [rows.pop(place) for place in sorted(places, reverse=True)]


def double(*places: int) -> Change:
    return lambda rows: rows.extend(dict(rows[place]) for place in places)


def each(**values: Any) -> Change:
    return lambda rows: [row.update(values) for row in rows]


def shift(place: int, column: str, by: Any) -> Change:
    return lambda rows: rows[place].update({column: rows[place][column] + by})


def swap(rows: list[Row]) -> None:
    rows[0]["v"], rows[1]["v"] = rows[1]["v"], rows[0]["v"]


#: Damages of a table, and the number of keys that differ.
DAMAGES: dict[str, tuple[list[Change], int]] = {
    "k00": ([put(0, v="wrong")], 1),
    "k01": ([put(3, v=None)], 1),
    "k02": ([shift(4, "n", Decimal("0.01"))], 1),
    "k03": ([put(5, v="V6")], 1),
    "k04": ([put(6, v="v7 ")], 1),
    "k05": ([put(7, id=100)], 2),
    "k06": ([delete(0)], 1),
    "k07": ([delete(19), delete(0)], 2),
    "k08": ([lambda rows: rows.append({"id": 21, "v": "v", "n": Decimal(1)})], 1),
    "k09": ([double(4)], 1),
    "k10": ([swap], 2),
    "k11": ([each(v=None)], 20),
    "k12": ([lambda rows: rows.clear()], 20),
    "k13": ([put(0, v="wrong"), delete(9), double(3)], 3),
    "b0": ([double(0)], 1),
    "b1": ([delete(0)], 1),
    "b2": ([lambda rows: rows.clear()], 6),
    "b3": ([lambda rows: rows.extend([dict(row) for row in rows])], 6),
    "b4": ([put(0, v=7)], 2),
    "p0": ([lambda rows: rows.remove(next(row for row in rows if row["id"] == 9))], 1),
    "p1": ([lambda rows: rows.__setitem__(slice(None), [r for r in rows if r["id"] > 9])], 9),
    "s0": ([put(2, net=0)], 1),
    "typed": (
        [
            put(0, b=False),
            shift(1, "i", 1),
            shift(2, "f", 1e-9),
            shift(3, "d", timedelta(days=1)),
            shift(4, "ts", timedelta(microseconds=1)),
            shift(5, "tz", timedelta(microseconds=1)),
            put(6, u="00000000-0000-0000-0000-000000000000"),
            put(7, x=b"\x00"),
            put(8, a=[9, 0]),
            put(9, a=[10]),
            put(10, t=""),
            put(11, c="c"),
        ],
        12,
    ),
}  # fmt: skip


def test_damages(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    # Beside the changes of rows: two columns and a table that are gone.
    assert sum(len(changes) for changes, _ in DAMAGES.values()) + 3 >= 40
    with database(request.getfixturevalue("pg18")) as made:
        made.execute(*create())
        mirror = MirrorOf(None, tmp_path, "local")
        capture_into(made, tmp_path / "log", snapshot=True).run(until_lsn=flush_lsn(made))
        mirror.run()

        def compared() -> dict[str, Any]:
            found = mirror.compare(made.dsn, wait=0)
            return {table.table.partition(".")[2]: table for table in found.tables}

        names = [*KEYED, *BAGS, *ROOTS, *SUMS, *OTHERS]
        assert {name: table.state for name, table in compared().items()} == dict.fromkeys(
            names, "equal"
        )
        for name, (changes, _) in DAMAGES.items():
            path = str(mirror.lake / "public" / name)
            rows = _rows(path)
            damaged = sorted(rows.to_pylist(), key=repr if name in BAGS else _by_id)
            for change in changes:
                change(damaged)
            written = type(rows).from_pylist(damaged, schema=rows.schema)
            deltalake.write_deltalake(path, written, mode="overwrite")
        for name in ("k14", "bare"):  # "bare" has no value there
            path = str(mirror.lake / "public" / name)
            rows = _rows(path).drop(["v"])
            deltalake.write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
        shutil.rmtree(mirror.lake / "public" / "empty")
        found = compared()
    expected = dict.fromkeys(names, ("equal", 0))
    expected |= {name: ("differs", keys) for name, (_, keys) in DAMAGES.items()}
    expected |= {"k14": ("differs", 20), "bare": ("equal, except: v", 0), "empty": ("missing", 0)}
    assert {name: (table.state, table.differing) for name, table in found.items()} == expected


def _rows(path: str) -> pa.Table:
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    return pa.table(found.execute("SELECT * FROM t").read_all())


def _by_id(row: Row) -> int:
    number: int = row["id"]
    return number
