"""MirrorMetrics: the metrics of mirrors, by table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.metrics import instruments as i
from pgwire_codec.metrics.observed import Observed, Values, by_name, get_meter, single

if TYPE_CHECKING:
    from pgwire_codec.capture.lag import Lag
    from pgwire_codec.lake.mirror_options import MirroredBatch
    from pgwire_codec.lake.mirroring import Mirror
    from pgwire_codec.lake.status import TableStatus
    from pgwire_codec.metrics.log_watch import LogWatch

_STATES: Final = (
    "ok", "incomplete", "modified", "retrying", "set aside", "resuming", "replaying", "gone",
)  # fmt: skip


class MirrorWatch:
    """A mirror whose metrics are collected, and its health.

    Attributes
    ----------
    name : str
        Its target.
    batches : int
        Micro-batches applied.
    until : int or None
        Commit LSN up to which all tables are complete that do not fail.
    tables : mapping of str to TableStatus
        Status of each table.
    changes, errors : Counter
        Changes applied to each table, and the number of times that it was set aside.
    """

    def __init__(self, name: str, log: LogWatch) -> None:
        self.name = name
        self.log = log
        self.batches = 0
        self.until: int | None = None
        self.tables: Mapping[str, TableStatus] = {}
        self.changes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._mirror: Mirror | None = None

    def known(self, tables: Iterable[TableStatus]) -> None:
        """Take the status of tables, of an earlier run of the mirror."""
        self.tables = {each.table: each for each in tables}

    def report(self, batch: MirroredBatch) -> None:
        """Take the result of a micro-batch: pass this as ``report`` to ``mirror``."""
        self.batches += 1
        self.until = batch.until
        changes, errors = Counter(self.changes), Counter(self.errors)  # others read them meanwhile
        for table in batch.changed:
            changes[table.table] += table.changes
            errors[table.table] += table.state == "set aside"
        self.changes, self.errors = changes, errors
        self.known(batch.tables)

    @contextmanager
    def running(self, mirror: Mirror) -> Iterator[None]:
        """Watch a mirror inside of the context."""
        self._mirror = mirror
        try:
            yield
        finally:
            self._mirror = None

    @property
    def active(self) -> bool:
        """True while the mirror runs."""
        mirror = self._mirror
        return mirror is not None and mirror.isActive

    def lag(self, table: TableStatus) -> Lag | None:
        """Return how far the log is ahead of a table; None if no table has the name now."""
        return None if table.state == "gone" else self.log.lag(table)

    @property
    def failure(self) -> str | None:
        """None: an error ends the mirror."""
        return None

    @property
    def unreadiness(self) -> str | None:
        """Reason for which the mirror does not apply changes now, if there is one."""
        return None if self.active else "the mirror does not run"


def _of_tables(watch: MirrorWatch, read: Callable[[TableStatus], float | None]) -> Values:
    return by_name({name: read(table) for name, table in watch.tables.items()})


def _states(watch: MirrorWatch) -> Values:
    return {
        (name, state): float(table.state == state)
        for name, table in watch.tables.items()
        for state in _STATES
    }


def _lag(watch: MirrorWatch, name: str) -> Values:
    lags = {table.table: watch.lag(table) for table in watch.tables.values()}
    return by_name({table: getattr(lag, name) for table, lag in lags.items() if lag is not None})


#: Values of each instrument.
READINGS: Final[Mapping[i.Instrument, Callable[[MirrorWatch], Values]]] = {
    i.MIRROR_ACTIVE: lambda watch: single(float(watch.active)),
    i.MIRROR_BATCHES: lambda watch: single(watch.batches),
    i.MIRROR_LSN: lambda watch: single(watch.until),
    i.LOG_LSN: lambda watch: single(watch.log.end_lsn),
    i.LOG_AGE: lambda watch: single(watch.log.age),
    i.LOG_ERRORS: lambda watch: by_name(watch.log.errors),
    i.TABLE_STATE: _states,
    i.TABLE_CHANGES: lambda watch: by_name(watch.changes),
    i.TABLE_ERRORS: lambda watch: by_name(watch.errors),
    i.TABLE_DEAD_LETTERS: lambda watch: _of_tables(watch, lambda table: table.dead_letters),
    i.TABLE_LSN: lambda watch: _of_tables(watch, lambda table: table.complete_lsn),
    i.TABLE_LAG_BYTES: lambda watch: _lag(watch, "bytes"),
    i.TABLE_LAG_SECONDS: lambda watch: _lag(watch, "seconds"),
}


class MirrorMetrics:
    """OpenTelemetry metrics of mirrors, each with its target as an attribute.

    Parameters
    ----------
    meter_provider : opentelemetry.metrics.MeterProvider, optional
        By default the global one. Make one object for all mirrors of a provider.

    Raises
    ------
    MissingExtraError
        When OpenTelemetry's API is not installed.

    Examples
    --------
    >>> with MirrorMetrics().watch("shop.log", "/lake/shop") as watch:
    ...     running = mirror(spark, "shop.log", "/lake/shop", report=watch.report)
    ...     with watch.running(running):
    ...         running.run()
    """

    def __init__(self, meter_provider: Any = None) -> None:
        self._observed = Observed(get_meter(meter_provider), READINGS)

    @contextmanager
    def watch(self, log: str, target: str) -> Iterator[MirrorWatch]:
        """Have the metrics of a mirror collected inside of the context.

        Parameters
        ----------
        log : str
            Location of its log, whose end is read every 10 seconds.
        target : str
            Its target.
        """
        from pgwire_codec.metrics.log_watch import LogWatch

        with LogWatch(log) as samples:
            watch = MirrorWatch(target, samples)
            with self._observed.watching(watch):
                yield watch
