"""Deletion vectors of Delta tables: small ones in the commit, others in a file of the table."""

from __future__ import annotations

import base64
import string
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import TableError
from pgwire_codec.lake.folder import Folder, is_inside
from pgwire_codec.lake.vectors import AROUND, StoredVector, serialize, to_blob

if TYPE_CHECKING:
    from pyroaring import BitMap64

#: Bytes of a vector that are repeated in each commit of its file.
_INLINE_BYTES: Final = 1 << 10

_FILE_VERSION: Final = b"\x01"  # first byte of a file of vectors

_UUID_DIGITS: Final = 20

#: Digits of ZeroMQ's RFC 32, and those of the same numbers in Python.
_Z85: Final = string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#"
_BASE85: Final = (
    string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
)
_ENCODE: Final = str.maketrans(_BASE85, _Z85)
#: Python's digits that RFC 32 lacks are invalid, as a space is.
_DECODE: Final = str.maketrans(_Z85 + ";_`|~", _BASE85 + 5 * " ")


def write_vectors(folder: Folder, vectors: Sequence[BitMap64]) -> list[dict[str, Any]]:
    """Return the descriptors of vectors; write large ones into one new file."""
    descriptors: list[dict[str, Any]] = []
    identity = uuid.uuid4()
    file = bytearray(_FILE_VERSION)
    for vector in vectors:
        data = serialize(vector)
        descriptor: dict[str, Any] = {"sizeInBytes": len(data), "cardinality": len(vector)}
        if len(data) <= _INLINE_BYTES:
            padded = data + bytes(-len(data) % 4)
            descriptor |= {"storageType": "i", "pathOrInlineDv": z85_encode(padded)}
        else:
            path = z85_encode(identity.bytes)
            descriptor |= {"storageType": "u", "pathOrInlineDv": path, "offset": len(file)}
            file += to_blob(vector)
        descriptors.append(descriptor)
    if len(file) > len(_FILE_VERSION):
        folder.create(_path("", identity), bytes(file))
    return descriptors


def stored_vector(table: str, descriptor: Mapping[str, Any]) -> StoredVector:
    """Return the place of a vector.

    Raises ``TableError`` for one in another folder, ``ValueError`` or ``LookupError`` for another
    object.
    """
    kind, text, size = (
        descriptor[name] for name in ("storageType", "pathOrInlineDv", "sizeInBytes")
    )
    count = descriptor["cardinality"]
    if kind == "i":
        return StoredVector(inline=z85_decode(text)[:size], count=count)
    if kind == "u" and is_inside(path := vector_path(descriptor)):
        return StoredVector(path, descriptor.get("offset", 1), size + AROUND, count=count)
    raise TableError(
        f"{table} has the deletion vector {text} outside of its folder, as a shallow clone does",
        hint="Use a table with files of its own.",
    )


def vector_path(descriptor: Mapping[str, Any]) -> str:
    """Return the path of a vector's file in the table's folder. Raises ``ValueError``."""
    text: str = descriptor["pathOrInlineDv"]
    prefix, digits = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    return _path(prefix, uuid.UUID(bytes=z85_decode(digits)))


def _path(prefix: str, identity: uuid.UUID) -> str:
    name = f"deletion_vector_{identity}.bin"
    return f"{prefix}/{name}" if prefix else name


def z85_encode(data: bytes) -> str:
    """Return bytes, whose number is divisible by four, as ZeroMQ's RFC 32 encodes them."""
    return base64.b85encode(data).decode().translate(_ENCODE)


def z85_decode(text: str) -> bytes:
    """Return the bytes that :func:`z85_encode` encoded. Raises ``ValueError`` for other texts."""
    if len(text) % 5:
        raise ValueError(f"{len(text)} digits in base 85 are not a number of words")
    return base64.b85decode(text.translate(_DECODE))
