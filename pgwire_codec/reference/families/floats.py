"""float4 and float8: values are bit patterns, so that a NaN keeps its payload.

The rendered text is the shortest that reads back (extra_float_digits > 0). PostgreSQL's Ryu
(src/common/d2s.c) differs from other shortest-digits algorithms in one point: it never writes the
exact middle between two floats, which would read back only by round-to-even.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import read_number, refuse
from pgwire_codec.types import ColumnType

_FLOAT: Final = re.compile(rb"-?([0-9]+(?:\.[0-9]+)?)(?:[eE][+-]?[0-9]+)?")
_MAX_FLOAT: Final = 64  # characters; the server writes at most 24

_SPECIAL: Final = {
    b"NaN": (0x7FC0_0000, 0x7FF8_0000_0000_0000),
    b"Infinity": (0x7F80_0000, 0x7FF0_0000_0000_0000),
    b"-Infinity": (0xFF80_0000, 0xFFF0_0000_0000_0000),
}


def _read_float8(raw: bytes) -> int:
    if raw in _SPECIAL:
        return _SPECIAL[raw][1]
    value = _finite(raw, "float8")
    return int.from_bytes(struct.pack(">d", value), "big")


def _read_float4(raw: bytes) -> int:
    """Read a float4, rounded once: not to a float8 first and then again."""
    if raw in _SPECIAL:
        return _SPECIAL[raw][0]
    wide = _finite(raw, "float4")
    try:
        bits = int.from_bytes(struct.pack(">f", wide), "big")
    except OverflowError:
        refuse("a float4: the number is too large")
    near = _float4_of(bits)
    # Two float4 neighbours enclose the float8; only when it lies half way can its own rounding
    # have mattered, and then the digits themselves decide.
    if near != wide:
        toward = 1 if (wide > near) == (wide > 0) else -1
        other = _float4_of(bits + toward)
        exact = Fraction(wide)
        if math.isfinite(other) and 2 * exact == Fraction(near) + Fraction(other):
            digits = Fraction(raw.decode())
            if digits != exact and (digits > exact) == (other > near):
                bits += toward
    if wide != 0 and not bits & 0x7FFF_FFFF:
        refuse("a float4: the number is too small")
    return bits


def _finite(raw: bytes, name: str) -> float:
    number = _FLOAT.fullmatch(raw)
    if number is None or len(raw) > _MAX_FLOAT:
        refuse(f"a {name} in decimal notation, NaN or Infinity")
    value = float(raw)
    if math.isinf(value) or (value == 0 and number[1].strip(b"0.")):
        refuse(f"a {name}: the number is out of range")
    return value


def _float4_of(bits: int) -> float:
    (value,) = struct.unpack(">f", bits.to_bytes(4, "big"))
    return float(value)


def _write_float4(column: ColumnType, formats: Sequence[str], value: int) -> bytes:
    return struct.pack(">I", value)


def _write_float8(column: ColumnType, formats: Sequence[str], value: int) -> bytes:
    if formats[0] == "g":
        return struct.pack(">Q", value)
    return struct.pack(">d", *struct.unpack(">f", struct.pack(">I", value)))


@dataclass(frozen=True, slots=True)
class _Format:
    exponent_bits: int
    mantissa_bits: int  #: those that are stored
    digits: int  #: that always suffice
    fixed_below: int  #: decimal exponent from which on scientific notation is used


_FLOAT4: Final = _Format(8, 23, 9, 6)
_FLOAT8: Final = _Format(11, 52, 17, 15)


def float8_text(bits: int) -> bytes:
    """Return the text of a float8's bit pattern."""
    return _text(bits, _FLOAT8)


def _render_float4(raw: bytes) -> bytes:
    return _text(read_number("I", "float4", raw), _FLOAT4)


def _render_float8(raw: bytes) -> bytes:
    return float8_text(read_number("Q", "float8", raw))


def _text(bits: int, form: _Format) -> bytes:
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
    """Return digits and the decimal exponent of the first, of a positive finite float."""
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
    raise AssertionError(f"no {form.digits} digits distinguish {value} from its neighbours")


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


FAMILIES: Final = {
    "float4": Family(
        render=_render_float4,
        read_text=_read_float4,
        read_binary=partial(read_number, "I", "float4"),
        write=_write_float4,
        arrow_name="float32",
        arrow_formats="f",
    ),
    "float8": Family(
        render=_render_float8,
        read_text=_read_float8,
        read_binary=partial(read_number, "Q", "float8"),
        write=_write_float8,
        arrow_name="float32 or float64",
        arrow_formats="[fg]",
    ),
}
