"""Numbers, sizes, durations and times as people read them."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

_SIZES: Final = ("B", "kB", "MB", "GB", "TB")
_DURATIONS: Final = (
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "µs"),
)


def number(value: int) -> str:
    """Write a whole number with separators of thousands."""
    return f"{value:,}"


def many(value: int, one: str, more: str | None = None) -> str:
    """Write how many: ``1 table``, ``2 tables``."""
    return f"{value:,} {one if value == 1 else more or one + 's'}"


def size(value: float) -> str:
    """Write bytes with three digits or so, in powers of 1000."""
    unit = 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value /= 1000
        unit += 1
    return f"{value:,.{0 if unit == 0 or value >= 99.95 else 1}f} {_SIZES[unit]}"


def duration(microseconds: float) -> str:
    """Write a duration with three digits or so: ``12.5 ms``, ``2 h``."""
    for unit, name in _DURATIONS:
        if microseconds >= unit:
            value = f"{microseconds / unit:.{0 if microseconds >= 100 * unit else 1}f}"
            return f"{value.removesuffix('.0')} {name}"
    return "0 s"


def moment(microseconds: int, unit: Literal["m", "s", "ms"] = "s") -> str:
    """Write a time in UTC, to the second or what numpy's ``unit`` says."""
    time = np.datetime64(microseconds, "us").astype(f"datetime64[{unit}]")
    return str(time).replace("T", " ")


def share(part: float, whole: float) -> str:
    """Write a part of a whole in percent."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.{0 if percent in (0, 100) else 1}f} %"
