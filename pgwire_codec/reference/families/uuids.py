"""uuid: 16 bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import check_size, refuse
from pgwire_codec.types import ColumnType

_TEXT: Final = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _read_text(raw: bytes) -> bytes:
    if not _TEXT.fullmatch(raw):
        refuse("a uuid: 32 hexadecimal digits as 8-4-4-4-12")
    return bytes.fromhex(raw.replace(b"-", b"").decode())


def _read_binary(raw: bytes) -> bytes:
    return check_size(raw, 16, "uuid")


def _render(raw: bytes) -> bytes:
    digits = _read_binary(raw).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def _write(column: ColumnType, formats: Sequence[str], value: bytes) -> bytes:
    return value


FAMILIES: Final = {
    "uuid": Family(
        render=_render,
        read_text=_read_text,
        read_binary=_read_binary,
        write=_write,
        arrow_name="fixed_size_binary(16)",
        arrow_formats="w:16",
    ),
}
