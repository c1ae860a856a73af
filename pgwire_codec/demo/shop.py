"""The demo shop on any PostgreSQL server: its schema and tables."""

from __future__ import annotations

from typing import Final

from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.errors import CaptureError

SCHEMA: Final = "pgwire_demo"
#: Names of the demo's slot and publication.
SLOT: Final = "pgwire_demo"
PUBLICATION: Final = "pgwire_demo"

#: Table: the columns that identify a row.
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "customers": ("id",),
    "orders": ("id",),
    "order_lines": ("order_id", "line"),
    "prices": ("sku",),
    "carts": ("id",),
    "events": ("id",),
}
#: The tables as SQL names them.
TABLES: Final = tuple(f"{SCHEMA}.{table}" for table in KEYS)
#: A table that :func:`publish_reviews` creates.
REVIEWS: Final = f"{SCHEMA}.reviews"

#: An order that the workload changes, and columns of it that are shown.
ORDER_ID: Final = 2
ORDER: Final = ("id", "customer_id", "state", "total")

_DDL: Final = f"""
CREATE SCHEMA {SCHEMA};
CREATE TYPE {SCHEMA}.tier AS ENUM ('basic', 'silver', 'gold');
CREATE TYPE {SCHEMA}.order_state AS ENUM ('open', 'paid', 'shipped', 'returned');
CREATE TABLE {SCHEMA}.customers (
    id integer PRIMARY KEY, name text NOT NULL, email varchar(80), tier {SCHEMA}.tier NOT NULL,
    is_active boolean NOT NULL, profile jsonb, notes text NOT NULL, tags text[] NOT NULL,
    birthday date, created_at timestamptz NOT NULL
);
-- Out of line and uncompressed: an update that leaves it alone does not send it.
ALTER TABLE {SCHEMA}.customers ALTER COLUMN notes SET STORAGE EXTERNAL;
CREATE TABLE {SCHEMA}.orders (
    id bigint PRIMARY KEY, customer_id integer NOT NULL, token uuid NOT NULL,
    state {SCHEMA}.order_state NOT NULL, total numeric(12,2) NOT NULL,
    placed_at timestamptz NOT NULL, pick_up_at timestamp, due_on date, scores integer[] NOT NULL
);
CREATE TABLE {SCHEMA}.order_lines (
    order_id bigint, line smallint, sku char(8) NOT NULL, quantity integer NOT NULL,
    price numeric(10,2) NOT NULL, weight numeric, is_gift boolean NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE TABLE {SCHEMA}.prices (
    sku text PRIMARY KEY, price numeric(10,2) NOT NULL, valid_from timestamptz NOT NULL, remark text
);
ALTER TABLE {SCHEMA}.prices REPLICA IDENTITY FULL;
CREATE TABLE {SCHEMA}.carts (id integer PRIMARY KEY, sku text NOT NULL);
CREATE TABLE {SCHEMA}.events (
    id integer PRIMARY KEY, kind text NOT NULL, at timestamptz NOT NULL,
    amount double precision NOT NULL, payload jsonb NOT NULL
);
"""


def create(dsn: str, *, drop_existing: bool = False) -> None:
    """Create the shop's schema with its empty tables.

    Raises
    ------
    CaptureError
        If the schema exists and ``drop_existing`` is False.
    """
    if drop_existing:
        drop(dsn)
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        cursor.execute("SELECT to_regnamespace(%s) IS NOT NULL", (SCHEMA,))
        if cursor.fetchone()[0]:
            raise CaptureError(
                f'schema "{SCHEMA}" already exists',
                hint="Drop it if it is an earlier demo's; otherwise use another database.",
            )
        cursor.execute(_DDL)
    finally:
        connection.close()


def publish_reviews(dsn: str) -> None:
    """Create one more table, add it to the publication, and insert rows."""
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        cursor.execute(
            f"CREATE TABLE {REVIEWS} (id integer PRIMARY KEY, sku text NOT NULL, stars smallint,"
            " said_at timestamptz)"
        )
        cursor.execute(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {REVIEWS}")
        cursor.execute(
            f"INSERT INTO {REVIEWS} SELECT n, 'SKU-' || n % 90, nullif(n % 6, 0), now()"
            " FROM generate_series(1, 300) n"
        )
    finally:
        connection.close()


def order(dsn: str) -> tuple[str, ...]:
    """Return the columns of :data:`ORDER` of an order that the workload changes, as texts."""
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        columns = ", ".join(f"{name}::text" for name in ORDER)
        cursor.execute(f"SELECT {columns} FROM {SCHEMA}.orders WHERE id = {ORDER_ID}")
        row: tuple[str, ...] = cursor.fetchone()
        return row
    finally:
        connection.close()


def drop(dsn: str, *, slot: str = SLOT, publication: str = PUBLICATION) -> None:
    """Remove all that a demo leaves on the server: slot, publication, schema, if they exist.

    Raises
    ------
    psycopg2.Error
        If the server refuses, as for a slot that is being read.
    """
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        # A prepared transaction keeps its locks: the schema could not be dropped.
        cursor.execute(
            "SELECT gid FROM pg_prepared_xacts"
            " WHERE database = current_database() AND starts_with(gid, %s)",
            (SCHEMA,),
        )
        for (gid,) in cursor.fetchall():
            cursor.execute("ROLLBACK PREPARED %s", (gid,))
        cursor.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s AND database = current_database()",
            (slot,),
        )
        cursor.execute("SELECT format('DROP PUBLICATION IF EXISTS %%I', %s::text)", (publication,))
        cursor.execute(cursor.fetchone()[0])
        cursor.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    finally:
        connection.close()
