"""The load of a soak: pgbench, and the workload of the crash tests, with tables that stay small."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg2

from tests.crash.random_workload import DDL, Workload, passes
from tests.support.servers import Database

#: Columns by which rows are found, of the tables whose key is not ``id``.
KEYS = {"pgbench_accounts": "aid", "pgbench_branches": "bid", "pgbench_tellers": "tid"}
#: Tables that are only inserted into: the log has an insert of each of their rows.
INSERTED_ONLY = ("journal", "pgbench_history")

_CLIENTS = 2
_RATE = 20  # transactions of pgbench in a second
_PACE = 1.0  # of the crash tests' workers
_ROWS_OF_WORKER = 3000
_TRIM_SECONDS = 15.0
_TRIM = """
DELETE FROM {table} WHERE id IN (SELECT id FROM (
    SELECT id, row_number() OVER (PARTITION BY id / 1000000000 ORDER BY id DESC) AS place
    FROM {table}
) ranked WHERE place > {rows})
"""


def create_tables(made: Database, pgbench: Path, scale: int = 1) -> None:
    """Create the tables of the load, pgbench's with a scale, and a publication of all."""
    command: list[str | Path] = [pgbench, "-i", "-q", "-s", str(scale), made.dsn]
    subprocess.run(command, check=True, capture_output=True)
    made.execute(
        DDL,
        "ALTER TABLE pgbench_history ADD COLUMN id bigserial PRIMARY KEY",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )


class Load:
    """The load, until the ``with`` block ends; it survives the server's restarts."""

    def __init__(self, made: Database, seed: int, pgbench: Path, folder: Path) -> None:
        self._workload = Workload(made.dsn, seed, _PACE)
        command: list[str | Path] = [
            pgbench, "--no-vacuum", "--client", str(_CLIENTS), "--rate", str(_RATE),
            "--time", "100000", made.dsn,
        ]  # fmt: skip
        self._stopping = threading.Event()
        self._threads = [
            _Repeated("pgbench", self._stopping, 0.5, lambda: self._bench(command, folder)),
            _Repeated("trim", self._stopping, _TRIM_SECONDS, lambda: _trim(made.dsn)),
        ]
        self._running = ExitStack()

    def __enter__(self) -> Load:
        self._running.enter_context(self._workload)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._running.close()
        self.check()

    def check(self) -> None:
        """Raise the error of a client that ended."""
        for thread in self._threads:
            if thread.failed is not None:
                raise thread.failed

    def _bench(self, command: list[str | Path], folder: Path) -> None:
        """Run pgbench until the server is away."""
        with (
            (folder / "pgbench.out").open("ab") as out,
            subprocess.Popen(command, stdout=out, stderr=out) as process,
        ):
            while process.poll() is None and not self._stopping.wait(0.2):
                pass
            process.kill()


class _Repeated(threading.Thread):
    """Thread that repeats an action, unless it fails with an error that does not pass."""

    def __init__(
        self, name: str, stopping: threading.Event, pause: float, action: Callable[[], None]
    ) -> None:
        super().__init__(name=name)
        self.failed: Exception | None = None
        self._stopping = stopping
        self._pause = pause
        self._action = action

    def run(self) -> None:
        while not self._stopping.wait(self._pause):
            try:
                self._action()
            except psycopg2.Error as error:
                if not passes(error):
                    self.failed = error
                    return
            except Exception as error:  # noqa: BLE001  (raised by the load)
                self.failed = error
                return


def _trim(dsn: str) -> None:
    """Delete the oldest rows of the tables that grow."""
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("SET lock_timeout = '2s'")
        for table in ("accounts", "notes"):
            cursor.execute(_TRIM.format(table=table, rows=_ROWS_OF_WORKER))
