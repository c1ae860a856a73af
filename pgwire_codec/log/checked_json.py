"""JSON files with a checksum and a format version, read through typed schemas."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
import xxhash

from pgwire_codec.errors import LogError

#: Version of the log's format: of segments, sidecars, the watermark and the manifest. Each file has
#: its own: a log that an earlier release began contains files of several versions.
FORMAT: Final = 4
#: Oldest version that is read. In version 2 each segment contains all relations known before it; up
#: to version 3 its file has ordinals, LSNs and times as they are, not their differences.
OLDEST_FORMAT: Final = 2

#: A number of messages, of bytes, or an ordinal.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

#: The last member is the checksum of all bytes before its comma.
_MARK: Final = b',"checksum":'

RESTORE: Final = "Restore this file from a copy of the log."

#: Decoders by type. They are made one at a time: msgspec ends the process if a thread uses a type
#: of which another one is making the decoder.
_DECODERS: Final[dict[type, Any]] = {}
_MAKING: Final = threading.Lock()

_T = TypeVar("_T")
_V = TypeVar("_V")


class _FormatVersion(msgspec.Struct):
    format: int


def checksum(data: Any) -> str:
    """Return the checksum of bytes: XXH3 with 64 bits, 16 hexadecimal digits."""
    return xxhash.xxh3_64_hexdigest(data)


def dump(value: Any) -> bytes:
    """Return the file that contains a struct or dataclass with at least one field."""
    body = b'{"format":%d,' % FORMAT + msgspec.json.encode(value)[1:-1]
    return body + _ending(body)


def load(data: bytes, kind: type[_T], file: str) -> _T:
    """Return the value in a file.

    Parameters
    ----------
    data : bytes
        Content of the file.
    kind : type
        Class of the value, whose annotations are the schema.
    file : str
        Name of the file in errors.

    Raises
    ------
    LogError
        When a byte is wrong, the format version is unknown, or the content is not of this class.
    """
    body = data[: data.rfind(_MARK)] if _MARK in data else b""
    if not body or data[len(body) :] != _ending(body):
        raise damaged(file)
    try:
        check_format(decoder(_FormatVersion).decode(data).format, file)
        return decoder(kind).decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(file, error) from error


def converted(value: object, kind: type[_T], **changed: Any) -> _T:
    """Return a struct or dataclass of a class that has the fields of another value.

    Parameters
    ----------
    value : object
        Struct or dataclass.
    kind : type
        Class of the result.
    **changed
        Fields of the result that differ from those of the value.
    """
    same = {name: getattr(value, name) for name in kind.__annotations__ if name not in changed}
    return kind(**same, **changed)


def optional(convert: Callable[[_V], _T], value: _V | None) -> _T | None:
    """Return a converted value, or None for None."""
    return None if value is None else convert(value)


def damaged(file: str) -> LogError:
    """Return the error for a file whose checksum is wrong."""
    return LogError(f"{file} is damaged: its checksum does not match its bytes", hint=RESTORE)


def invalid(file: str, reason: object) -> LogError:
    """Return the error for a file whose checksum is right and whose content is invalid."""
    return LogError(f"{file} has invalid content: {reason}", hint=RESTORE)


def check_format(found: int, file: str) -> None:
    """Raise ``LogError`` for a version of the format that is not read."""
    if not OLDEST_FORMAT <= found <= FORMAT:
        raise LogError(
            f"{file} has format version {found}, and this release reads versions {OLDEST_FORMAT} "
            f"to {FORMAT}",
            hint="Use the release of pgwire-codec that wrote the log, or a newer one.",
        )


def _ending(body: bytes) -> bytes:
    return _MARK + b'"%s"}\n' % checksum(body).encode("ascii")


def decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return the decoder of a type, which several threads can use."""
    with _MAKING:
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
        found: msgspec.json.Decoder[_T] = _DECODERS[kind]
    return found
