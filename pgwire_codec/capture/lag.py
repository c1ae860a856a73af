"""How far a log is behind its server."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.batch import UNIX_EPOCH_OFFSET
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn

if TYPE_CHECKING:
    from pgwire_codec.capture.status import Status

_KEPT: Final = 4096  # samples


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a log is behind.

    Attributes
    ----------
    bytes : int
        WAL that the server has flushed and that is not confirmed yet; other databases' too.
    seconds : float
        How long ago, by the server's clock, it was at the place that is confirmed.
    """

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Where the server was, and when by its clock (seconds since 1970)."""

    lsn: int
    time: float


class Samples:
    """Where a server was at which time. No I/O."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_KEPT)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def lag(self, confirmed_lsn: int, commit_time: int | None) -> Lag | None:
        """Give the lag of who has confirmed so much; None before the first sample.

        ``commit_time``, of the last transaction received, in microseconds since 2000, says more
        than the samples do where these have only begun.
        """
        samples = tuple(self._samples)  # another thread adds to them
        if not samples:
            return None
        newest = samples[-1]
        if newest.lsn <= confirmed_lsn:
            return Lag(0, 0.0)
        reached = [sample.time for sample in samples if sample.lsn <= confirmed_lsn][-1:]
        if commit_time is not None:
            reached.append(commit_time / 1e6 + UNIX_EPOCH_OFFSET)
        since = max(reached, default=samples[0].time)
        return Lag(newest.lsn - confirmed_lsn, max(0.0, newest.time - since))


class LagMeter:
    """Asks a server again and again where it is: in a thread, over a connection of its own.

    A context manager. While the server cannot be asked there is no new sample.

    Parameters
    ----------
    dsn : str
        Of the database.
    interval : float
        Seconds between two questions.
    """

    def __init__(self, dsn: str, interval: float = 1.0) -> None:
        self._dsn = dsn
        self._interval = interval
        self._failures = (CaptureError, load_psycopg2().Error)
        self._samples = Samples()
        self._stopping = threading.Event()
        # A daemon: an answer that does not come keeps no process alive.
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def __enter__(self) -> LagMeter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()

    def measure(self, status: Status) -> Lag | None:
        """Return the lag of a capture; None until the server was asked and the slot was found."""
        if status.confirmed_lsn is None:
            return None
        return self._samples.lag(status.confirmed_lsn, status.commit_time)

    def _run(self) -> None:
        connection: Any = None
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = connect(self._dsn)
                cursor = connection.cursor()
                cursor.execute(
                    "SELECT pg_current_wal_flush_lsn(),"
                    " extract(epoch FROM clock_timestamp())::float8"
                )
                lsn, time = cursor.fetchone()
                self._samples.add(Sample(parse_lsn(lsn), time))
            except self._failures:  # the capture tells of them
                connection = None
            self._stopping.wait(self._interval)
        if connection is not None:
            connection.close()
