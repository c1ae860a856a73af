"""What a run measured, as it stands in the JSON that pytest-benchmark wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Result:
    """One measurement; times in seconds, one a round."""

    step: str
    rows: int
    bytes: int
    seconds: list[float]
    cpu_seconds: list[float]
    beside_seconds: list[float]
    beside_cpu_seconds: list[float]
    load: float
    who: str = "cython"
    kind: str = "speed"
    table: str = ""
    form: str = ""
    operation: str = ""
    batch: int | None = None
    of: int = 0
    how: str = ""
    told: list[dict[str, int]] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """Of the CPU's seconds, which one thread on a quiet machine has all of."""
        return self.rows / median(self.cpu_seconds)

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / median(self.cpu_seconds)

    @property
    def ratio(self) -> float | None:
        """How long what was measured beside the step took, for each second of the step."""
        pairs = zip(self.beside_cpu_seconds, self.cpu_seconds, strict=False)
        return _median([beside / seconds for beside, seconds in pairs])

    @property
    def clock_rows_per_second(self) -> float:
        return self.rows / median(self.seconds)

    @property
    def clock_ratio(self) -> float | None:
        """As :attr:`ratio`, by the clock: for what has more than one thread."""
        pairs = zip(self.beside_seconds, self.seconds, strict=False)
        return _median([beside / seconds for beside, seconds in pairs])


@dataclass(frozen=True)
class Run:
    """All of a run."""

    results: list[Result]
    machine: dict[str, Any]
    size: str
    date: str

    @classmethod
    def read(cls, path: Path) -> Run:
        run = json.loads(path.read_text("utf-8"))
        results = [
            Result(seconds=each["stats"]["data"], **each["extra_info"])
            for each in run["benchmarks"]
        ]
        return cls(results, run["machine_info"], run["size"], run["datetime"][:10])

    def find(self, **wanted: object) -> Result | None:
        """Give the result that is as wanted, if there is one."""
        return next(iter(self.select(**wanted)), None)

    def select(self, key: Callable[[Result], Any] | None = None, **wanted: object) -> list[Result]:
        """Give the results that are as wanted, in the order of the run or of a key."""
        found = [
            each
            for each in self.results
            if all(getattr(each, name) == value for name, value in wanted.items())
        ]
        return sorted(found, key=key) if key else found

    def to_reference(self, result: Result) -> float | None:
        """How many times the reference's speed a result is, where both did the same."""
        if result.who != "cython" or result.kind != "speed":
            return None
        same = {name: getattr(result, name) for name in ("step", "table", "form", "operation")}
        other = self.find(who="reference", **same)
        return None if other is None else result.rows_per_second / other.rows_per_second

    def to_adbc(self, result: Result) -> float | None:
        """How many times adbc's speed, where all of lineitem becomes columns."""
        other = self.find(who="adbc")
        whole = result.step in ("decode", "to_arrow") and result.operation == "insert"
        if other is None or not whole or result.table != "lineitem" or result.who != "cython":
            return None
        return result.rows_per_second / other.rows_per_second


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
