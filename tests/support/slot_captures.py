"""Captures of a slot, and their messages."""

from __future__ import annotations

import time
from typing import Any

from pgwire_codec.capture import Capture
from pgwire_codec.protocol.lsn import parse_lsn
from tests.support.servers import Database


def opened(made: Database, **options: Any) -> Capture:
    """Return a capture of the database's slot and publication, to be entered."""
    return Capture(made.dsn, **{"slot": made.slot, "publication": made.publication, **options})


def read(capture: Capture, **limits: Any) -> list[bytes]:
    """Return all messages up to now."""
    batches = capture.batches(until_lsn=capture.current_lsn(), **limits)
    return [message for batch in batches for message in batch.data]


def tags(messages: list[bytes]) -> bytes:
    """Return the first byte of each message."""
    return b"".join(message[:1] for message in messages)


def confirmed_by_server(made: Database) -> int:
    [(lsn,)] = made.query(
        f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{made.slot}'"
    )
    return parse_lsn(lsn)


def blockers(made: Database) -> list[int]:
    """Return the server's processes that a capture waits for, as to create a slot."""
    rows = made.query(
        "SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity"
        " WHERE application_name = 'pgwire_codec' AND wait_event_type = 'Lock'"
    )
    return [pid for (pid,) in rows]


def wait_until(condition: Any, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
