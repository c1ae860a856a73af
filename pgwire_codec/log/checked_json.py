"""JSON files that know when a byte of them is not what was written."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from pgwire_codec.errors import LogError

#: The last member is the CRC-32 of all bytes before its comma.
_MARK: Final = b',"checksum":'


def dump(value: dict[str, Any]) -> bytes:
    """Give the file of a JSON object that has at least one member."""
    body = json.dumps(value, separators=(",", ":")).encode("ascii")[:-1]
    return body + _ending(body)


def load(data: bytes, file: str) -> dict[str, Any]:
    """Give the object of a file; ``LogError`` when a byte is wrong. ``file`` is for people."""
    body = data[: data.rfind(_MARK)] if _MARK in data else b""
    if not body or data[len(body) :] != _ending(body):
        raise LogError(
            f"{file} is damaged: its bytes do not have the checksum that it ends with. Restore "
            "this file from a copy of the log."
        )
    value: dict[str, Any] = json.loads(body + b"}")
    return value


def _ending(body: bytes) -> bytes:
    return b"%s%d}\n" % (_MARK, zlib.crc32(body))
