"""Results of a run, read from the JSON that pytest-benchmark wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
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
    sizes: list[dict[str, int]] = field(default_factory=list)

    @property
    def rows_per_call(self) -> int:
        """Number of rows in one call."""
        return 1 if self.step == "decode_message" else self.batch or self.rows

    @property
    def rows_per_second(self) -> float:
        """Rows per second of CPU time, which is the clock's for a thread on an idle machine."""
        return self.rows / median(self.cpu_seconds)

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / median(self.cpu_seconds)

    @property
    def ratio(self) -> float | None:
        """Seconds of the step measured beside this one, for each second of this one."""
        pairs = zip(self.beside_cpu_seconds, self.cpu_seconds, strict=False)
        return _median([beside / seconds for beside, seconds in pairs])

    @property
    def clock_rows_per_second(self) -> float:
        return self.rows / median(self.seconds)

    @property
    def clock_ratio(self) -> float | None:
        """As :attr:`ratio`, by the clock: for steps with more than one thread."""
        pairs = zip(self.beside_seconds, self.seconds, strict=False)
        return _median([beside / seconds for beside, seconds in pairs])


@dataclass(frozen=True)
class Run:
    """All results of a run."""

    results: list[Result]
    machine: dict[str, Any]
    size: str
    date: str

    @classmethod
    def read(cls, path: Path) -> Run:
        run = json.loads(path.read_text("utf-8"))
        known = {each.name for each in fields(Result)}  # another version's run can have others
        results = [
            Result(
                seconds=each["stats"]["data"],
                **{name: value for name, value in each["extra_info"].items() if name in known},
            )
            for each in run["benchmarks"]
        ]
        return cls(results, run["machine_info"], run["size"], run["datetime"][:10])

    def find(self, **attributes: object) -> Result | None:
        """Return the first result with these attributes, or None."""
        return next(iter(self.select(**attributes)), None)

    def select(
        self, key: Callable[[Result], Any] | None = None, **attributes: object
    ) -> list[Result]:
        """Return the results with these attributes, in the order of the run or of a key."""
        found = [
            each
            for each in self.results
            if all(getattr(each, name) == value for name, value in attributes.items())
        ]
        return sorted(found, key=key) if key else found

    def lineitem(self, who: str, step: str, form: str, batch: int) -> Result | None:
        """Return a step on lineitem, with this number of rows a call if there is one."""
        found = self.select(table="lineitem", who=who, step=step, form=form, kind="speed")
        found = [each for each in found if each.operation in ("insert", "select")]
        return next((each for each in found if each.batch == batch), found[0] if found else None)

    def to_reference(self, result: Result) -> float | None:
        """Return a result's speed relative to the reference, or None if it did not do the same."""
        if result.who != "cython" or result.kind != "speed":
            return None
        same = {name: getattr(result, name) for name in ("step", "table", "form", "operation")}
        other = self.find(who="reference", **same)
        return None if other is None else result.rows_per_second / other.rows_per_second

    def to_adbc(self, result: Result) -> float | None:
        """Return a result's speed relative to adbc, or None unless all of lineitem was decoded."""
        other = self.find(who="adbc")
        whole = result.step in ("decode", "to_arrow") and result.operation == "insert"
        if other is None or not whole or result.table != "lineitem" or result.who != "cython":
            return None
        return result.rows_per_second / other.rows_per_second


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
