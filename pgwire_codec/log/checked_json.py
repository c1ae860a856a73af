"""JSON files with a checksum and a format version, read through typed schemas."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
import xxhash

from pgwire_codec.errors import LogError

#: Version of the log's format: of segments, sidecars, the watermark and the manifest. A reader
#: refuses one that it does not know.
FORMAT: Final = 2

#: A number of messages, of bytes, or an ordinal.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

#: The last member is the checksum of all bytes before its comma.
_MARK: Final = b',"checksum":'

RESTORE: Final = "Restore this file from a copy of the log."

_T = TypeVar("_T")


class _Format(msgspec.Struct):
    format: int


def checksum(data: Any) -> str:
    """Return the checksum of bytes: XXH3 with 64 bits, 16 hexadecimal digits."""
    return xxhash.xxh3_64_hexdigest(data)


def dump(value: Any) -> bytes:
    """Return the file of a struct or dataclass that has at least one field."""
    body = b'{"format":%d,' % FORMAT + msgspec.json.encode(value)[1:-1]
    return body + _ending(body)


def load(data: bytes, kind: type[_T], file: str) -> _T:
    """Return the value in a file.

    Parameters
    ----------
    data : bytes
        The file.
    kind : type
        The value's class, whose annotations are the schema.
    file : str
        The file's name for messages.

    Raises
    ------
    LogError
        When a byte is wrong, the format version is unknown, or the content is not of this type.
    """
    body = data[: data.rfind(_MARK)] if _MARK in data else b""
    if not body or data[len(body) :] != _ending(body):
        raise LogError(f"{file} is damaged: its checksum does not match its bytes", hint=RESTORE)
    try:
        check_format(msgspec.json.decode(data, type=_Format).format, file)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(file, error) from error


def invalid(file: str, reason: object) -> LogError:
    """Return the error for a file whose checksum is right and whose content is invalid."""
    return LogError(f"{file} has invalid content: {reason}", hint=RESTORE)


def check_format(found: int, file: str) -> None:
    """Raise ``LogError`` for a version of the format that is not this one."""
    if found != FORMAT:
        raise LogError(
            f"{file} has format version {found}, and this release reads version {FORMAT}",
            hint="Use the release of pgwire-codec that wrote the log, or a newer one.",
        )


def _ending(body: bytes) -> bytes:
    return _MARK + b'"%s"}\n' % checksum(body).encode("ascii")
