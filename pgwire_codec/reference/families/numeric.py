"""numeric, whose value is its decimal text, and money."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Final

from pgwire_codec.codec.values import Unrepresentable, ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import (
    Unwritable,
    ValueReader,
    bad_value,
    read_number,
    refuse,
)
from pgwire_codec.types import ColumnType
from pgwire_codec.types.arrow_types import numeric_modifier

_TEXT: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?|NaN|-?Infinity")
_SPECIAL: Final = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_MAX_DISPLAY_SCALE: Final = 0x3FFF


def _read_text(raw: bytes) -> bytes:
    """Read a numeric: its digits as they are, for the scale is part of the value."""
    if not _TEXT.fullmatch(raw):
        refuse("a numeric in plain decimal notation, NaN or Infinity")
    return raw


def _read_binary(raw: bytes) -> bytes:
    """Read numeric_send's base-10000 digits: the number's decimal text, as the server writes it."""
    reader = ValueReader(raw)
    count = reader.number("H", "numeric digit count")
    weight = reader.number("h", "numeric weight")
    sign = reader.number("H", "numeric sign")
    scale = reader.number("H", "numeric scale")
    if sign not in (0, 0x4000) and sign not in _SPECIAL:
        raise bad_value(4, "a numeric's sign: 0000, 4000, C000, D000 or F000")
    if scale > _MAX_DISPLAY_SCALE:
        raise bad_value(6, "a numeric's scale up to 16383")
    if count * 2 != len(raw) - reader.at:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"a numeric of {count} base-10000 digits")
    groups = struct.unpack_from(f">{count}H", raw, reader.at)
    for index, group in enumerate(groups):
        if group > 9999:
            raise bad_value(reader.at + 2 * index, "a base-10000 digit")
    digits = b"".join(b"%04d" % group for group in groups)
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    # The digits' point is after (weight + 1) groups, which may be more or fewer than there are.
    point = (weight + 1) * 4
    whole = digits[: max(point, 0)].ljust(point, b"0").lstrip(b"0") or b"0"
    fraction = (b"0" * -point + digits[max(point, 0) :]).ljust(scale, b"0")[:scale]
    text = whole + b"." + fraction if scale else whole
    return b"-" + text if sign and text.strip(b"0.") else text


def _store(arrow: str, text: bytes) -> int:
    return _double(text) if arrow == "g" else _unscaled(arrow, text)


def _double(text: bytes) -> int:
    """Return the bit pattern of a numeric's nearest float64."""
    value = float(text)
    overflow = math.isinf(value) and not text.endswith(b"Infinity")
    if overflow:
        value = math.copysign(1.7976931348623157e308, value)
    bits = int.from_bytes(struct.pack(">d", value), "big")
    if overflow:
        raise Unrepresentable("a numeric that float64 holds", bits)
    return bits


def _unscaled(arrow: str, text: bytes) -> int:
    """Return a numeric's unscaled integer.

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


def _write(column: ColumnType, formats: Sequence[str], value: int) -> bytes:
    """Write numeric_send's sign, scale and base-10000 digits, with the column's own scale."""
    arrow = formats[0]
    given = int(arrow[2:].split(",")[1]) if arrow.startswith("d:") else 0
    precision, scale = numeric_digits(column.typmod)
    if scale is None:
        scale = given
    unscaled = abs(value)
    if scale >= given:
        unscaled *= 10 ** (scale - given)
    else:
        unscaled, rest = divmod(unscaled, 10 ** (given - scale))
        if rest:
            raise Unwritable(
                f"a numeric of {scale} digits after the point, not {_decimal(value, given)}"
            )
    if precision is not None and unscaled >= 10**precision:
        raise Unwritable(
            f"a numeric of {precision} digits, {scale} of them after the point, not "
            f"{_decimal(value, given)}"
        )
    # Groups of four digits, to the left and to the right of the point.
    right = -(-scale // 4)
    rest = unscaled * 10 ** (4 * right - scale)
    groups: list[int] = []
    while rest:
        rest, group = divmod(rest, 10_000)
        groups.insert(0, group)
    weight = len(groups) - right - 1 if groups else 0
    while groups and not groups[-1]:
        groups.pop()
    sign = 0x4000 if value < 0 else 0
    return struct.pack(f">HhHH{len(groups)}H", len(groups), weight, sign, scale, *groups)


def numeric_digits(typmod: int) -> tuple[int | None, int | None]:
    """Return the most digits of a numeric(p,s), and those after its point; None for any."""
    modifier = numeric_modifier(typmod)
    if modifier is None:
        return None, None
    precision, scale = modifier
    return precision - min(scale, 0), max(scale, 0)


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    point = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{point}" if unscaled < 0 else point


def _render_money(raw: bytes) -> bytes:
    """Write a plain number, ``12.34``: the server's text depends on its lc_monetary."""
    cents = read_number("q", "money", raw)
    return b"%b%d.%02d" % (b"-" if cents < 0 else b"", abs(cents) // 100, abs(cents) % 100)


FAMILIES: Final = {
    "numeric": Family(
        render=_read_binary,
        read_text=_read_text,
        read_binary=_read_binary,
        store=_store,
        write=_write,
        arrow_name="decimal or an integer",
        arrow_formats="d:.*|[cCsSiIlL]",
    ),
    "money": Family(render=_render_money),
}
