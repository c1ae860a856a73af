"""LogWatch: how far a log is ahead of the tables of its mirror."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pgwire_codec.capture.lag import Lag, Sample, Samples
from pgwire_codec.capture.status import code_of
from pgwire_codec.errors import PgwireError
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from pgwire_codec.spark.log_counts import LogCounts

if TYPE_CHECKING:
    from pgwire_codec.lake.status import TableStatus
    from pgwire_codec.log import Log


class LogWatch:
    """Samples of a log's end, taken by a thread.

    A context manager. A log that cannot be read adds no sample, and an error to :attr:`errors`.

    Parameters
    ----------
    log : str
        Location of the log.
    interval : float
        Seconds between two samples.

    Attributes
    ----------
    end_lsn : int or None
        Commit LSN of the log's last transaction in the last sample.
    errors : mapping of str to int
        Number of failed samples by their code.
    """

    def __init__(self, log: str, interval: float = 10.0) -> None:
        self.end_lsn: int | None = None
        self.errors: Mapping[str, int] = {}
        self._uri = log
        self._interval = interval
        self._log: Log | None = None
        self._samples = Samples()
        self._searched: LogCounts | None = None
        self._first = 0  # end of the log in the first sample
        self._wanted: dict[str, int] = {}  # end of the log when each table was seen to change
        self._sampled = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log watch", daemon=True)

    def __enter__(self) -> LogWatch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()

    @property
    def age(self) -> float:
        """Seconds since the last sample was taken, or since the watch was made."""
        return time.monotonic() - self._sampled

    def lag(self, table: TableStatus) -> Lag | None:
        """Return how far the log is ahead of a table; None before the first sample.

        It is not ahead if it has no changes of the table after the table's LSN.
        """
        if self.end_lsn is None:
            return None
        applied = table.complete_lsn or 0
        if self._wanted.get(table.table, self._first) <= applied:
            return Lag(0, 0.0)
        commit_time = None
        if table.commit_time is not None:
            commit_time = round(table.commit_time.timestamp() * 1e6) - EPOCH_MICROSECONDS
        return self._samples.lag(applied, commit_time)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.sample()
            except PgwireError as error:
                code = code_of(error)
                self.errors = {**self.errors, code: self.errors.get(code, 0) + 1}
            self._stopping.wait(self._interval)

    def sample(self) -> None:
        """Read the log's end, and which tables have changes since the last sample.

        Raises ``PgwireError`` when the log cannot be read.
        """
        from pgwire_codec.log import Log

        if self._log is None:
            self._log = Log(self._uri)
        self._log.refresh()
        end = self._log.end.lsn
        changed = None if self._searched is None else self._searched.changed(self._log)
        if changed is None:
            self._first, self._wanted = end, {}
        else:
            self._wanted = {**self._wanted, **dict.fromkeys(changed, end)}
        self._searched = LogCounts.of(self._log) or self._searched
        self._samples.add(Sample(end, time.time()))
        self.end_lsn = end
        self._sampled = time.monotonic()
