"""The server's text of date and time values: DateStyle ISO, IntervalStyle postgres, zone UTC."""

from __future__ import annotations

import math

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference import binary
from pgwire_codec.reference.values_calendar import DAY, date_from_days

_ZONE_LIMIT = 16 * 3600  # TZDISP_LIMIT of PostgreSQL


def render_date(raw: bytes) -> bytes:
    """Give ``2024-02-29``, ``0044-03-15 BC`` or ``infinity``."""
    days = binary.read_date(raw)
    return _infinite(days) or _date(int(days), "")


def render_timestamp(raw: bytes) -> bytes:
    """Give ``2024-02-29 12:34:56.789``."""
    return _timestamp(raw, "")


def render_timestamptz(raw: bytes) -> bytes:
    """Give ``2024-02-29 12:34:56.789+00``."""
    return _timestamp(raw, "+00")


def render_time(raw: bytes) -> bytes:
    """Give ``23:59:59.999999``."""
    return clock(binary.read_time(raw)).encode()


def render_timetz(raw: bytes) -> bytes:
    """Give ``12:34:56+05:30``."""
    parts = binary.Parts(raw)
    time = render_time(parts.take(8, "timetz"))
    west = parts.number("i", "timetz zone")
    parts.finish()
    if abs(west) >= _ZONE_LIMIT:
        raise ValueProblem(ErrorCode.BAD_VALUE, 8, "a zone within 15:59:59 of UTC")
    minutes, seconds = divmod(abs(west), 60)
    hours, minutes = divmod(minutes, 60)
    zone = f"{'-' if west > 0 else '+'}{hours:02d}"
    if minutes or seconds:
        zone += f":{minutes:02d}"
    if seconds:
        zone += f":{seconds:02d}"
    return time + zone.encode()


def render_interval(raw: bytes) -> bytes:
    """Give ``1 year 2 mons -3 days +04:05:06.789``."""
    value = binary.read_interval(raw)
    if isinstance(value, float):
        return _infinite(value)
    months, days, micros = value
    years = math.trunc(months / 12)
    shown = []
    negative = False  # whether the part before was: a positive one then says so
    for count, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if count:
            plural = "" if count == 1 else "s"
            shown.append(f"{'+' if negative and count > 0 else ''}{count} {unit}{plural}")
            negative = count < 0
    if micros or not shown:
        sign = "-" if micros < 0 else "+" if negative else ""
        shown.append(sign + clock(abs(micros)))
    return " ".join(shown).encode()


def clock(micros: int) -> str:
    """Give ``hh:mm:ss.f`` with as many digits as it takes."""
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    return shown + f".{fraction:06d}".rstrip("0") if fraction else shown


def _timestamp(raw: bytes, zone: str) -> bytes:
    micros = binary.read_timestamp(raw)
    if isinstance(micros, float):
        return _infinite(micros)
    days, of_day = divmod(micros, DAY)
    return _date(days, f" {clock(of_day)}{zone}")


def _date(days: int, rest: str) -> bytes:
    year, month, day = date_from_days(days)
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{rest}{era}".encode()


def _infinite(value: float) -> bytes:
    if not math.isinf(value):
        return b""
    return b"infinity" if value > 0 else b"-infinity"
