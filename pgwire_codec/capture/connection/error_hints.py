"""What the server's error codes mean for a capture, and what to do about each."""

from __future__ import annotations

from typing import Any, Final

from pgwire_codec.errors import CaptureError

_OBJECT_IN_USE: Final = "55006"
_LIMIT_EXCEEDED: Final = "53400"
_NO_PRIVILEGE: Final = "42501"
_WRONG_STATE: Final = "55000"
_UNDEFINED_OBJECT: Final = "42704"
_SHUTDOWN: Final = "57P01"
_NOTHING: Final = ""  # the stream ended, or the connection failed, without a word of the server

#: What a connection breaks off with that was up; also given where libpq says so.
CONNECTION_LOST: Final = "08006"

#: Codes, and classes of codes, of what goes by itself: connections that break, a server that
#: starts, stops, or is out of something, a slot that its last walsender still holds, a statement
#: or walsender that an administrator ended.
_TRANSIENT: Final = (
    "08", "25P03", "40", _OBJECT_IN_USE, "55P03", "53", "57014", "57P01", "57P02", "57P03", "57P05",
)  # fmt: skip

_ENDED: Final = (
    "The server ended the stream, as when it shuts down. Open the capture again: what was not "
    "confirmed is sent again."
)


def is_transient(sqlstate: str) -> bool:
    """Whether what the code stands for may go by itself."""
    if sqlstate == _LIMIT_EXCEEDED:  # in the class of the lacking resources, but a setting
        return False
    return sqlstate == _NOTHING or sqlstate.startswith(_TRANSIENT)


def explain(error: Any, slot: str) -> CaptureError:
    """Turn a ``psycopg2.Error`` of a statement into a ``CaptureError``."""
    import psycopg2

    said = str(error).strip()
    if error.pgcode:
        return explain_code(error.pgcode, said, slot)
    # What libpq says by itself has no code, and not always a class of its own: the connection is
    # gone.
    lost = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)
    if lost or type(error) is psycopg2.DatabaseError:
        return explain_code(CONNECTION_LOST, said, slot)
    return CaptureError(said)


def explain_code(sqlstate: str, said: str, slot: str) -> CaptureError:
    """Turn a SQLSTATE and the server's words into a ``CaptureError``."""
    advice = {
        _OBJECT_IN_USE: (
            f'Replication slot "{slot}" is in use by another connection. Stop that consumer, or '
            "use another slot."
        ),
        _LIMIT_EXCEEDED: (
            "The server has no replication slot left (max_replication_slots). Drop one that is "
            "not needed, SELECT pg_drop_replication_slot('...');, or run ALTER SYSTEM SET "
            "max_replication_slots to a higher number and restart the server."
        ),
        _NO_PRIVILEGE: (
            "The role lacks a privilege. A publication for tables needs CREATE on the database "
            "and the ownership of the tables, one for all tables a superuser, a slot the "
            "REPLICATION attribute. Let an administrator create them, or grant it."
        ),
        _WRONG_STATE: (
            f'Replication slot "{slot}" cannot be decoded from. Where the server says that it '
            "was invalidated, drop it, create it again and copy the tables anew."
        ),
        _UNDEFINED_OBJECT: (
            "A publication has to exist before the changes that are decoded with it. When it was "
            f'created after slot "{slot}", drop the slot and create it again.'
        ),
        CONNECTION_LOST: (
            "Open the capture again: what was not confirmed is sent again. Where a consumer "
            "pauses longer than the server's wal_sender_timeout, let it call keepalive() "
            "meanwhile."
        ),
        _SHUTDOWN: _ENDED,
        _NOTHING: _ENDED,
    }.get(sqlstate, "")
    words = f"The server said: {said}" if said else ""
    text = " ".join(part for part in (advice, words) if part)
    return CaptureError(text, is_transient=is_transient(sqlstate))
