"""What an Arrow type holds of a value, and the nearest that it holds of one that it cannot."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from pgwire_codec.codec.values import Unrepresentable
from pgwire_codec.reference.values_calendar import DAY

_INT32: Final = (-(2**31), 2**31 - 1)
#: int64's minimum is numpy's NaT, and so no time.
_INT64: Final = (-(2**63), 2**63 - 1)
_TIMES: Final = (-(2**63 - 1), 2**63 - 1)


def store(arrow: str, value: Any) -> Any:
    """Give the stored form of a value, as values_build takes it.

    Raises
    ------
    Unrepresentable
        If the Arrow type has no such value; with the nearest that it has.
    """
    if arrow.startswith("d:"):
        return _decimal(arrow, value)
    if arrow == "g" and isinstance(value, bytes):
        return _double(value)
    if arrow == "tdD":
        return _within(value, _INT32, "a date that date32 holds")
    if arrow.startswith("tsu"):
        return _within(value, _TIMES, "a timestamp that 64-bit microseconds since 1970 hold")
    if arrow == "ttu":
        return _within(value, (0, DAY - 1), "a time before 24:00:00, which time64 holds")
    if arrow == "tin":
        return _interval(value)
    if arrow == "l":
        return _within(value, _INT64, "a number that int64 holds")
    return value


def _within(value: int | float, limits: tuple[int, int], what: str) -> int:
    low, high = limits
    if low <= value <= high:
        return int(value)
    raise Unrepresentable(f"{what}, not {value}", high if value > high else low)


def _interval(value: tuple[int, int, int] | float) -> tuple[int, int, int]:
    what = "an interval whose time 64-bit nanoseconds hold"
    if isinstance(value, float):
        end = 1 if value > 0 else 0
        raise Unrepresentable(f"{what}, not {value}", (_INT32[end], _INT32[end], _INT64[end]))
    months, days, micros = value
    low, high = _INT64
    if low <= micros * 1000 <= high:
        return months, days, micros * 1000
    raise Unrepresentable(what, (months, days, high if micros > 0 else low))


def _double(text: bytes) -> int:
    value = float(text)
    overflow = math.isinf(value) and not text.endswith(b"Infinity")
    if overflow:
        value = math.copysign(1.7976931348623157e308, value)
    bits = int.from_bytes(struct.pack(">d", value), "big")
    if overflow:
        raise Unrepresentable("a numeric that float64 holds", bits)
    return bits


def _decimal(arrow: str, text: bytes) -> int:
    """Give a numeric's unscaled integer.

    Digits are counted before they become an int: a numeric can have 131,072 of them.
    """
    precision, scale = (int(part) for part in arrow[2:].split(",")[:2])
    most = 10**precision - 1
    what = f"a numeric of {precision} digits, {scale} of them after the point"
    if text == b"NaN":
        raise Unrepresentable(what)
    negative = text.startswith(b"-")
    sign = -1 if negative else 1
    if text.endswith(b"Infinity"):
        raise Unrepresentable(what, sign * most)
    whole, _, fraction = text.lstrip(b"-").partition(b".")
    digits = (whole + fraction[:scale].ljust(scale, b"0")).lstrip(b"0")
    rest = fraction[scale:]
    if len(digits) > precision:
        raise Unrepresentable(what, sign * most)
    unscaled = int(digits or b"0")
    if rest.strip(b"0"):
        # Half away from zero, as PostgreSQL rounds numerics.
        rounded = min(unscaled + (rest[:1] >= b"5"), most)
        raise Unrepresentable(what, sign * rounded)
    return sign * unscaled
