"""Connections to the server, and why one could not be had."""

from __future__ import annotations

from typing import Any

from pgwire_codec.capture.options import quote_identifier
from pgwire_codec.errors import CaptureError, MissingExtraError


def load_psycopg2() -> Any:
    """Import psycopg2 with its extras.

    Raises ``MissingExtraError`` when it is not installed.
    """
    try:
        import psycopg2.extras
    except ImportError as error:
        raise MissingExtraError(
            "Capturing from a server needs psycopg2: pip install 'pgwire-codec[capture]'"
        ) from error
    return psycopg2


def connect(dsn: str) -> Any:
    """Open an ordinary connection in autocommit mode.

    Raises ``CaptureError`` with what the server or libpq said.
    """
    psycopg2 = load_psycopg2()
    try:
        connection = psycopg2.connect(
            dsn, client_encoding="UTF8", fallback_application_name="pgwire_codec"
        )
    except psycopg2.Error as error:
        raise CaptureError(
            f"Could not connect: {str(error).strip()} Check host, port, dbname, user and password "
            "of the DSN, and that the server runs and its pg_hba.conf lets the user in."
        ) from error
    connection.autocommit = True
    return connection


def connect_walsender(dsn: str) -> Any:
    """Open a logical replication connection.

    Raises ``CaptureError`` that says which setting, attribute or limit stands in the way.
    """
    psycopg2 = load_psycopg2()
    try:
        return psycopg2.connect(
            dsn,
            connection_factory=psycopg2.extras.LogicalReplicationConnection,
            client_encoding="UTF8",
            fallback_application_name="pgwire_codec",
        )
    except psycopg2.Error as error:
        raise _why_no_walsender(dsn, str(error).strip()) from error


def check_wal_level(cursor: Any) -> None:
    """Raise ``CaptureError`` when the server does not write what logical decoding needs."""
    cursor.execute("SELECT current_setting('wal_level')")
    wal_level = cursor.fetchone()[0]
    if wal_level != "logical":
        raise CaptureError(
            f"The server has wal_level = {wal_level}; logical replication needs logical. "
            "Run ALTER SYSTEM SET wal_level = logical; and restart the server."
        )


def _why_no_walsender(dsn: str, said: str) -> CaptureError:
    """Find the cause by asking over an ordinary connection: texts are in the server's language."""
    connection = connect(dsn)  # fails with the cause when the DSN is wrong altogether
    try:
        cursor = connection.cursor()
        try:
            check_wal_level(cursor)
        except CaptureError as error:
            return error
        cursor.execute(
            "SELECT current_user, rolreplication OR rolsuper FROM pg_roles"
            " WHERE rolname = current_user"
        )
        role, may_replicate = cursor.fetchone()
        if not may_replicate:
            return CaptureError(
                f"Role {role} may not replicate. A superuser has to run"
                f" ALTER ROLE {quote_identifier(role)} REPLICATION;"
            )
        cursor.execute(
            "SELECT current_setting('max_wal_senders')::int,"
            " (SELECT count(*) FROM pg_stat_replication)"
        )
        limit, used = cursor.fetchone()
        if used >= limit:
            return CaptureError(
                f"All {limit} walsenders of the server are in use (max_wal_senders). Close another "
                f"replication connection, or run ALTER SYSTEM SET max_wal_senders = {limit + 5}; "
                "and restart the server."
            )
    finally:
        connection.close()
    return CaptureError(
        f"The server takes ordinary connections but no replication connection: {said} "
        "Connect to the server directly, not through a pooler, and see that its pg_hba.conf does "
        "not refuse this one."
    )
