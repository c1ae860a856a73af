"""Deletion vectors: positions of a data file's deleted rows, in the bytes of Delta and Iceberg.

Both formats have the same blob: the length of what follows up to the checksum (int32, big endian);
a magic number (int32, little endian); a 64-bit roaring bitmap in its portable form; the CRC-32 of
magic number and bitmap (uint32, big endian). See "Deletion Vectors" in Delta's protocol and
`deletion-vector-v1` in Iceberg's Puffin specification.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec.errors import missing_extra
from pgwire_codec.lake.comparison import Numbers
from pgwire_codec.lake.folder import Folder

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC: Final = struct.pack("<i", 1681511377)
_LENGTH: Final = struct.Struct(">i")
_CHECKSUM: Final = struct.Struct(">I")

#: Bytes of length and checksum around a vector in a file.
AROUND: Final = _LENGTH.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A vector in a file of its table, or with its bytes at hand."""

    path: str = ""  # in the table's folder; empty without a file
    offset: int = 0  # of the blob in the file
    size: int = 0  # of the blob in bytes
    inline: bytes | None = None  # magic number and bitmap of a vector without a file
    count: int | None = None  # of its positions, if the table records it

    def read(self, folder: Folder) -> BitMap64:
        """Return the vector. Raises ``ValueError`` or ``FileNotFoundError``."""
        if self.inline is not None:
            vector = deserialize(self.inline)
        else:
            vector = from_blob(folder.read(self.path, self.offset, self.size))
        if self.count not in (None, len(vector)):
            raise ValueError(
                f"a deletion vector has {len(vector)} positions, and the table records {self.count}"
            )
        return vector


def bitmap(positions: Iterable[int]) -> BitMap64:
    """Return a bitmap of positions."""
    try:
        from pyroaring import BitMap64
    except ImportError:
        raise missing_extra("deletion vectors need pyroaring", "lake") from None
    return BitMap64(positions)


def positions_of(vector: BitMap64) -> Numbers:
    """Return the positions of a bitmap, ascending."""
    return np.fromiter(vector, np.int64, len(vector))


def serialize(vector: BitMap64) -> bytes:
    """Return the magic number and the bitmap: a vector without length and checksum."""
    data: bytes = vector.serialize()
    return _MAGIC + data


def deserialize(data: bytes) -> BitMap64:
    """Return the vector that :func:`serialize` wrote. Raises ``ValueError`` for other bytes."""
    if data[:4] != _MAGIC:
        raise ValueError(f"invalid magic number {data[:4].hex()} of a deletion vector")
    return bitmap(()).deserialize(data[4:])


def to_blob(vector: BitMap64) -> bytes:
    """Return a vector as a file has it, with its length and checksum."""
    data = serialize(vector)
    return _LENGTH.pack(len(data)) + data + _CHECKSUM.pack(zlib.crc32(data))


def from_blob(blob: bytes) -> BitMap64:
    """Return the vector at the beginning of some bytes. Raises ``ValueError`` if it is damaged."""
    if len(blob) < _LENGTH.size + _CHECKSUM.size:
        raise ValueError(f"a deletion vector has {len(blob)} bytes only")
    (length,) = _LENGTH.unpack_from(blob)
    data = blob[_LENGTH.size : _LENGTH.size + length]
    if length < len(_MAGIC) or len(blob) < _LENGTH.size + length + _CHECKSUM.size:
        raise ValueError(f"a deletion vector of {length} bytes has {len(blob)} bytes only")
    (checksum,) = _CHECKSUM.unpack_from(blob, _LENGTH.size + length)
    if checksum != zlib.crc32(data):
        raise ValueError("a deletion vector does not match its checksum")
    return deserialize(data)
