"""The server's text of float4 and float8: the shortest that reads back (extra_float_digits > 0).

PostgreSQL's Ryu (src/common/d2s.c) differs from other shortest-digits algorithms in one point: it
never writes the exact middle between two floats, which would read back only by round-to-even.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class _Format:
    exponent_bits: int
    mantissa_bits: int  #: those that are stored
    digits: int  #: that always suffice
    fixed_below: int  #: decimal exponent from which on scientific notation is used


_FLOAT4: Final = _Format(8, 23, 9, 6)
_FLOAT8: Final = _Format(11, 52, 17, 15)


def render_float4(bits: int) -> bytes:
    """Give the text of a float4's bit pattern."""
    return _render(bits, _FLOAT4)


def render_float8(bits: int) -> bytes:
    """Give the text of a float8's bit pattern."""
    return _render(bits, _FLOAT8)


def _render(bits: int, form: _Format) -> bytes:
    mantissa = bits & ((1 << form.mantissa_bits) - 1)
    exponent = bits >> form.mantissa_bits & ((1 << form.exponent_bits) - 1)
    sign = b"-" if bits >> (form.exponent_bits + form.mantissa_bits) else b""
    if exponent == (1 << form.exponent_bits) - 1:
        return b"NaN" if mantissa else sign + b"Infinity"
    if not exponent and not mantissa:
        return sign + b"0"
    digits, point = _shortest(mantissa, exponent, form)
    return sign + _layout(digits, point, form.fixed_below)


def _shortest(mantissa: int, exponent: int, form: _Format) -> tuple[str, int]:
    """Give digits and the decimal exponent of the first, of a positive finite float."""
    bias = (1 << form.exponent_bits - 1) - 1 + form.mantissa_bits
    implicit = 1 << form.mantissa_bits if exponent else 0
    unit = Fraction(2) ** (max(exponent, 1) - bias)
    value = (implicit + mantissa) * unit
    # Below a power of two the floats lie twice as close.
    below = unit / 4 if not mantissa and exponent > 1 else unit / 2
    point = _decimal_exponent(value)
    for count in range(1, form.digits + 1):
        step = Fraction(10) ** (point - count + 1)
        lower = value // step
        inside = [n for n in (lower, lower + 1) if value - below < n * step < value + unit / 2]
        if inside:
            # Of two that are equally near, the even one.
            best = min(inside, key=lambda n: (abs(n * step - value), n % 2))
            text = str(best)
            return text.rstrip("0"), point + len(text) - count
    raise AssertionError(f"no {form.digits} digits tell {value} from its neighbours")


def _decimal_exponent(value: Fraction) -> int:
    guess = len(str(value.numerator)) - len(str(value.denominator))
    return guess if value >= Fraction(10) ** guess else guess - 1


def _layout(digits: str, point: int, fixed_below: int) -> bytes:
    if point < -4 or point >= fixed_below:
        mantissa = digits[0] + ("." + digits[1:] if digits[1:] else "")
        return f"{mantissa}e{'-' if point < 0 else '+'}{abs(point):02d}".encode()
    if point < 0:
        return f"0.{'0' * (-point - 1)}{digits}".encode()
    whole, fraction = digits[: point + 1].ljust(point + 1, "0"), digits[point + 1 :]
    return (f"{whole}.{fraction}" if fraction else whole).encode()
