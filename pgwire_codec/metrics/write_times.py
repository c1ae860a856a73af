"""Times of a log's writer, as histograms, and of the call that it is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any


class RecordedTimes:
    """Records the times of a log's writer. See :class:`pgwire_codec.log.WriteTimes`.

    Parameters
    ----------
    flushes, syncs : opentelemetry.metrics.Histogram
        Seconds of each flush, and of each call that makes a file durable.
    attributes : mapping of str to str
        Of the values.
    """

    def __init__(self, flushes: Any, syncs: Any, attributes: dict[str, str]) -> None:
        self._flushes = flushes
        self._syncs = syncs
        self._attributes = attributes
        self._began: float | None = None  # the write that has not ended

    @property
    def stalled_seconds(self) -> float:
        """Seconds for which a write has not ended; 0 without one."""
        began = self._began
        return 0.0 if began is None else monotonic() - began

    @contextmanager
    def flush(self) -> Iterator[None]:
        began = monotonic()
        yield
        self._flushes.record(monotonic() - began, self._attributes)

    @contextmanager
    def write(self) -> Iterator[None]:
        self._began = monotonic()
        try:
            yield
        finally:
            self._began = None

    @contextmanager
    def sync(self) -> Iterator[None]:
        self._began = began = monotonic()
        try:
            yield
            self._syncs.record(monotonic() - began, self._attributes)
        finally:
            self._began = None
