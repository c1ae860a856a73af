"""A run of the harness: each shape of input by each decoder, and the comparison of two runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

import pyarrow as pa

import pgwire_codec as pgc
from pgwire_codec.bench.measure import measure
from pgwire_codec.bench.peers import PEERS
from pgwire_codec.bench.shapes import Shape, shapes
from pgwire_codec.codec.message_array import to_message_arrays
from pgwire_codec.errors import MissingExtraError

#: Changes that a slow decoder is measured on: the cost of one does not depend on their number.
_FEW: Final = 2_000


@dataclass(frozen=True)
class Result:
    """A shape's cost in nanoseconds a unit, by decoder: medians of the rounds."""

    shape: str
    unit: str
    cost: dict[str, float] = field(default_factory=dict)

    @property
    def of_the_limit(self) -> float | None:
        """The limit's cost as a part of this package's."""
        return self.cost["limit"] / self.cost["pgwire_codec"] if "limit" in self.cost else None


def run(count: int, rounds: int, *, slow: bool = True) -> Iterator[Result]:
    """Yield the result of each shape, of about so many changes.

    With ``slow`` the reference and the peers that are installed are measured, too.
    """
    pa.set_cpu_count(1)
    few = {each.name: each for each in shapes(min(count, _FEW))} if slow else {}
    for shape in shapes(count):
        cost = {"pgwire_codec": _cost(shape, pgc.Decoder, rounds)}
        if shape.changes is not None:
            cost["limit"] = _per_unit(shape, rounds_of(skip_over(shape), rounds))
            if shape.name in few:
                cost |= _slow_ones(few[shape.name])
        yield Result(shape.name, shape.unit, cost)


def skip_over(shape: Shape) -> Callable[[], None]:
    """Return the limit's step: skip over every column of every change.

    Raises ``MissingExtraError`` if the package was installed without compiled modules.
    """
    try:
        from pgwire_codec.bench._limit import skip_columns
    except ImportError as error:
        raise MissingExtraError(
            "the benchmarks need the compiled modules, which this installation lacks",
            hint="Install a wheel, or a C compiler, and install pgwire-codec again.",
        ) from error
    arrays = to_message_arrays(shape.changes, pgc.Decoder.codec)

    def step() -> None:
        for array in arrays:
            skip_columns(array.data, array.offsets)

    return step


def rounds_of(step: Callable[[], None], rounds: int) -> list[float]:
    """Return the CPU seconds of each round of a step, after one unmeasured round."""
    seconds = []
    for _ in range(1 + rounds):
        start = process_time()
        step()
        seconds.append(process_time() - start)
    return seconds[1:]


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "version": version("pgwire-codec"),
        "implementation": pgc.IMPL,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "architecture": platform.machine(),
        "processor": _processor(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def compare(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str, float, float]]:
    """Return shape, unit and both costs of each shape that two runs have in common."""
    old = {each["shape"]: each for each in before}
    return [
        (
            new["shape"],
            new["unit"],
            old[new["shape"]]["cost"]["pgwire_codec"],
            new["cost"]["pgwire_codec"],
        )
        for new in after
        if new["shape"] in old
    ]


def _slow_ones(shape: Shape) -> dict[str, float]:
    cost = {"reference": _cost(shape, pgc.reference.Decoder, 2)}
    for name, peer in PEERS.items():
        step = peer(shape)
        if step is not None:
            cost[name] = _per_unit(shape, rounds_of(step, 2))
    return cost


def _cost(shape: Shape, decoder: Callable[[], Any], rounds: int) -> float:
    to_arrow = shape.step == "to_arrow"
    seconds = measure(decoder, shape.known, shape.calls, to_arrow=to_arrow, rounds=rounds)
    return _per_unit(shape, seconds)


def _per_unit(shape: Shape, seconds: Sequence[float]) -> float:
    return 1e9 * median(seconds) / shape.count


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
