"""A reader that applies a log to tables in memory while it grows and is pruned."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from pgwire_codec import format_lsn, log
from tests.soak.load import INSERTED_ONLY, KEYS
from tests.support import shop_rows
from tests.support.keyed_rows import AppliedTable, differences
from tests.support.servers import Database

_SECONDS = 5.0  # between two readings
_SHOWN = 3  # differences of a table


class LogFollower:
    """Applies each change once, in commit order, and keeps its position for the retention.

    Attributes
    ----------
    transactions, changes : int
        Number of those that were read. A transaction of the snapshot counts as one.
    faults : list of str
        Changes that the log has more than once, or whose row is missing.
    """

    def __init__(self, folder: Path, position: Path) -> None:
        self.transactions = self.changes = 0
        self.faults: list[str] = []
        self.failed: Exception | None = None
        self._folder = folder
        self._position = position
        self._log: log.Log | None = None
        self._end: log.LogPosition | None = None
        self._tables: dict[str, AppliedTable] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower")
        position.write_text(format_lsn(0))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise the error that ended the reading, or a fault."""
        if self.failed is not None:
            raise self.failed
        assert not self.faults, "\n".join(self.faults[:_SHOWN])

    def advance(self) -> None:
        """Apply what the log has more."""
        if self._log is None:
            self._log = log.Log(self._folder)
        self._log.refresh()
        end = self._log.end
        by_table: dict[str, list[dict[str, Any]]] = {}
        places: Counter[tuple[int, int, str]] = Counter()
        for batch in self._log.read(types="text", after=self._end, until=end):
            name = batch.relation.name
            for row in pa.record_batch(batch.to_arrow()).to_pylist():
                by_table.setdefault(name, []).append(row)
                places[row["_commit_lsn"], row["_seq"], name] += 1
        self.faults += [f"twice: {place}" for place, count in places.items() if count > 1]
        if self._end is not None:
            early = [place for place in places if place[0] <= self._end.lsn]
            self.faults += [f"read before: {place}" for place in early]
        for name, rows in by_table.items():
            table = self._tables.setdefault(name, AppliedTable((KEYS.get(name, "id"),)))
            try:
                table.apply(rows)
            except KeyError as error:
                self.faults.append(f"{name}: a change of a row {error} that no change has made")
        self.changes += places.total()
        self.transactions += len({lsn for lsn, _, _ in places})
        self._end = end
        following = self._position.with_suffix(".new")
        following.write_text(format_lsn(end.lsn))
        following.rename(self._position)

    def differences(self, made: Database) -> list[str]:
        """Compare with the server's rows."""
        names = made.query(
            "SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'p' ORDER BY 1"
        )
        found = []
        for (name,) in names:
            table = self._tables.get(name, AppliedTable((KEYS.get(name, "id"),)))
            server = shop_rows.rows(made.dsn, f"public.{name}")
            columns = list(server[0]) if server else []
            applied = AppliedTable(table.key)
            # Rows have the columns of their last change.
            applied.rows = {
                tuple(row[each] for each in table.key): {each: row.get(each) for each in columns}
                for row in table.rows.values()
            }
            differing = differences(applied, server)
            found += [f"{name}: {each}" for each in differing[:_SHOWN]]
            if len(differing) > _SHOWN:
                found.append(f"{name}: {len(differing)} rows differ")
            only_inserts = {"I": len(server), "U": 0, "D": 0, "T": 0}
            if name in INSERTED_ONLY and table.counts != only_inserts:
                found.append(f"{name} has {len(server)} rows, and the log {table.counts}")
        return found

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_SECONDS):
                self.advance()
        except Exception as error:  # noqa: BLE001  (raised by check)
            self.failed = error
