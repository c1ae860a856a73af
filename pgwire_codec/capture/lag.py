"""Lag of a log: how far its server's WAL is ahead of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.slot_status import SlotStatus, read_blocker
from pgwire_codec.capture.status import code_of
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.epoch import unix_microseconds
from pgwire_codec.protocol.lsn import parse_lsn

if TYPE_CHECKING:
    from pgwire_codec.capture.status import Status

_KEPT: Final = 4096  # samples


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a log.

    Attributes
    ----------
    bytes : int
        WAL that the server has flushed and that is not yet confirmed, of all its databases.
    seconds : float
        Time since the server's WAL ended at the confirmed LSN, by the server's clock.
    """

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """End of a server's WAL at a time of its clock (seconds since 1970)."""

    lsn: int
    time: float


class Samples:
    """Recent samples of a server. No I/O."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_KEPT)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def lag(self, confirmed_lsn: int, commit_time: int | None) -> Lag | None:
        """Return the lag of a log that has confirmed this LSN; None before the first sample.

        ``commit_time``, of the last transaction received, in microseconds since 2000, is a better
        estimate if the samples have only begun.
        """
        samples = tuple(self._samples)  # another thread adds to them
        if not samples:
            return None
        newest = samples[-1]
        if newest.lsn <= confirmed_lsn:
            return Lag(0, 0.0)
        reached = [sample.time for sample in samples if sample.lsn <= confirmed_lsn][-1:]
        if commit_time is not None:
            reached.append(unix_microseconds(commit_time) / 1e6)
        since = max(reached, default=samples[0].time)
        return Lag(newest.lsn - confirmed_lsn, max(0.0, newest.time - since))


class LagMeter:
    """Samples of a server's WAL position, taken by a thread over a connection of its own.

    A context manager. No sample is added while the server does not answer.

    Parameters
    ----------
    dsn : str
        Of the database.
    slot : str, optional
        Name of a replication slot whose status is read, too.
    interval : float
        Seconds between two samples.

    Attributes
    ----------
    slot_status : SlotStatus or None
        That of the last sample; None if the slot did not exist.
    errors : mapping of str to int
        Number of failed samples by their code; see :attr:`Status.errors`.
    """

    def __init__(self, dsn: str, slot: str | None = None, interval: float = 1.0) -> None:
        self.slot_status: SlotStatus | None = None
        self.errors: Mapping[str, int] = {}
        self._dsn = dsn
        self._slot = slot
        self._interval = interval
        self._sampled = monotonic()
        self._failures = (CaptureError, load_psycopg2().Error)
        self._samples = Samples()
        self._stopping = threading.Event()
        # A daemon: a server that does not answer keeps no process alive.
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def __enter__(self) -> LagMeter:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()

    def measure(self, status: Status) -> Lag | None:
        """Return the lag of a capture; None until the server was sampled and the slot was found."""
        if status.confirmed_lsn is None:
            return None
        return self._samples.lag(status.confirmed_lsn, status.commit_time)

    @property
    def age(self) -> float:
        """Seconds since the last sample was taken, or since the meter was made."""
        return monotonic() - self._sampled

    def _run(self) -> None:
        connection: Any = None
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = connect(self._dsn)
                self._sample(connection.cursor())
            except self._failures as error:  # the capture reports them
                connection = None
                code = code_of(_explained(error))
                self.errors = {**self.errors, code: self.errors.get(code, 0) + 1}
            self._stopping.wait(self._interval)
        if connection is not None:
            connection.close()

    def _sample(self, cursor: Any) -> None:
        sample, self.slot_status = take_sample(cursor, self._slot)
        self._samples.add(sample)
        self._sampled = monotonic()


def take_sample(cursor: Any, slot: str | None) -> tuple[Sample, SlotStatus | None]:
    """Return the end of a server's WAL, and the status of a slot; None if it does not exist."""
    # As JSON: which columns the view has depends on the server's version.
    cursor.execute(
        "SELECT pg_current_wal_flush_lsn(), extract(epoch FROM clock_timestamp())::float8,"
        " (SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s)",
        (slot,),
    )
    end, time, row = cursor.fetchone()
    lsn = parse_lsn(end)
    status = None if row is None else SlotStatus.of(row, lsn, read_blocker(cursor, row))
    return Sample(lsn, time), status


def read_slot(dsn: str, slot: str) -> tuple[Sample, SlotStatus | None]:
    """Return the same over a connection of its own; raise ``CaptureError`` if that fails."""
    with closing(connect(dsn)) as connection, connection.cursor() as cursor:
        try:
            return take_sample(cursor, slot)
        except load_psycopg2().Error as error:
            raise capture_error(error, slot) from error


def _explained(error: Exception) -> Exception:
    return error if isinstance(error, CaptureError) else capture_error(error, "")
