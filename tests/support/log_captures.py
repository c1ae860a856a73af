"""Captures into logs, and the contents of those logs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec import log
from pgwire_codec.capture import LogCapture, capture
from pgwire_codec.capture.start_replication import start_replication
from pgwire_codec.protocol.lsn import parse_lsn
from tests.support.keyed_rows import AppliedTable
from tests.support.servers import Database


def warn_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server send a warning in each walsender's session, before the stream."""

    def start(connection: Any, *arguments: Any) -> Any:
        connection.cursor().execute("DO $$BEGIN RAISE WARNING 'I warn'; END$$")
        return start_replication(connection, *arguments)

    monkeypatch.setattr(capture, "start_replication", start)


def capture_into(made: Database, folder: Path, **options: Any) -> LogCapture:
    """Return a capture of the database's slot and publication, if no ``options`` name another."""
    if "options" not in options:
        options.setdefault("publication", made.publication)
    return LogCapture(made.dsn, folder, **{"slot": made.slot, **options})


@contextmanager
def running(capture: LogCapture, **limits: Any) -> Iterator[list[BaseException]]:
    """Run the capture in a thread and stop it at the end; yield its errors."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            capture.run(**limits)
        except Exception as error:  # noqa: BLE001  (looked at by the test)
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        capture.stop()
        thread.join(20)
        assert not thread.is_alive()


def flush_lsn(made: Database) -> int:
    """Return the end of the server's flushed WAL."""
    [(lsn,)] = made.query("SELECT pg_current_wal_flush_lsn()")
    return parse_lsn(lsn)


def slots(made: Database) -> list[str]:
    """Return the slots of the database."""
    rows = made.query(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )
    return [name for (name,) in rows]


def messages(folder: Path) -> list[bytes]:
    """Return every message of a log, in order."""
    return [
        message for batch in log.Log(folder).messages() for message in batch["data"].to_pylist()
    ]


def decoded(folder: Path, table: str, **options: Any) -> Iterator[dict[str, Any]]:
    """Yield the committed changes of a table, as rows."""
    for changes in log.Log(folder).changes(**options):
        for batch in changes.batches:
            if f"{batch.relation.namespace}.{batch.relation.name}" == table:
                yield from pa.record_batch(batch.to_arrow()).to_pylist()


def applied(folder: Path, table: str, *key: str, **options: Any) -> AppliedTable:
    """Return a table after the log's changes; fail if a change occurs twice."""
    changes = list(decoded(folder, table, **options))
    places = Counter((change["_commit_lsn"], change["_seq"]) for change in changes)
    assert not {place: count for place, count in places.items() if count > 1}
    result = AppliedTable(key)
    result.apply(changes)
    return result
