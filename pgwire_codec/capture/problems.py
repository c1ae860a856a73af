"""What the server's error codes mean for a capture, and what to do about each."""

from __future__ import annotations

from typing import Any, Final

from pgwire_codec.errors import CaptureError

_OBJECT_IN_USE: Final = "55006"
_LIMIT_EXCEEDED: Final = "53400"
_NO_PRIVILEGE: Final = "42501"
_WRONG_STATE: Final = "55000"
_UNDEFINED_OBJECT: Final = "42704"
_CONNECTION_LOST: Final = "08006"
_SHUTDOWN: Final = "57P01"

_ENDED: Final = (
    "The server ended the stream, as when it shuts down. Open the capture again: what was not "
    "confirmed is sent again."
)


def explain(error: Any, slot: str) -> CaptureError:
    """Turn a ``psycopg2.Error`` of a statement into a ``CaptureError``."""
    return explain_code(error.pgcode or "", str(error).strip(), slot)


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
        _CONNECTION_LOST: (
            "Open the capture again: what was not confirmed is sent again. Where a consumer "
            "pauses longer than the server's wal_sender_timeout, let it call keepalive() "
            "meanwhile."
        ),
        _SHUTDOWN: _ENDED,
        "": _ENDED,
    }.get(sqlstate, "")
    words = f"The server said: {said}" if said else ""
    return CaptureError(" ".join(part for part in (advice, words) if part))
