"""Rows of a server's tables, such as the demo shop's, to compare with decoded ones."""

from __future__ import annotations

from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.capture.connection.session_settings import pin
from pgwire_codec.demo.shop import KEYS, SCHEMA


def typed_rows(dsn: str, table: str) -> list[dict[str, object]]:
    """Read a table of the shop with psycopg2's own conversion of every type.

    Types that are strings on Spark are read as text: jsonb, and numeric without precision.
    """
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        pin(cursor)
        cursor.execute(
            "SELECT format(CASE WHEN atttypid = 'jsonb'::regtype"
            " OR atttypid = 'numeric'::regtype AND atttypmod = -1"
            " THEN '%%1$I::text AS %%1$I' ELSE '%%I' END, attname) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (f"{SCHEMA}.{table}",),
        )
        columns = ", ".join(expression for (expression,) in cursor.fetchall())
        cursor.execute(f"SELECT {columns} FROM {SCHEMA}.{table}")
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    finally:
        connection.close()


def rows(dsn: str, table: str) -> list[dict[str, str | None]]:
    """Read a table with every value in the text form that a walsender sends.

    Parameters
    ----------
    dsn : str
        Of the database.
    table : str
        A table of the shop, or any qualified name as in SQL.

    Returns
    -------
    list of dict
        Column name to text or None; ordered by the whole row, so that lists compare.
    """
    connection = connect(dsn)
    try:
        cursor = connection.cursor()
        pin(cursor)
        qualified = f"{SCHEMA}.{table}" if table in KEYS else table
        # format() calls the type's output function as pgoutput does; a cast to text strips the
        # padding of char(n) and spells booleans out.
        cursor.execute(
            "SELECT attname, format('CASE WHEN num_nulls(%%1$I) = 0 THEN format(''%%%%s'', %%1$I)"
            " END', attname) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (qualified,),
        )
        columns: list[tuple[str, str]] = cursor.fetchall()
        cursor.execute(
            f"SELECT {', '.join(expression for _, expression in columns)} FROM {qualified}"
        )
        found = sorted(cursor.fetchall(), key=lambda row: [(v is not None, v or "") for v in row])
        return [
            {name: value for (name, _), value in zip(columns, row, strict=True)} for row in found
        ]
    finally:
        connection.close()
