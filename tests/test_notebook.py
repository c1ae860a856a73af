"""A session in a notebook, cell by cell: a slot, polars, DuckDB, pandas, a log and a lake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwire_codec import log, spark
from tests.support.notebooks import Notebook, notebook
from tests.support.pages import Page
from tests.support.servers import Database
from tests.test_readme import README

pytest.importorskip("ipykernel", reason="the kernel")
pytest.importorskip("duckdb")

pytestmark = pytest.mark.slow

#: A value of each type of the README's table; embedded servers have no XML.
VALUES = {
    "bool": "t",
    "int2": "2",
    "int4": "4",
    "int8": "9007199254740993",
    "float4": "0.5",
    "float8": "0.1",
    "oid": "7",
    "xid": "8",
    "cid": "9",
    "xid8": "10",
    "pg_lsn": "0/16B3748",
    "numeric(10,2)": "19.90",
    "numeric": "100000000000000000000000000000000000000000.5",
    "text": "a",
    "varchar": "b",
    "bpchar": "c",
    "name": "d",
    "json": '{"e": 1}',
    "jsonb": '{"f": 1}',
    "xml": None,
    "bytea": r"\x00ff",
    "uuid": "11111111-1111-1111-1111-111111111111",
    "date": "2024-02-29",
    "timestamp": "2024-02-29 12:00:00",
    "timestamptz": "2024-02-29 12:00:00+00",
    "time": "12:00:00",
    "interval": "1 year 2 mons -3 days 04:05:06.5",
    "int4[]": "{1,NULL}",
    "interval[]": '{"1 day"}',
    "price": "21.90",
    "mood": "happy",
    "int4range": "[1,5)",
    "point": "(1,2)",
    "inet": "10.0.0.1",
}
COLUMNS = [re.sub(r"\W", "_", name) for name in VALUES]
#: In the README's words, or of PostgreSQL 19 only.
_OTHERS = {"oid8", "numeric(p,s)"}


@pytest.fixture
def shop(pg: Database) -> Database:
    """A database with a table of every type, another table, a publication and a slot."""
    columns = ", ".join(f"{c} {kind}" for c, kind in zip(COLUMNS, VALUES, strict=True))
    values = ", ".join("NULL" if each is None else f"'{each}'" for each in VALUES.values())
    pg.execute(
        "CREATE DOMAIN price AS numeric(8, 2)",
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        f"CREATE TABLE everything (id int PRIMARY KEY, {columns})",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE everything, other",
    )
    pg.create_slot()
    pg.execute(
        f"INSERT INTO everything VALUES (1, {values}), (2{', NULL' * len(VALUES)})",
        "INSERT INTO other VALUES (7)",
    )
    return pg


@pytest.fixture
def cells(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A notebook that knows the server and the slot."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with notebook(tmp_path) as made:
        made.run(f"DSN, SLOT = {shop.dsn!r}, {shop.slot!r}")
        yield made


def test_the_table_has_every_type_of_the_readme() -> None:
    rows = re.findall(r"^\| (`.*?) \|", README[README.index("## Types") :], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {"interval", "uuid"} <= named
    assert named - _OTHERS <= {*VALUES} | {name for name in named if "-" in name or " " in name}


def test_a_session(cells: Notebook) -> None:
    run = cells.run

    # Look into the slot.
    cell = run(
        "import pgwire_codec as pgc\n"
        "from pgwire_codec import capture, log, spark\n"
        "messages = capture.peek(DSN, slot=SLOT, publication='p')\n"
        "messages"
    )
    assert re.fullmatch(r"<MessageBatch: \d+ messages, [\d.]+ k?B, LSN .* to .*>", cell.text)
    assert {*cells.complete("spark.")} == {f"spark.{name}" for name in spark.__all__}
    assert {*cells.complete("log.")} == {f"log.{name}" for name in log.__all__}

    # Decode.
    cell = run("changes = pgc.Decoder().decode(messages.data, messages.lsn)\nchanges")
    assert cell.text == (
        "<Changes: 3 changes in 2 transactions: public.everything (2 inserts), "
        "public.other (1 insert)>"
    )
    [counts] = Page(cell.html).tables.values()
    assert counts[1:] == [
        ["public.everything", "2", "0", "0", "0"],
        ["public.other", "1", "0", "0", "0"],
    ]
    cell = run("changes.to_polars()")
    assert cell.error is not None
    assert cell.error.startswith("TableError: an Arrow stream has the columns of one table")
    assert "Select a table, as in changes.table('public.everything')." in cell.error
    cell = run("everything = changes.table('public.everything')\neverything")
    [(caption, rows)] = Page(cell.html).tables.items()
    assert caption == "public.everything: 2 rows (2 inserts)"
    assert rows[0][:3] == ["operation", "id int4", "bool bool"]
    assert rows[2][:3] == ["I", "2", "NULL"]

    # polars, DuckDB, pandas.
    cell = run("everything.to_polars().select('id', 'interval', 'uuid').rows()[0][:2]")
    assert cell.text == "(1, '1 year 2 mons -3 days +04:05:06.5')"
    assert "<table" in run("everything.to_polars()").html
    cell = run(
        "import duckdb\n"
        "duckdb.sql('SELECT int8, interval::text FROM everything WHERE id = 1').fetchall()"
    )
    assert cell.text == "[(9007199254740993, '1 year 2 months -3 days 04:05:06.5')]"
    assert "<table" in run("everything.to_pandas()").html
    assert run("everything.to_pandas()['int8'].tolist()").text == "[9007199254740993, <NA>]"

    # A log.
    cell = run(
        "running = capture.LogCapture(DSN, 'shop.log', slot=SLOT, publication='p')\n"
        "running.run(until_lsn='now')\n"
        "shop = log.Log('shop.log')\n"
        "shop"
    )
    [tables] = Page(cell.html).tables.values()
    assert [row[0] for row in tables] == ["table", "public.everything", "public.other"]
    cell = run("shop.read('public.everythin')")
    assert cell.error is not None
    assert "Did you mean public.everything?" in cell.error
    cell = run("logged = shop.read('public.everything')\nlogged")
    assert "public.everything: 2 rows (2 inserts)" in Page(cell.html).tables
    # A walsender reports other LSNs of messages than the function that is peeked with.
    cell = run("logged.to_polars().drop('_lsn').equals(everything.to_polars().drop('_lsn'))")
    assert cell.text == "True"
    cell = run(
        "duckdb.sql('SELECT mood, count(*) FROM logged GROUP BY ALL ORDER BY ALL').fetchall()"
    )
    assert cell.text == "[('happy', 1), (None, 1)]"
    cell = run(
        "shop.to_reader('public.everything', intervals='microseconds').schema.field('interval')"
    )
    assert cell.text == "pyarrow.Field<interval: duration[us]>"

    # A lake.
    cell = run(
        "from pgwire_codec.lake.mirroring import mirror\n"
        "mirrored = mirror(shop, 'delta:lake', once=True)\n"
        "mirrored.run()\n"
        "{name: row.state for name, row in mirrored.status.items()}"
    )
    assert set(re.findall(r"'(public\.\w+)'", cell.text)) == {"public.everything", "public.other"}
    cell = run(
        "import polars as pl\n"
        "pl.read_delta('lake/public/everything').sort('id')"
        ".select('id', 'numeric_10_2_', 'interval', 'mood').rows()"
    )
    assert cell.text.startswith(
        "[(1, Decimal('19.90'), '1 year 2 mons -3 days +04:05:06.5', 'happy')"
    )
