"""Instruments whose values are read when a reader collects them, so that they cost nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Generic, Protocol, TypeVar

from pgwire_codec.errors import missing_extra
from pgwire_codec.metrics.instruments import Instrument

#: Values of an instrument by the values of its attributes, except for the subject's own one.
Values = Mapping[tuple[str, ...], float]


class Subject(Protocol):
    """A capture or a mirror, with the value of its attribute in all metrics."""

    name: str


S = TypeVar("S", bound=Subject)


def load_metrics_api() -> Any:
    """Import OpenTelemetry's metrics API.

    Raises ``MissingExtraError`` when it is not installed.
    """
    try:
        from opentelemetry import metrics
    except ImportError as error:
        raise missing_extra("metrics need opentelemetry-api", "metrics") from error
    return metrics


def get_meter(meter_provider: Any) -> Any:
    """Return the meter of this package, of a provider or of the global one."""
    return load_metrics_api().get_meter(
        "pgwire_codec", version("pgwire-codec"), meter_provider=meter_provider
    )


def single(value: float | None) -> Values:
    """Return the values of an instrument without attributes; None: it has no value now."""
    return {} if value is None else {(): +value}  # a number also for a bool


def one_of(present: str | None, names: Iterable[str]) -> Values:
    """Return 1 for the present one of some names, and 0 for the others."""
    return {} if present is None else {(name,): float(name == present) for name in names}


def by_name(values: Mapping[str, float | None]) -> Values:
    """Return the values of an instrument with one attribute; None: it has no value now."""
    return {(name,): value for name, value in values.items() if value is not None}


class Observed(Generic[S]):
    """Subjects of the same kind, and the instruments that are read from them.

    Parameters
    ----------
    meter : opentelemetry.metrics.Meter
    readings : mapping of Instrument to callable
        Function that returns the values of an instrument for a subject.
    """

    def __init__(self, meter: Any, readings: Mapping[Instrument, Callable[[S], Values]]) -> None:
        self._subjects: list[S] = []
        self._observation = load_metrics_api().Observation
        for instrument, read in readings.items():
            create = getattr(meter, f"create_observable_{instrument.kind}")
            callback = self._callback(instrument, read)
            create(instrument.name, [callback], instrument.unit, instrument.description)

    @contextmanager
    def watching(self, subject: S) -> Iterator[None]:
        """Have a subject observed inside of the context."""
        self._subjects = [*self._subjects, subject]  # readers collect in other threads
        try:
            yield
        finally:
            self._subjects = [each for each in self._subjects if each is not subject]

    def _callback(self, instrument: Instrument, read: Callable[[S], Values]) -> Any:
        own, *names = instrument.attributes

        def observe(_: Any) -> Iterator[Any]:
            for subject in self._subjects:
                for key, value in read(subject).items():
                    attributes = {own: subject.name, **dict(zip(names, key, strict=True))}
                    yield self._observation(value, attributes)

        return observe
