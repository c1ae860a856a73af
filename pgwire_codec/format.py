"""Numbers, byte sizes, durations, times, names and other people's text, as people write them.

LSNs are formatted by :func:`pgwire_codec.format_lsn`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from pgwire_codec.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

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


_SHOWN_NAMES: Final = 10
_SIMILAR: Final = 0.7  # of difflib's ratio


#: Seconds of units of time.
_UNITS: Final = {
    "": 1.0, "ms": 0.001, "millisecond": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86400.0,
    "day": 86400.0,
}  # fmt: skip


def suggest_table(name: str, tables: Iterable[str]) -> str:
    """Return the hint for a table that does not exist: the nearest name, or some of those known.

    Names are ``schema.table``. They are compared without their schemas and in lower case.
    """
    from difflib import get_close_matches

    known = sorted(tables)
    bare = {each: each.rpartition(".")[2].lower() for each in known}
    similar = get_close_matches(name.rpartition(".")[2].lower(), bare.values(), 1, _SIMILAR)
    if similar:
        nearest = next(each for each in known if bare[each] == similar[0])
        return f"Did you mean {nearest}?"
    more = len(known) - _SHOWN_NAMES
    names = ", ".join(known[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")
    return f"Their tables: {names or 'none'}."


def format_number(value: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{value:,}"


def format_count(value: int, one: str, more: str | None = None) -> str:
    """Return a number with its noun: ``1 table``, ``2 tables``."""
    return f"{value:,} {one if value == 1 else more or one + 's'}"


def format_size(value: float) -> str:
    """Return a number of bytes with about three digits, in powers of 1000: ``12.3 MB``."""
    unit = 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value /= 1000
        unit += 1
    return f"{value:,.{0 if unit == 0 or value >= 99.95 else 1}f} {_SIZES[unit]}"


def format_duration(microseconds: float) -> str:
    """Return a duration with about three digits: ``12.5 ms``, ``2 h``."""
    for unit, name in _DURATIONS:
        if microseconds >= unit:
            value = f"{microseconds / unit:.{0 if microseconds >= 100 * unit else 1}f}"
            return f"{value.removesuffix('.0')} {name}"
    return "0 s"


def format_timestamp(time: int | np.datetime64, unit: Literal["m", "s", "ms"] = "s") -> str:
    """Return a UTC time, an int in microseconds since 1970, to the given unit."""
    import numpy as np

    if not isinstance(time, np.datetime64):
        time = np.datetime64(time, "us")
    return str(time.astype(f"datetime64[{unit}]")).replace("T", " ")


def format_share(part: float, whole: float) -> str:
    """Return a part of a whole in percent: ``12.5 %``, ``< 0.1 %``."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.{0 if percent in (0, 100) else 1}f} %"


def printable(text: str) -> str:
    """Return a text with an escape in place of each character that could move a cursor."""
    return text if text.isprintable() else "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    code = ord(character)
    if character.isprintable():
        return character
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is not UTF-8
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def parse_duration(text: str | float, option: str) -> float:
    """Return the seconds of a time such as ``10 seconds``; raise ``OptionError`` for another.

    A number alone is one of seconds.
    """
    if not isinstance(text, str):
        return float(text)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    unit = "" if match is None or match[2] in _UNITS else match[2].removesuffix("s")
    if match is None or unit not in _UNITS:
        raise OptionError(f"`{option}`: {text!r} is not a time such as '10 seconds'")
    return float(match[1]) * _UNITS[unit or match[2]]
