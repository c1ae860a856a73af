"""CaptureMetrics: the metrics of captures into logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

from pgwire_codec.capture.status import State
from pgwire_codec.metrics import instruments as i
from pgwire_codec.metrics.health import STALLED_AFTER
from pgwire_codec.metrics.observed import Observed, Values, by_name, get_meter, one_of, single
from pgwire_codec.metrics.write_times import RecordedTimes

if TYPE_CHECKING:
    from pgwire_codec.capture.lag import Lag, LagMeter
    from pgwire_codec.capture.log_capture import LogCapture
    from pgwire_codec.capture.slot_status import SlotStatus
    from pgwire_codec.capture.status import Status

_WAL_STATUSES: Final = ("reserved", "extended", "unreserved", "lost")


class CaptureWatch:
    """A capture whose metrics are collected, and its health.

    Attributes
    ----------
    name : str
        Name of its replication slot.
    """

    def __init__(self, capture: LogCapture, meter: LagMeter, times: RecordedTimes) -> None:
        self.name = capture.slot
        self.meter = meter
        self._capture = capture
        self._times = times

    @property
    def status(self) -> Status:
        """Status of the capture."""
        return self._capture.status

    @property
    def lag(self) -> Lag | None:
        """Lag of its log."""
        return self.meter.measure(self.status)

    @property
    def slot(self) -> SlotStatus | None:
        """Status of its slot on the server."""
        return self.meter.slot_status

    @property
    def stalled_seconds(self) -> float:
        """Seconds for which a write or the receive loop has made no progress."""
        return max(self._times.stalled_seconds, self._capture.stalled_seconds)

    @property
    def failure(self) -> str | None:
        """Reason for which the capture is not healthy, if there is one."""
        if self.stalled_seconds < STALLED_AFTER:
            return None
        return f"no progress for {self.stalled_seconds:.0f} s in the state {self.status.state}"

    @property
    def unreadiness(self) -> str | None:
        """State of the capture, unless it streams."""
        state = self.status.state
        return None if state == "streaming" else state


def _lag(watch: CaptureWatch, name: str) -> Values:
    lag = watch.lag
    return {} if lag is None else single(getattr(lag, name))


def _slot(watch: CaptureWatch, name: str) -> Values:
    slot = watch.slot
    return {} if slot is None else single(getattr(slot, name))


def _wal_status(watch: CaptureWatch) -> Values:
    slot = watch.slot
    return {} if slot is None else one_of(slot.wal_status, _WAL_STATUSES)


#: Values of each instrument that is not a histogram.
READINGS: Final[Mapping[i.Instrument, Callable[[CaptureWatch], Values]]] = {
    i.STATE: lambda watch: one_of(watch.status.state, get_args(State)),
    i.LAG_BYTES: lambda watch: _lag(watch, "bytes"),
    i.LAG_SECONDS: lambda watch: _lag(watch, "seconds"),
    i.CONFIRMED_LSN: lambda watch: single(watch.status.confirmed_lsn),
    i.RECEIVED_LSN: lambda watch: single(watch.status.received_lsn),
    i.MESSAGES: lambda watch: single(watch.status.messages),
    i.MESSAGE_BYTES: lambda watch: single(watch.status.bytes),
    i.TRANSACTIONS: lambda watch: single(watch.status.transactions),
    i.LOG_BYTES: lambda watch: single(watch.status.log_bytes),
    i.LOG_SEGMENTS: lambda watch: single(watch.status.segments),
    i.STALL_SECONDS: lambda watch: single(watch.stalled_seconds),
    i.RECONNECTS: lambda watch: single(max(0, watch.status.connections - 1)),
    i.ERRORS: lambda watch: by_name(watch.status.errors),
    i.NOTICES: lambda watch: by_name(watch.status.notices),
    i.SNAPSHOT_ROWS: lambda watch: single(watch.status.snapshot_rows),
    i.SNAPSHOT_TABLES: lambda watch: single(watch.status.snapshot_tables),
    i.SLOT_ACTIVE: lambda watch: _slot(watch, "active"),
    i.SLOT_WAL_STATUS: _wal_status,
    i.SLOT_SAFE_WAL_SIZE: lambda watch: _slot(watch, "safe_wal_size"),
    i.SLOT_RETAINED: lambda watch: _slot(watch, "retained_bytes"),
    i.MONITOR_AGE: lambda watch: single(watch.meter.age),
    i.MONITOR_ERRORS: lambda watch: by_name(watch.meter.errors),
}


class CaptureMetrics:
    """OpenTelemetry metrics of captures, each with its slot as an attribute.

    Parameters
    ----------
    meter_provider : opentelemetry.metrics.MeterProvider, optional
        By default the global one. Make one object for all captures of a provider.

    Raises
    ------
    MissingExtraError
        When OpenTelemetry's API is not installed.

    Notes
    -----
    Except for the two histograms, values are read from the capture's status when the provider's
    reader collects them. The histograms are recorded with each flush, never with each message.
    """

    def __init__(self, meter_provider: Any = None) -> None:
        meter = get_meter(meter_provider)
        self._observed = Observed(meter, READINGS)
        self._flushes, self._syncs = (
            meter.create_histogram(
                each.name,
                each.unit,
                each.description,
                explicit_bucket_boundaries_advisory=i.SECONDS,
            )
            for each in (i.FLUSH_DURATION, i.SYNC_DURATION)
        )

    @contextmanager
    def watch(self, capture: LogCapture, meter: LagMeter | None = None) -> Iterator[CaptureWatch]:
        """Have the metrics of a capture collected inside of the context; run it there.

        Parameters
        ----------
        capture : LogCapture
        meter : LagMeter, optional
            Meter of its lag that is used elsewhere, too. By default one is made, which connects to
            the server each second.
        """
        times = RecordedTimes(self._flushes, self._syncs, {i.SLOT: capture.slot})
        capture.write_times = times
        with ExitStack() as entered:
            if meter is None:
                meter = entered.enter_context(capture.lag_meter())
            watch = CaptureWatch(capture, meter, times)
            entered.enter_context(self._observed.watching(watch))
            yield watch
