"""Keys of types whose operators call two texts equal: a row is known by what the server sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from pgwire_codec.lake import mirroring
from tests.support.lakehouse import delta_rows
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.servers import Database, each_major

pytest.importorskip("deltalake")

#: Two equal literals of each type; ``timetz`` has none.
TYPES: Final = {
    "float4": ("0", "-0"),
    "float8": ("0", "-0"),
    "float_domain": ("0", "-0"),
    "numeric": ("1.0", "1.00"),
    "numeric(10, 2)": ("1.0", "1.00"),
    "citext": ("a", "A"),
    "text COLLATE ignoring_case": ("a", "A"),
    "bpchar": ("a", "a  "),
    "char(5)": ("a", "a  "),
    "interval": ("1 day", "24 hours"),
    "jsonb": ('{"a": 1.0}', '{"a": 1.00}'),
    "timetz": ("10:00+00", "12:00+02"),
    "pair": ("(0,1.0)", "(-0,1.00)"),
    "float8[]": ("{0,1}", "{-0,1}"),
    "numrange": ("[1.0,2)", "[1.00,2)"),
    "float_range": ("[0,2)", "[-0,2)"),
}

SETUP: Final = (
    "CREATE TYPE pair AS (a float8, b numeric)",
    "CREATE TYPE float_range AS RANGE (subtype = float8)",
    "CREATE DOMAIN float_domain AS float8",
)

#: Statements for types that not each server has.
OPTIONAL: Final = {
    "citext": "CREATE EXTENSION citext",
    "ignoring_case": "CREATE COLLATION ignoring_case"
    " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
}

IDENTITIES: Final = {
    "d": ("PRIMARY KEY", ()),
    "i": ("NOT NULL UNIQUE", ("REPLICA IDENTITY USING INDEX {table}_k_key",)),
    "f": ("", ("REPLICA IDENTITY FULL",)),
}

#: Changes of tables with a key, by turns of the mirror.
KEYED: Final = (
    ("INSERT INTO {table} VALUES ({a}, '1')",),
    ("UPDATE {table} SET k = {b}", "UPDATE {table} SET v = '2'"),
    ("INSERT INTO {table} VALUES ({a}, '3') ON CONFLICT (k) DO UPDATE SET v = '4'",),
    ("INSERT INTO {table} VALUES ({a}, '5') ON CONFLICT (k) DO UPDATE SET k = excluded.k",),
    ("DELETE FROM {table} WHERE k = {b}", "INSERT INTO {table} VALUES ({b}, '6')"),
    ("DELETE FROM {table}", "INSERT INTO {table} VALUES ({a}, '7')", "UPDATE {table} SET k = {b}"),
)

#: Those of tables that have equal rows.
WHOLE: Final = (
    ("INSERT INTO {table} VALUES ({a}, '1'), ({b}, '1'), ({a}, '1')",),
    ("UPDATE {table} SET k = {b} WHERE ctid = (SELECT min(ctid) FROM {table})",),
    ("DELETE FROM {table} WHERE ctid = (SELECT min(ctid) FROM {table})",),
    ("INSERT INTO {table} VALUES ({b}, '1')", "UPDATE {table} SET v = '2' WHERE k = {a}"),
    ("DELETE FROM {table} WHERE ctid = (SELECT max(ctid) FROM {table})",),
    ("UPDATE {table} SET k = {a}",),
)


def available(made: Database) -> dict[str, tuple[str, str]]:
    """Create the types; return those that the server can have."""
    import psycopg2

    types = dict(TYPES)
    made.execute(*SETUP)
    for name, statement in OPTIONAL.items():
        try:
            made.execute(statement)
        except psycopg2.Error:
            types = {kind: pair for kind, pair in types.items() if name not in kind}
    return types


@pytest.mark.slow
def test_equal_floats(pg: Database, tmp_path: Path) -> None:
    check(pg, {"float8": TYPES["float8"]}, tmp_path, [[0], [1], [2, 3, 4, 5]])


@pytest.mark.slow
@pytest.mark.thorough
@each_major
def test_equal_keys(pg: Database, tmp_path: Path) -> None:
    check(pg, available(pg), tmp_path, [[number] for number in range(len(KEYED))])


def check(
    made: Database, types: dict[str, tuple[str, str]], tmp_path: Path, turns: list[list[int]]
) -> None:
    """Change tables of each type and replica identity; compare them after each turn of a mirror."""
    tables = {
        f"{identity}{number}": (identity, kind)
        for identity in IDENTITIES
        for number, kind in enumerate(types)
    }
    for table, (identity, kind) in tables.items():
        constraint, altered = IDENTITIES[identity]
        made.execute(
            f"CREATE TABLE {table} (k {kind} {constraint}, v text)",
            *(f"ALTER TABLE {table} {step.format(table=table)}" for step in altered),
        )
    made.execute("CREATE PUBLICATION p FOR ALL TABLES")
    for turn in turns:
        made.execute(
            *(
                statement.format(
                    table=table,
                    a=f"'{types[kind][0]}'::{kind}",
                    b=f"'{types[kind][1]}'::{kind}",
                )
                for number in turn
                for table, (identity, kind) in tables.items()
                for statement in (WHOLE if identity == "f" else KEYED)[number]
            )
        )
        capture_into(made, tmp_path / "log", snapshot=True).run(until_lsn=flush_lsn(made))
        mirroring.mirror(str(tmp_path / "log"), f"delta:{tmp_path / 'lake'}", once=True).run()
        for table, (_, kind) in tables.items():
            expected = made.query(f"SELECT format('%s', k), v FROM {table} ORDER BY 1, 2")
            rows = delta_rows(tmp_path / "lake" / "public" / table).to_pylist()
            assert sorted((text(row["k"]), row["v"]) for row in rows) == expected, (kind, table)


def text(value: Any) -> str:
    """Return a value of the lake as the server writes it."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"{{{','.join(map(text, value))}}}"
    return str(value)
