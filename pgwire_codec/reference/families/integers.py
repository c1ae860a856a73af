"""Booleans, integers, OIDs and LSNs; the names of catalog objects, whose binary form is an OID."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import (
    INT64_MAX,
    INT64_MIN,
    Unwritable,
    read_number,
    refuse,
    store_within,
)
from pgwire_codec.types import ColumnType

_INTEGER: Final = re.compile(rb"-?[0-9]{1,20}")
_LSN: Final = re.compile(rb"([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})")


def _read_bool_text(raw: bytes) -> bool:
    if raw not in (b"t", b"f"):
        refuse("a boolean: t or f")
    return raw == b"t"


def _read_bool_binary(raw: bytes) -> bool:
    value = read_number("B", "bool", raw)
    if value > 1:
        refuse("a boolean: byte 0 or 1")
    return value == 1


def _render_bool(raw: bytes) -> bytes:
    return b"t" if _read_bool_binary(raw) else b"f"


def _write_bool(column: ColumnType, formats: Sequence[str], value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _read_text(low: int, high: int, name: str, raw: bytes) -> int:
    if not _INTEGER.fullmatch(raw) or not low <= int(raw) <= high:
        refuse(f"an {name} in decimal digits")
    return int(raw)


def _render(layout: str, name: str, raw: bytes) -> bytes:
    return b"%d" % read_number(layout, name, raw)


def _store(arrow: str, value: int) -> int:
    # For Spark, which has no unsigned integers, these are int64.
    if arrow == "l":
        return store_within(value, INT64_MIN, INT64_MAX, "a number that int64 holds")
    return value


def _write(
    layout: str, low: int, high: int, column: ColumnType, formats: Sequence[str], value: int
) -> bytes:
    if not low <= value <= high:
        raise Unwritable(f"{column.pg.name} from {low} to {high}, not {value}")
    return struct.pack(f">{layout}", value)


def _read_lsn(raw: bytes) -> int:
    """Read ``16/B374D848``."""
    halves = _LSN.fullmatch(raw)
    if halves is None:
        refuse("a pg_lsn: two hexadecimal halves, 16/B374D848")
    return int(halves[1], 16) << 32 | int(halves[2], 16)


def _render_lsn(raw: bytes) -> bytes:
    """Write without leading zeros, which PostgreSQL has since 19: ``0/01782C38``."""
    lsn = read_number("Q", "pg_lsn", raw)
    return b"%X/%X" % (lsn >> 32, lsn & 0xFFFF_FFFF)


def _integer(layout: str, name: str) -> Family:
    """Return the codec of the integers of struct's letter `layout`."""
    bits = 8 * struct.calcsize(f">{layout}")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if layout.islower() else (0, 2**bits - 1)
    return Family(
        render=partial(_render, layout, name),
        read_text=partial(_read_text, low, high, name),
        read_binary=partial(read_number, layout, name),
        store=_store,
        write=partial(_write, layout, low, high),
        arrow_name="an integer",
        arrow_formats="[cCsSiIlL]",
    )


FAMILIES: Final = {
    "bool": Family(
        render=_render_bool,
        read_text=_read_bool_text,
        read_binary=_read_bool_binary,
        write=_write_bool,
        arrow_name="bool",
        arrow_formats="b",
    ),
    "int2": _integer("h", "int2"),
    "int4": _integer("i", "int4"),
    "int8": _integer("q", "int8"),
    "uint4": _integer("I", "unsigned 32-bit number"),
    "uint8": _integer("Q", "unsigned 64-bit number"),
    "pg_lsn": replace(_integer("Q", "pg_lsn"), render=_render_lsn, read_text=_read_lsn),
    # The text is the name in the server's catalog, which an OID does not contain.
    "reg": replace(_integer("I", "unsigned 32-bit number"), read_text=None, read_binary=None),
}
