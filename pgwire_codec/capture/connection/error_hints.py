"""Hints for the server's error codes."""

from __future__ import annotations

import re
from typing import Any, Final

from pgwire_codec.errors import CaptureError

_OBJECT_IN_USE: Final = "55006"
_LIMIT_EXCEEDED: Final = "53400"
_NO_PRIVILEGE: Final = "42501"
_WRONG_STATE: Final = "55000"
_UNDEFINED_OBJECT: Final = "42704"
_UNTRANSLATABLE: Final = "22P05"
_SHUTDOWN: Final = "57P01"
_NOTHING: Final = ""  # the server ended the stream, or the connection failed, without an error

#: Code of a connection that breaks; also used for libpq's own errors, which have none.
CONNECTION_LOST: Final = "08006"

#: Code of a connection that no server accepts or refuses.
NOT_CONNECTED: Final = "08001"

#: Codes, and classes of codes, of errors that may disappear without intervention: broken
#: connections; a server that starts, stops, or lacks a resource; a slot that its last walsender
#: still holds; a statement or walsender that an administrator ended.
_TRANSIENT: Final = (
    "08", "25P03", "40", _OBJECT_IN_USE, "55P03", "53", "57014", "57P01", "57P02", "57P03", "57P05",
)  # fmt: skip

#: In an error of a stream: the server stops, and cannot wait for a standby that does not follow it.
#: Until then it only warns, and sends nothing (NeedToWaitForStandbys in walsender.c).
_STANDBY_SLOTS: Final = "synchronized_standby_slots"

#: In errors of values and messages beyond the server's limit, 1 GB: MaxAllocSize in memutils.h. As
#: text, a bytea has twice its bytes. The publication that counts is that of the change's time.
_TOO_LARGE: Final = re.compile(
    "invalid memory alloc request size|string buffer exceeds|Cannot enlarge string buffer"
)
_TOO_LARGE_HINT: Final = (
    "Capture with --binary, if you do not yet: the text of a bytea is twice as long. If the "
    "row itself exceeds 1 GB, leave the column out of the publication, then drop the slot, and "
    "begin a new log with a snapshot."
)

_REOPEN: Final = "Open the capture again: whatever was not confirmed is sent again."
_ENDED: Final = ("the server ended the stream", _REOPEN)

#: SQLSTATE: primary text and hint.
_EXPLANATIONS: Final = {
    _OBJECT_IN_USE: (
        'replication slot "{slot}" is in use by another connection',
        "Stop that consumer, or use another slot.",
    ),
    _LIMIT_EXCEEDED: (
        "no replication slot left (max_replication_slots)",
        "Drop one that is not needed, SELECT pg_drop_replication_slot('...');, or run ALTER SYSTEM "
        "SET max_replication_slots to a higher number and restart the server.",
    ),
    _NO_PRIVILEGE: (
        "the role lacks a privilege",
        "A publication for tables needs CREATE on the database and the ownership of the tables, "
        "one for all tables a superuser, a slot the REPLICATION attribute. Have an administrator "
        "create them, or grant the privilege.",
    ),
    _WRONG_STATE: (
        'replication slot "{slot}" cannot be decoded',
        "If it was invalidated, drop it, create it again and copy the tables again.",
    ),
    _UNDEFINED_OBJECT: (
        "an object does not exist",
        "A publication has to exist before the changes that are decoded with it. If it was created "
        'after slot "{slot}", drop the slot and create it again.',
    ),
    _UNTRANSLATABLE: (
        "a character of the database's encoding does not exist in UTF-8",
        "The server sends no row with it. If a row of a table has it, change the value, and take "
        "the snapshot again. If a change of the stream has it, change the value, and capture into "
        "a new log with a snapshot and a new slot.",
    ),
    CONNECTION_LOST: (
        "the connection was lost",
        f"{_REOPEN} A consumer that pauses longer than the server's wal_sender_timeout has to call "
        "keepalive() meanwhile.",
    ),
    _SHUTDOWN: _ENDED,
    _NOTHING: _ENDED,
}


def is_transient(sqlstate: str) -> bool:
    """Return whether a later attempt may succeed after an error with this code."""
    if sqlstate == _LIMIT_EXCEEDED:  # in the class of lacking resources, but a setting
        return False
    return sqlstate == _NOTHING or sqlstate.startswith(_TRANSIENT)


def capture_error(error: Any, slot: str) -> CaptureError:
    """Return the ``CaptureError`` for a ``psycopg2.Error`` of a statement."""
    import psycopg2

    text = str(error).strip()
    if error.pgcode:
        diag = error.diag
        if diag.message_primary:
            text = server_text(diag.message_primary, diag.message_detail, diag.context)
        return capture_error_of_code(error.pgcode, text, slot, diag.message_hint)
    # libpq's own errors have no code, and not always a class of their own: the connection is gone.
    lost = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)
    if lost or type(error) is psycopg2.DatabaseError:
        return capture_error_of_code(CONNECTION_LOST, text, slot)
    return CaptureError(text)


def server_text(primary: str, detail: str | None, context: str | None) -> str:
    """Return a server's error in one line, without its hint."""
    more = "; ".join(" ".join(part.split()) for part in (detail, context) if part)
    return f"{primary} ({more})" if more else primary


def capture_error_of_code(
    sqlstate: str, text: str, slot: str, server_hint: str | None = None
) -> CaptureError:
    """Return the ``CaptureError`` for a SQLSTATE and the server's text, which may be empty."""
    primary, hint = "the server reported an error", server_hint
    if sqlstate in _EXPLANATIONS:
        primary, hint = (each.format(slot=slot) for each in _EXPLANATIONS[sqlstate])
    if _TOO_LARGE.search(text):
        primary, hint = "the server cannot send a row, which exceeds 1 GB", _TOO_LARGE_HINT
    stops_without_standby = _STANDBY_SLOTS in text
    if stops_without_standby:
        primary = "the server ended the stream"
        hint = (
            f"The server was stopped while a standby that {_STANDBY_SLOTS} names did not follow "
            f"it. {_REOPEN}"
        )
    return CaptureError(
        f"{primary}: {text}" if text else primary,
        hint=hint,
        is_transient=stops_without_standby or is_transient(sqlstate),
        sqlstate=sqlstate or CONNECTION_LOST,
    )
