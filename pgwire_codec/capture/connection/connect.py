"""Connections to a PostgreSQL server, and the causes of refused ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from pgwire_codec.capture.connection.dsn import parse_dsn, shows_secret
from pgwire_codec.capture.connection.error_hints import (
    NOT_CONNECTED,
    capture_error,
    is_transient,
)
from pgwire_codec.capture.connection.interrupt import Interrupt
from pgwire_codec.capture.connection.libpq import failed_connection_codes
from pgwire_codec.capture.connection.password_command import password_options
from pgwire_codec.errors import CaptureError, missing_extra
from pgwire_codec.protocol.lsn import parse_lsn
from pgwire_codec.protocol.quoting import quote_identifier

#: Options that a DSN may override: no connection attempt, and no dead connection, blocks for
#: minutes.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "fallback_application_name": "pgwire_codec",
}

#: Descriptions of refusals whose text is not shown, by SQLSTATE.
_REFUSALS: Final = {
    "28000": "the role may not connect",
    "28P01": "the password is wrong or missing",
    "3D000": "the database does not exist",
}
#: Ends of the texts of libpq and of psycopg2 for a connection without the memory that it needs.
_NO_MEMORY: Final = ("out of memory", "PQconnectdb() failed")
#: Parts of libpq's texts about files of this machine, which no later attempt finds either.
_LOCAL_FAULTS: Final = (
    'service file "', 'definition of service "', 'certificate file "', 'private key file "',
)  # fmt: skip
#: Role of Amazon RDS whose members may replicate without the attribute REPLICATION.
_MANAGED_ROLE: Final = "rds_replication"
_HIDDEN: Final = (
    "The server's own text is not shown, because it may contain a part of the password."
)


def load_psycopg2() -> Any:
    """Import psycopg2 with its extras.

    Raises ``MissingExtraError`` when it is not installed.
    """
    try:
        import psycopg2.extras
    except ImportError as error:
        raise missing_extra("a capture needs psycopg2", "capture") from error
    return psycopg2


def connect(dsn: str, interrupt: Interrupt | None = None) -> Any:
    """Open an ordinary connection in autocommit mode.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI.
    interrupt : Interrupt, optional
        Ends the attempt, and later any statement of the connection, from another thread.

    Raises
    ------
    CaptureError
        With the text of the server or libpq, unless it may contain a part of the password.
    Interrupted
        When ``interrupt`` is set.
    """
    if interrupt is None:
        return _connect(dsn)
    return interrupt.connect(lambda: _connect(dsn))


def connect_walsender(dsn: str, interrupt: Interrupt | None = None) -> Any:
    """Open a logical replication connection; parameters as for :func:`connect`.

    Raises
    ------
    CaptureError
        With the setting, attribute or limit that prevents it.
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
        text = str(error).strip()
    else:
        connection.autocommit = True
        return connection
    # Not in the handler: psycopg2's error, whose text may not be shown, would be its context.
    raise _refusal(
        "could not connect",
        text,
        dsn,
        arguments,
        failed_connection_codes(arguments),
        "Check host, port, dbname, user and password of the DSN, and that the server runs and its "
        "pg_hba.conf lets the user in.",
    )


def _connect_walsender(dsn: str) -> Any:
    psycopg2 = load_psycopg2()
    arguments = _arguments(dsn)
    try:
        return psycopg2.connect(
            arguments, connection_factory=psycopg2.extras.LogicalReplicationConnection
        )
    except psycopg2.Error as error:
        text = str(error).strip()
    raise _walsender_refusal(dsn, arguments, text)


def _arguments(dsn: str) -> str:
    """Return the whole DSN, with the password that its command prints.

    Raises ``CaptureError`` for one that cannot be read, and for a command that fails.
    """
    psycopg2 = load_psycopg2()
    defaults = dict(_DEFAULTS)
    if "PGCONNECT_TIMEOUT" in os.environ:
        del defaults["connect_timeout"]
    given = {**parse_dsn(dsn), **password_options(dsn)}
    options = {**defaults, **given, "client_encoding": "UTF8"}
    arguments: str = psycopg2.extensions.make_dsn(**options)
    return arguments


def _refusal(
    primary: str, text: str, dsn: str, arguments: str, codes: Sequence[str], hint: str
) -> CaptureError:
    """Return the error for libpq's text and the server's codes, without any part of a password.

    Raises ``MemoryError`` if that is what libpq lacks.
    """
    if not codes and text.endswith(_NO_MEMORY):
        raise MemoryError(text)
    is_local = any(fault in text for fault in _LOCAL_FAULTS)
    if shows_secret(text, dsn, parse_dsn(arguments).get("password", "")):
        reasons = [_REFUSALS.get(c, f"the server refused it with SQLSTATE {c}") for c in codes]
        text = ", ".join(reasons) or "no server answered"
        hint = f"{_HIDDEN} {hint}"
    return CaptureError(
        f"{primary}: {text}",
        hint=hint,
        # Without a code, no server has refused the connection for good.
        is_transient=any(map(is_transient, codes)) if codes else not is_local,
        sqlstate=codes[0] if codes else NOT_CONNECTED,
    )


def current_lsn(dsn: str, interrupt: Interrupt | None = None) -> int:
    """Return the LSN up to which the server has flushed its WAL, or replayed it as a standby.

    Parameters and errors as for :func:`connect`.
    """
    psycopg2 = load_psycopg2()
    with closing(connect(dsn, interrupt)) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(
                "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
                " ELSE pg_current_wal_flush_lsn() END"
            )
            return parse_lsn(cursor.fetchone()[0])
        except psycopg2.Error as error:
            raise capture_error(error, "") from error


def check_wal_level(cursor: Any) -> None:
    """Raise ``CaptureError`` when the server's wal_level is too low for logical decoding.

    PostgreSQL 19 with wal_level = replica writes it as soon as there is a logical slot: creating
    the first one raises effective_wal_level.
    """
    needed = "logical" if cursor.connection.server_version < 190000 else "replica"
    cursor.execute("SELECT current_setting('wal_level')")
    wal_level = cursor.fetchone()[0]
    if wal_level not in (needed, "logical"):
        raise CaptureError(
            f"the server has wal_level = {wal_level}, and logical replication needs {needed}",
            hint=f"Run ALTER SYSTEM SET wal_level = {needed}; and restart the server.",
        )


def _walsender_refusal(dsn: str, arguments: str, text: str) -> CaptureError:
    """Return the error for a refused replication connection.

    The cause is looked up over an ordinary connection: texts are in the server's language.
    """
    with closing(connect(dsn)) as connection:  # fails with the cause if the DSN is wrong
        cursor = connection.cursor()
        try:
            check_wal_level(cursor)
            check_may_replicate(cursor)
            check_walsender_left(cursor)
        except CaptureError as error:
            return error
    return _refusal(
        "the server accepts ordinary connections but no replication connection",
        text,
        dsn,
        arguments,
        failed_connection_codes(f"{arguments} replication=database"),
        "Connect to the server directly, not through a pooler, and check that its pg_hba.conf "
        "does not refuse this connection.",
    )


def check_may_replicate(cursor: Any) -> None:
    """Raise ``CaptureError`` when the cursor's role may not open replication connections."""
    cursor.execute(
        "SELECT current_user, rolreplication OR rolsuper OR EXISTS (SELECT FROM pg_roles managed"
        " WHERE managed.rolname = %s AND pg_has_role(managed.oid, 'MEMBER'))"
        " FROM pg_roles WHERE rolname = current_user",
        (_MANAGED_ROLE,),
    )
    role, may_replicate = cursor.fetchone()
    if not may_replicate:
        raise CaptureError(
            f"role {quote_identifier(role)} may not replicate",
            hint=f"Run as a superuser: ALTER ROLE {quote_identifier(role)} REPLICATION;",
        )


def check_walsender_left(cursor: Any) -> None:
    """Raise ``CaptureError`` when the server has no walsender left."""
    cursor.execute(
        "SELECT current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication)"
    )
    limit, used = cursor.fetchone()
    if used >= limit:
        raise CaptureError(
            f"all {limit} walsenders of the server are in use (max_wal_senders)",
            hint="Close another replication connection, or run ALTER SYSTEM SET max_wal_senders = "
            f"{limit + 5}; and restart the server.",
            is_transient=True,
        )
