"""Checks of the server itself: settings, limits, WAL, and the connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pgwire_codec.capture.catalog.slots import is_in_recovery
from pgwire_codec.capture.checks.finding import Finding, error, of_error, warning
from pgwire_codec.capture.connection.connect import (
    check_may_replicate,
    check_wal_level,
    check_walsender_left,
    connect_walsender,
)
from pgwire_codec.capture.slot_status import ending_prepared, ending_session
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.quoting import quote_literal

_TESTED: Final = (12, 19)  # majors
_RELOAD: Final = "SELECT pg_reload_conf();"
_SMALL_WAL: Final = 1 << 30
_LONG_SECONDS: Final = 60
_SHORT_MILLISECONDS: Final = 10_000

#: Settings of a session in which values have another form, and how their values should begin.
_FORMS: Final = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
}


def check_version(cursor: Any) -> Iterator[Finding]:
    """Yield a finding for a major version that is not tested, and for a standby."""
    major = cursor.connection.server_version // 10_000
    oldest, newest = _TESTED
    if not oldest <= major <= newest:
        yield warning(
            "version",
            f"the server is PostgreSQL {major}; a capture is tested with {oldest} to {newest}",
            "Try the capture on a copy of the database first.",
        )
    if is_in_recovery(cursor):
        if major < 16:
            yield error(
                "standby",
                f"the server is a standby, which decodes from PostgreSQL 16 on, not {major}",
                "Connect to the primary, for example with target_session_attrs=read-write.",
            )
        else:
            yield warning(
                "standby",
                "the server is a standby: creating a slot waits for the primary's activity",
                "Run on the primary: SELECT pg_log_standby_snapshot();",
                "Set hot_standby_feedback = on, or changes of catalogs end the slot.",
            )


def check_settings(cursor: Any) -> Iterator[Finding]:
    """Yield a finding for each setting that prevents a capture, or limits it."""
    cursor.execute(
        "SELECT name, setting, current_setting(name), pending_restart FROM pg_settings"
        " WHERE name IN ('wal_level', 'max_slot_wal_keep_size', 'idle_replication_slot_timeout',"
        " 'wal_sender_timeout')"
    )
    settings = {name: rest for name, *rest in cursor.fetchall()}
    *_, is_pending = settings["wal_level"]
    try:
        check_wal_level(cursor)
    except CaptureError as raised:
        if is_pending:
            yield error("wal_level", f"{raised.primary}; it was changed", "Restart the server.")
        else:
            yield of_error("wal_level", raised)
    megabytes, shown, _ = settings.get("max_slot_wal_keep_size", ("-1", "", False))
    yield from _check_wal_limit(cursor, int(megabytes), shown)
    idle, shown, _ = settings.get("idle_replication_slot_timeout", ("0", "", False))
    if int(idle):
        yield warning(
            "idle_timeout",
            f"idle_replication_slot_timeout is {shown}: a capture that is stopped for longer "
            "loses its slot",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0;",
            _RELOAD,
        )
    timeout, shown, _ = settings["wal_sender_timeout"]
    if int(timeout) < _SHORT_MILLISECONDS:
        effect = (
            "a short pause ends the connection"
            if int(timeout)
            else "the server does not notice that a capture's machine has gone, and its slot "
            "stays in use"
        )
        yield warning(
            "sender_timeout",
            f"wal_sender_timeout is {shown}: {effect}",
            "ALTER SYSTEM SET wal_sender_timeout = '60s';",
            _RELOAD,
        )


def _check_wal_limit(cursor: Any, megabytes: int, shown: str) -> Iterator[Finding]:
    limit: tuple[str, ...] = (
        "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; -- less than the disk has free",
        _RELOAD,
    )
    if cursor.connection.server_version < 130000:
        limit = ("Watch the slot's lag: before PostgreSQL 13, the server has no limit.",)
    if megabytes == -1:
        yield warning(
            "wal_limit",
            "the server keeps WAL for a stopped capture until its disk is full",
            *limit,
        )
    elif megabytes << 20 < _SMALL_WAL:
        yield warning(
            "wal_limit",
            f"max_slot_wal_keep_size is {shown}: a capture with a larger lag loses its slot",
            *limit,
        )


def check_limits(cursor: Any, slot: str | None) -> Iterator[Finding]:
    """Yield a finding for each limit that leaves no room for a capture."""
    cursor.execute(
        "SELECT current_setting('max_replication_slots')::int, count(*),"
        " coalesce(bool_or(slot_name = %s), false) FROM pg_replication_slots",
        (slot,),
    )
    limit, used, exists = cursor.fetchone()
    if used >= limit and not exists:
        yield error(
            "slots",
            f"all {limit} replication slots of the server are in use (max_replication_slots)",
            "Drop one that is not needed: SELECT pg_drop_replication_slot('...');",
            f"Or run ALTER SYSTEM SET max_replication_slots = {limit + 5}; and restart the server.",
        )
    try:
        check_walsender_left(cursor)
    except CaptureError as raised:
        yield of_error("walsenders", raised)


def check_other_slots(cursor: Any, slot: str | None) -> Iterator[Finding]:
    """Yield a finding for each unused slot that keeps much WAL."""
    cursor.execute(
        "SELECT slot_name, pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery()"
        " THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)::bigint AS kept"
        " FROM pg_replication_slots WHERE NOT active AND slot_name IS DISTINCT FROM %s"
        " ORDER BY slot_name",
        (slot,),
    )
    for name, kept in cursor.fetchall():
        if kept is not None and kept > _SMALL_WAL:
            yield warning(
                "unused_slot",
                f'replication slot "{name}" is not in use, and keeps {kept >> 20:,} MB of WAL',
                "If nothing needs it any more: SELECT pg_drop_replication_slot("
                f"{quote_literal(name)});",
            )


def check_role(cursor: Any) -> Iterator[Finding]:
    """Yield a finding if the role may not replicate."""
    try:
        check_may_replicate(cursor)
    except CaptureError as raised:
        yield of_error("role", raised)


def check_replication(dsn: str) -> Iterator[Finding]:
    """Yield a finding if no replication connection opens, as through PgBouncer."""
    try:
        connect_walsender(dsn).close()
    except CaptureError as raised:
        yield of_error("replication_connection", raised)


def check_transactions(cursor: Any) -> Iterator[Finding]:
    """Yield a finding for each long transaction, whose end the creation of a slot waits for."""
    cursor.execute(
        "SELECT pid, extract(epoch FROM now() - xact_start)::bigint FROM pg_stat_activity"
        " WHERE backend_xid IS NOT NULL AND now() - xact_start > make_interval(secs => %s)"
        " ORDER BY xact_start",
        (_LONG_SECONDS,),
    )
    for pid, seconds in cursor.fetchall():
        yield warning(
            "long_transaction",
            f"process {pid} has been writing in a transaction for {seconds:,} s: creating a slot "
            "waits for its end",
            ending_session(pid),
        )
    cursor.execute(
        "SELECT gid, database, extract(epoch FROM now() - prepared)::bigint FROM pg_prepared_xacts"
        " WHERE now() - prepared > make_interval(secs => %s) ORDER BY prepared",
        (_LONG_SECONDS,),
    )
    for gid, database, seconds in cursor.fetchall():
        yield warning(
            "prepared_transaction",
            f'transaction "{gid}" of database "{database}" has been prepared for {seconds:,} s: '
            "creating a slot waits for its end",
            ending_prepared(gid),
        )


def check_values(cursor: Any) -> Iterator[Finding]:
    """Yield a finding for each setting that the form of values depends on."""
    cursor.execute(
        "SELECT current_setting('server_encoding'), quote_ident(current_database()),"
        " quote_ident(current_user)"
    )
    encoding, database, role = cursor.fetchone()
    if encoding == "SQL_ASCII":
        yield warning(
            "encoding",
            f"database {database} has the encoding SQL_ASCII: its texts need not be UTF-8, and "
            "those that are not do not decode",
            "Move the data into a database with the encoding UTF8.",
        )
    for name, wanted in _FORMS.items():
        # psycopg2 sets the first one for its own session.
        cursor.execute("SELECT reset_val FROM pg_settings WHERE lower(name) = %s", (name,))
        value = cursor.fetchone()[0]
        if not value.startswith(wanted):
            yield warning(
                "value_format",
                f"{name} is {value!r} for role {role} in database {database}: other consumers "
                "than this package, which sets it itself, get values in that form",
                f"ALTER ROLE {role} IN DATABASE {database} SET {name} = {quote_literal(wanted)};",
            )


def check_encryption(cursor: Any) -> Iterator[Finding]:
    """Yield a finding for a connection over a network that is not encrypted."""
    cursor.execute(
        "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        " AND NOT coalesce(inet_client_addr() <<= '127.0.0.0/8'"
        " OR inet_client_addr() = '::1' OR inet_client_addr() = inet_server_addr(), true)"
    )
    row = cursor.fetchone()
    if row is not None and not row[0]:
        yield warning(
            "encryption",
            "the connection is not encrypted",
            "Put sslmode=verify-full and sslrootcert=system (or the path of the root certificate) "
            "into the DSN.",
        )
