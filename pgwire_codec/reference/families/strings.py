"""Text and what is sent as text, bytea, and bytes of unknown types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import check_utf8, read_number, read_part, refuse
from pgwire_codec.types import ColumnType

_HEX: Final = re.compile(rb"\\x((?:[0-9a-fA-F]{2})*)")
_ESCAPED: Final = re.compile(rb"(?:[ -\[\]-~]|\\\\|\\[0-3][0-7][0-7])*")
_ESCAPE: Final = re.compile(rb"\\(\\|[0-7]{3})")
_VERSION: Final = b"\x01"  #: of the binary form of jsonb and jsonpath


def _read_bytea_text(raw: bytes) -> bytes:
    r"""Read a bytea in hex form, ``\x00ff``, or in escape form, ``\000\377\\``.

    An escaped backslash is doubled, so a value in escape form never starts with ``\x``.
    """
    digits = _HEX.fullmatch(raw)
    if digits is not None:
        return bytes.fromhex(digits[1].decode())
    if not _ESCAPED.fullmatch(raw):
        refuse("a bytea in hex or escape form (bytea_output)")
    return _ESCAPE.sub(lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]), raw)


def _read_bytes(raw: bytes) -> bytes:
    return raw


def _render_hex(raw: bytes) -> bytes:
    return b"\\x" + raw.hex().encode()


def _write_bytes(column: ColumnType, formats: Sequence[str], value: bytes) -> bytes:
    return value


def _render_char(raw: bytes) -> bytes:
    r"""Return the one byte of a "char": nothing for zero, ``\377`` above ASCII (16 on)."""
    byte = read_number("B", '"char"', raw)
    if byte >= 0x80:
        return b"\\%03o" % byte
    return bytes([byte]) if byte else b""


def _render_versioned(raw: bytes) -> bytes:
    if raw[:1] != _VERSION:
        refuse("version 1 of the binary form")
    return read_part(check_utf8, raw[1:], 1)


_BYTEA: Final = Family(
    render=_render_hex,
    read_text=_read_bytea_text,
    read_binary=_read_bytes,
    write=_write_bytes,
    arrow_name="binary",
    arrow_formats="[zZ]|vz|w:.*",
)

FAMILIES: Final = {
    "text": Family(render=check_utf8, text_prefix=b""),
    "char": Family(render=_render_char),
    "jsonb": Family(render=_render_versioned, text_prefix=_VERSION),
    "jsonpath": Family(render=_render_versioned, text_prefix=_VERSION),
    "bytea": _BYTEA,
    # The meaning of its bytes is not known: rendered as a bytea would be.
    "unknown": replace(
        _BYTEA, read_text=None, arrow_name="binary (its binary form)", arrow_formats="[zZ]|vz"
    ),
}
