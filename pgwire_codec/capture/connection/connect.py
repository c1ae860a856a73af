"""Connections to the server, and why one could not be had."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from pgwire_codec.capture.connection.dsn import parse_dsn, shows_secret
from pgwire_codec.capture.connection.error_hints import explain, is_transient
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.connection.libpq import failed_connection_codes
from pgwire_codec.capture.options import quote_identifier
from pgwire_codec.errors import CaptureError, MissingExtraError
from pgwire_codec.protocol.lsn import parse_lsn

#: What holds where the DSN says nothing else: no connection attempt, and no dead connection, keeps
#: anybody waiting for minutes.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "fallback_application_name": "pgwire_codec",
}

#: Our words for refusals whose text is not shown, by SQLSTATE.
_REFUSALS: Final = {
    "28000": "the role may not connect",
    "28P01": "the password is wrong or missing",
    "3D000": "the database does not exist",
}


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


def connect(dsn: str, interrupt: Interrupt | None = None) -> Any:
    """Open an ordinary connection in autocommit mode.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI.
    interrupt : Interrupt, optional
        Ends the attempt, and then what the connection waits for, from another thread.

    Raises
    ------
    CaptureError
        With what the server or libpq said, unless that may contain a part of the password.
    Interrupted
        When ``interrupt`` is set.
    """
    if interrupt is None:
        return _connect(dsn)
    return interrupt.connect(lambda: _connect(dsn))


def connect_walsender(dsn: str, interrupt: Interrupt | None = None) -> Any:
    """Open a logical replication connection; parameters as of :func:`connect`.

    Raises
    ------
    CaptureError
        That says which setting, attribute or limit stands in the way.
    Interrupted
        When ``interrupt`` is set.
    """
    if interrupt is None:
        return _connect_walsender(dsn)
    return interrupt.connect(lambda: _connect_walsender(dsn))


def _connect(dsn: str) -> Any:
    psycopg2 = load_psycopg2()
    arguments = _arguments(dsn)
    try:
        connection = psycopg2.connect(arguments)
    except psycopg2.Error as error:
        said = str(error).strip()
    else:
        connection.autocommit = True
        return connection
    # Not in the handler: psycopg2's error, whose text may not be shown, would be its context.
    codes = failed_connection_codes(arguments)
    raise CaptureError(
        f"Could not connect: {_presentable(said, dsn, codes)} Check host, port, dbname, user and "
        "password of the DSN, and that the server runs and its pg_hba.conf lets the user in.",
        is_transient=_may_go_by_itself(codes),
    )


def _connect_walsender(dsn: str) -> Any:
    psycopg2 = load_psycopg2()
    arguments = _arguments(dsn)
    try:
        return psycopg2.connect(
            arguments, connection_factory=psycopg2.extras.LogicalReplicationConnection
        )
    except psycopg2.Error as error:
        said = str(error).strip()
    raise _why_no_walsender(dsn, said)


def _arguments(dsn: str) -> str:
    """Return the whole DSN. Raises ``CaptureError`` for one that cannot be read."""
    psycopg2 = load_psycopg2()
    defaults = dict(_DEFAULTS)
    if "PGCONNECT_TIMEOUT" in os.environ:
        del defaults["connect_timeout"]
    options = {**defaults, **parse_dsn(dsn), "client_encoding": "UTF8"}
    arguments: str = psycopg2.extensions.make_dsn(**options)
    return arguments


def _presentable(said: str, dsn: str, codes: Sequence[str]) -> str:
    """Return libpq's words, or ours in place of such as may contain a part of the password."""
    if not shows_secret(said, dsn):
        return said
    reasons = [_REFUSALS.get(code, f"the server refused it with SQLSTATE {code}") for code in codes]
    return (
        f"{', '.join(reasons) or 'no server answered'}. The text of the error is not shown, "
        "because it may contain a part of the password."
    )


def _may_go_by_itself(codes: Sequence[str]) -> bool:
    """Return whether no server has refused the connection for good, by the codes it sent."""
    return not codes or any(map(is_transient, codes))


def current_lsn(dsn: str, interrupt: Interrupt | None = None) -> int:
    """Return the LSN up to which the server has its WAL on disk: what is committed ends before it.

    Parameters and errors as of :func:`connect`.
    """
    psycopg2 = load_psycopg2()
    with closing(connect(dsn, interrupt)) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute("SELECT pg_current_wal_flush_lsn()")
            return parse_lsn(cursor.fetchone()[0])
        except psycopg2.Error as error:
            raise explain(error, "") from error


def check_wal_level(cursor: Any) -> None:
    """Raise ``CaptureError`` when the server does not write what logical decoding needs.

    PostgreSQL 19 with wal_level = replica writes it as soon as there is a logical slot: creating
    the first one raises effective_wal_level.
    """
    needed = "logical" if cursor.connection.server_version < 190000 else "replica"
    cursor.execute("SELECT current_setting('wal_level')")
    wal_level = cursor.fetchone()[0]
    if wal_level not in (needed, "logical"):
        raise CaptureError(
            f"The server has wal_level = {wal_level}; logical replication needs {needed}. "
            f"Run ALTER SYSTEM SET wal_level = {needed}; and restart the server."
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
                "and restart the server.",
                is_transient=True,
            )
    finally:
        connection.close()
    codes = failed_connection_codes(f"{_arguments(dsn)} replication=database")
    return CaptureError(
        "The server takes ordinary connections but no replication connection: "
        f"{_presentable(said, dsn, codes)} Connect to the server directly, not through a pooler, "
        "and see that its pg_hba.conf does not refuse this one.",
        is_transient=_may_go_by_itself(codes),
    )
