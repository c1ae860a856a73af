"""date, time, timetz, timestamp, timestamptz and interval.

Text forms are those of DateStyle ISO, IntervalStyle postgres and, when rendered, TimeZone UTC.
Days and microseconds are counted from 1970-01-01. Infinity is the float of that name: `store`
decides if a column can hold it.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pgwire_codec.codec.values import Unrepresentable
from pgwire_codec.protocol.epoch import EPOCH_DAYS, EPOCH_MICROSECONDS
from pgwire_codec.reference.families.calendar import (
    DAY,
    MAX_DATE,
    MAX_TIMESTAMP,
    MIN_DATE,
    MIN_TIMESTAMP,
    clock_text,
    date_from_days,
    days_from_date,
    days_in_month,
)
from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    Unwritable,
    ValueReader,
    bad_value,
    check_size,
    read_number,
    refuse,
    store_within,
)
from pgwire_codec.types import ColumnType

_DATE = rb"([0-9]{4,7})-([0-9]{2})-([0-9]{2})"
_TIME = rb"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
_ZONE = rb"([+-])([0-9]{2})(?::([0-9]{2})(?::([0-9]{2}))?)?"
_DATE_FORM: Final = re.compile(_DATE + rb"( BC)?")
_TIME_FORM: Final = re.compile(_TIME)
_TIMESTAMP_FORM: Final = re.compile(_DATE + b" " + _TIME + rb"( BC)?")
_TIMESTAMPTZ_FORM: Final = re.compile(_DATE + b" " + _TIME + _ZONE + rb"( BC)?")
_INTERVAL_FORM: Final = re.compile(
    rb"(?! )(?:([+-]?[0-9]{1,9}) years?)?"
    rb"(?:(?:^| )([+-]?[0-9]{1,2}) mons?)?"
    rb"(?:(?:^| )([+-]?[0-9]{1,10}) days?)?"
    rb"(?:(?:^| )([+-]?)([0-9]{2,10}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_INFINITY: Final = {b"infinity": math.inf, b"-infinity": -math.inf}

_ZONE_LIMIT: Final = 16 * 3600  # TZDISP_LIMIT of PostgreSQL
#: Nanoseconds of Arrow's time units.
UNITS: Final = {"s": 1_000_000_000, "m": 1_000_000, "u": 1_000, "n": 1}

_DATES = "a date from 4714-11-24 BC to 5874897-12-31"
_TIMESTAMPS = "a timestamp from 4714-11-24 BC to the year 294276"
_ISO = "Set datestyle=ISO in the session that reads the slot."
_POSTGRES = "Set intervalstyle=postgres in the session that reads the slot."


def _read_date_text(raw: bytes) -> int | float:
    """Read ``2024-02-29`` or ``0044-03-15 BC``: days."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _DATE_FORM.fullmatch(raw)
    if parts is None:
        refuse("a date as 2024-02-29", _ISO)
    days = _days(parts[1], parts[2], parts[3], bc=parts[4] is not None)
    if not MIN_DATE <= days <= MAX_DATE:
        refuse(_DATES)
    return days


def _read_time_text(raw: bytes) -> int:
    """Read ``23:59:59.999999``: microseconds, of which ``24:00:00`` has a whole day's."""
    parts = _TIME_FORM.fullmatch(raw)
    if parts is None:
        refuse("a time as 23:59:59.999999")
    micros = _micros(*parts.groups())
    if micros > DAY:
        refuse("a time up to 24:00:00")
    return micros


def _read_timestamp_text(raw: bytes) -> int | float:
    """Read ``2024-02-29 12:34:56.789``: microseconds of the time that it shows."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _TIMESTAMP_FORM.fullmatch(raw)
    if parts is None:
        refuse("a timestamp as 2024-02-29 12:34:56.789", _ISO)
    day, month, year = parts[3], parts[2], parts[1]
    micros = _clock(*parts.group(4, 5, 6, 7))
    return _checked(_days(year, month, day, bc=parts[8] is not None) * DAY + micros)


def _read_timestamptz_text(raw: bytes) -> int | float:
    """Read ``2024-02-29 12:34:56.789+05:30``: microseconds UTC, whatever the zone."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _TIMESTAMPTZ_FORM.fullmatch(raw)
    if parts is None:
        refuse("a timestamp with its zone's offset as 2024-02-29 12:34:56.789+00", _ISO)
    micros = _clock(*parts.group(4, 5, 6, 7))
    east = _micros(parts[9], parts[10] or b"00", parts[11] or b"00", None)
    days = _days(parts[1], parts[2], parts[3], bc=parts[12] is not None)
    return _checked(days * DAY + micros - (east if parts[8] == b"+" else -east))


def _read_interval_text(raw: bytes) -> tuple[int, int, int] | float:
    """Read ``1 year 2 mons -3 days +04:05:06.789``: months, days and microseconds."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _INTERVAL_FORM.fullmatch(raw)
    if parts is None or not raw:
        refuse("an interval as 1 year 2 mons -3 days +04:05:06.789", _POSTGRES)
    years, months, days, sign, *clock = parts.groups()
    micros = 0 if clock[0] is None else _micros(*clock)
    if sign == b"-":
        micros = -micros
    total = int(years or 0) * 12 + int(months or 0)
    whole_days = int(days or 0)
    if not (-(2**31) <= total < 2**31 and -(2**31) <= whole_days < 2**31):
        refuse("an interval of at most 2147483647 months and days")
    if not -(2**63) <= micros < 2**63:
        refuse("an interval of at most 2562047788 hours")
    return total, whole_days, micros


def _days(year: bytes, month: bytes, day: bytes, *, bc: bool) -> int:
    astronomical = 1 - int(year) if bc else int(year)
    if int(year) == 0 or not 1 <= int(month) <= 12:
        refuse("a date that the calendar has", _ISO)
    if not 1 <= int(day) <= days_in_month(astronomical, int(month)):
        refuse("a date that the calendar has", _ISO)
    return days_from_date(astronomical, int(month), int(day))


def _clock(hours: bytes, minutes: bytes, seconds: bytes, fraction: bytes | None) -> int:
    micros = _micros(hours, minutes, seconds, fraction)
    if micros >= DAY:
        refuse("a time of day before 24:00:00")
    return micros


def _micros(hours: bytes, minutes: bytes, seconds: bytes, fraction: bytes | None) -> int:
    if int(minutes) > 59 or int(seconds) > 59:
        refuse("minutes and seconds up to 59")
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1_000_000 + int((fraction or b"").ljust(6, b"0"))


def _checked(micros: int) -> int:
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        refuse(_TIMESTAMPS)
    return micros


# Binary forms.


def _read_date(raw: bytes) -> int | float:
    """Read days since 2000-01-01."""
    days = read_number("i", "date", raw)
    if days in (INT32_MIN, INT32_MAX):
        return math.copysign(math.inf, days)
    if not MIN_DATE <= days + EPOCH_DAYS <= MAX_DATE:
        refuse(_DATES)
    return days + EPOCH_DAYS


def _read_time(raw: bytes) -> int:
    """Read microseconds since midnight."""
    micros = read_number("q", "time", raw)
    if not 0 <= micros <= DAY:
        refuse("a time from 00:00:00 to 24:00:00")
    return micros


def _read_timestamp(raw: bytes) -> int | float:
    """Read microseconds since 2000-01-01."""
    micros = read_number("q", "timestamp", raw)
    if micros in (INT64_MIN, INT64_MAX):
        return math.copysign(math.inf, micros)
    return _checked(micros + EPOCH_MICROSECONDS)


def _read_interval(raw: bytes) -> tuple[int, int, int] | float:
    """Read microseconds, days, months: months, days and microseconds."""
    micros, days, months = struct.unpack(">qii", check_size(raw, 16, "interval"))
    if (months, days, micros) == (INT32_MAX, INT32_MAX, INT64_MAX):
        return math.inf
    if (months, days, micros) == (INT32_MIN, INT32_MIN, INT64_MIN):
        return -math.inf
    return months, days, micros


# The server's text.


def _render_date(raw: bytes) -> bytes:
    """Return ``2024-02-29``, ``0044-03-15 BC`` or ``infinity``."""
    days = _read_date(raw)
    return _infinite(days) or _date_text(int(days), "")


def _render_timestamp(zone: str, raw: bytes) -> bytes:
    """Return ``2024-02-29 12:34:56.789``, and the zone."""
    micros = _read_timestamp(raw)
    if isinstance(micros, float):
        return _infinite(micros)
    days, of_day = divmod(micros, DAY)
    return _date_text(days, f" {clock_text(of_day)}{zone}")


def _render_time(raw: bytes) -> bytes:
    """Return ``23:59:59.999999``."""
    return clock_text(_read_time(raw)).encode()


def _render_timetz(raw: bytes) -> bytes:
    """Return ``12:34:56+05:30``."""
    reader = ValueReader(raw)
    time = _render_time(reader.take(8, "timetz"))
    west = reader.number("i", "timetz zone")
    reader.finish()
    if abs(west) >= _ZONE_LIMIT:
        raise bad_value(8, "a zone within 15:59:59 of UTC")
    minutes, seconds = divmod(abs(west), 60)
    hours, minutes = divmod(minutes, 60)
    zone = f"{'-' if west > 0 else '+'}{hours:02d}"
    if minutes or seconds:
        zone += f":{minutes:02d}"
    if seconds:
        zone += f":{seconds:02d}"
    return time + zone.encode()


def _render_interval(raw: bytes) -> bytes:
    """Return ``1 year 2 mons -3 days +04:05:06.789``."""
    value = _read_interval(raw)
    if isinstance(value, float):
        return _infinite(value)
    months, days, micros = value
    years = math.trunc(months / 12)
    shown = []
    negative = False  # of the part before: a positive one then has its sign
    for count, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if count:
            plural = "" if count == 1 else "s"
            shown.append(f"{'+' if negative and count > 0 else ''}{count} {unit}{plural}")
            negative = count < 0
    if micros or not shown:
        sign = "-" if micros < 0 else "+" if negative else ""
        shown.append(sign + clock_text(abs(micros)))
    return " ".join(shown).encode()


def _date_text(days: int, rest: str) -> bytes:
    year, month, day = date_from_days(days)
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{rest}{era}".encode()


def _infinite(value: float) -> bytes:
    if not math.isinf(value):
        return b""
    return b"infinity" if value > 0 else b"-infinity"


# Stored values.


def _store_date(arrow: str, days: float) -> int:
    return store_within(days, INT32_MIN, INT32_MAX, "a date that date32 holds")


def _store_time(arrow: str, micros: int) -> int:
    return store_within(micros, 0, DAY - 1, "a time before 24:00:00, which time64 holds")


def _store_timestamp(arrow: str, micros: float) -> int:
    # int64's minimum is numpy's NaT, and so not a time.
    what = "a timestamp that 64-bit microseconds since 1970 hold"
    return store_within(micros, INT64_MIN + 1, INT64_MAX, what)


def _store_interval(arrow: str, value: tuple[int, int, int] | float) -> Any:
    """Return months, days and nanoseconds; as a duration, the microseconds of all three."""
    if arrow == "tDu":
        micros = value if isinstance(value, float) else _epoch_micros(*value)
        # int64's minimum is numpy's NaT.
        what = "an interval that 64-bit microseconds hold"
        return store_within(micros, INT64_MIN + 1, INT64_MAX, what)
    what = "an interval whose time 64-bit nanoseconds hold"
    if isinstance(value, float):
        nearest = (
            (INT32_MAX, INT32_MAX, INT64_MAX) if value > 0 else (INT32_MIN, INT32_MIN, INT64_MIN)
        )
        raise Unrepresentable(f"{what}, not {value}", nearest)
    months, days, micros = value
    if INT64_MIN <= micros * 1000 <= INT64_MAX:
        return months, days, micros * 1000
    raise Unrepresentable(what, (months, days, INT64_MAX if micros > 0 else INT64_MIN))


def _epoch_micros(months: int, days: int, micros: int) -> int:
    """Add up the parts as PostgreSQL does for EXTRACT(EPOCH): a year has 365.25 days."""
    years = math.trunc(months / 12)
    return (years * 1461 + (months - years * 12) * 120 + days * 4) * (DAY // 4) + micros


# Writing.


def _write_date(column: ColumnType, formats: Sequence[str], value: int) -> bytes:
    if not MIN_DATE <= value <= MAX_DATE:
        raise Unwritable(f"{_DATES}, not day {value} of 1970")
    return struct.pack(">i", value - EPOCH_DAYS)


def _write_time(column: ColumnType, formats: Sequence[str], value: int) -> bytes:
    micros = _whole_micros(formats[0], value, "a time")
    if not 0 <= micros <= DAY:
        raise Unwritable(f"a time from 00:00:00 to 24:00:00, not {micros} us")
    return struct.pack(">q", micros)


def _write_timestamp(column: ColumnType, formats: Sequence[str], value: int) -> bytes:
    micros = _whole_micros(formats[0], value, "a timestamp")
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        raise Unwritable(f"{_TIMESTAMPS}, not {micros} us from 1970")
    return struct.pack(">q", micros - EPOCH_MICROSECONDS)


def _write_interval(
    column: ColumnType, formats: Sequence[str], value: tuple[int, int, int]
) -> bytes:
    months, days, nanos = value
    return struct.pack(">qii", _whole_micros("tin", nanos, "an interval"), days, months)


def _whole_micros(arrow: str, value: int, what: str) -> int:
    micros, rest = divmod(value * UNITS[arrow[2]], 1000)
    if rest:
        raise Unwritable(f"{what} in whole microseconds, not {value} ns")
    return micros


FAMILIES: Final = {
    "date": Family(
        render=_render_date,
        read_text=_read_date_text,
        read_binary=_read_date,
        store=_store_date,
        write=_write_date,
        arrow_name="date32",
        arrow_formats="tdD",
    ),
    "time": Family(
        render=_render_time,
        read_text=_read_time_text,
        read_binary=_read_time,
        store=_store_time,
        write=_write_time,
        arrow_name="time32 or time64",
        arrow_formats="tt[smun]",
    ),
    "timetz": Family(render=_render_timetz),
    "timestamp": Family(
        render=partial(_render_timestamp, ""),
        read_text=_read_timestamp_text,
        read_binary=_read_timestamp,
        store=_store_timestamp,
        write=_write_timestamp,
        arrow_name="timestamp without time zone",
        arrow_formats="ts[smun]:",
    ),
    "timestamptz": Family(
        render=partial(_render_timestamp, "+00"),
        read_text=_read_timestamptz_text,
        read_binary=_read_timestamp,
        store=_store_timestamp,
        write=_write_timestamp,
        arrow_name="timestamp with time zone",
        arrow_formats="ts[smun]:.+",
    ),
    "interval": Family(
        render=_render_interval,
        read_text=_read_interval_text,
        read_binary=_read_interval,
        store=_store_interval,
        write=_write_interval,
        arrow_name="month_day_nano_interval",
        arrow_formats="tin",
    ),
}
