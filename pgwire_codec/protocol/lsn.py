"""Log sequence numbers: integers, and their text form ``X/X``."""

from __future__ import annotations

import operator
import re

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)


def format_lsn(lsn: int) -> str:
    """Write an LSN as PostgreSQL's ``pg_lsn`` does: ``format_lsn(0x16B374D848) == "16/B374D848"``.

    Raises ``ValueError`` when it does not fit 64 bits.
    """
    lsn = operator.index(lsn)  # numpy's integers, too; TypeError for other types
    if not 0 <= lsn < 1 << 64:
        raise ValueError(f"LSN must be an int from 0 to 2**64 - 1, not {lsn!r}")
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Read an LSN as ``pg_lsn`` does: ``parse_lsn("16/B374D848") == 0x16B374D848``.

    Raises ``ValueError`` for anything but two hexadecimal numbers of 1 to 8 digits around a slash.
    """
    if not isinstance(text, str):
        raise TypeError(f"LSN must be a str like 16/B374D848, not {type(text).__name__}")
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"LSN must be written like 16/B374D848, not {text!r}")
    return int(match[1], 16) << 32 | int(match[2], 16)
