"""Text forms of date, time, timestamp and interval, under DateStyle ISO and IntervalStyle postgres.

Days and microseconds are counted from 1970-01-01. Infinity is the float of that name: whether a
column can hold it is not asked here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from pgwire_codec.reference.text import refuse
from pgwire_codec.reference.values_calendar import (
    DAY,
    MAX_DATE,
    MAX_TIMESTAMP,
    MIN_DATE,
    MIN_TIMESTAMP,
    days_from_date,
    days_in_month,
)

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

_ISO = "; pin datestyle=ISO"
_POSTGRES = "; pin intervalstyle=postgres"


def read_date(raw: bytes) -> int | float:
    """Read ``2024-02-29`` or ``0044-03-15 BC``: days."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _DATE_FORM.fullmatch(raw)
    if parts is None:
        refuse("a date as 2024-02-29" + _ISO)
    days = _days(parts[1], parts[2], parts[3], bc=parts[4] is not None)
    if not MIN_DATE <= days <= MAX_DATE:
        refuse("a date from 4714-11-24 BC to 5874897-12-31")
    return days


def read_time(raw: bytes) -> int:
    """Read ``23:59:59.999999``: microseconds, of which ``24:00:00`` has a whole day's."""
    parts = _TIME_FORM.fullmatch(raw)
    if parts is None:
        refuse("a time as 23:59:59.999999")
    micros = _micros(*parts.groups())
    if micros > DAY:
        refuse("a time up to 24:00:00")
    return micros


def read_timestamp(raw: bytes) -> int | float:
    """Read ``2024-02-29 12:34:56.789``: microseconds of the time that it shows."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _TIMESTAMP_FORM.fullmatch(raw)
    if parts is None:
        refuse("a timestamp as 2024-02-29 12:34:56.789" + _ISO)
    day, month, year = parts[3], parts[2], parts[1]
    micros = _clock(*parts.group(4, 5, 6, 7))
    return _in_range(_days(year, month, day, bc=parts[8] is not None) * DAY + micros)


def read_timestamptz(raw: bytes) -> int | float:
    """Read ``2024-02-29 12:34:56.789+05:30``: microseconds UTC, whatever the zone."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _TIMESTAMPTZ_FORM.fullmatch(raw)
    if parts is None:
        refuse("a timestamp with its zone's offset as 2024-02-29 12:34:56.789+00" + _ISO)
    micros = _clock(*parts.group(4, 5, 6, 7))
    east = _micros(parts[9], parts[10] or b"00", parts[11] or b"00", None)
    days = _days(parts[1], parts[2], parts[3], bc=parts[12] is not None)
    return _in_range(days * DAY + micros - (east if parts[8] == b"+" else -east))


def read_interval(raw: bytes) -> tuple[int, int, int] | float:
    """Read ``1 year 2 mons -3 days +04:05:06.789``: months, days and microseconds."""
    if raw in _INFINITY:
        return _INFINITY[raw]
    parts = _INTERVAL_FORM.fullmatch(raw)
    if parts is None or not raw:
        refuse("an interval as 1 year 2 mons -3 days +04:05:06.789" + _POSTGRES)
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
        refuse("a date that the calendar has" + _ISO)
    if not 1 <= int(day) <= days_in_month(astronomical, int(month)):
        refuse("a date that the calendar has" + _ISO)
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


def _in_range(micros: int) -> int:
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        refuse("a timestamp from 4714-11-24 BC to the year 294276")
    return micros


#: Family to reader.
TIMES: Final[dict[str, Callable[[bytes], Any]]] = {
    "date": read_date,
    "time": read_time,
    "timestamp": read_timestamp,
    "timestamptz": read_timestamptz,
    "interval": read_interval,
}
