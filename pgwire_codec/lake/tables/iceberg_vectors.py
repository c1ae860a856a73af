"""Deletion vectors of Iceberg tables: Puffin files, as Iceberg's Puffin specification has them."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec import __version__
from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.vectors import to_blob

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC: Final = b"PFA1"

#: Flags of a footer that is not compressed.
_FLAGS: Final = bytes(4)

#: Field ID of the position of a row in its file.
_ROW_POSITION: Final = 2147483645


def write_vectors(
    folder: Folder, location: str, spec: int, vectors: Mapping[str, BitMap64]
) -> dict[str, str]:
    """Write the vectors of data files, by their locations, into a new file.

    Return each as Iceberg parses it. The table has a location and the ID of a partition spec.
    """
    if not vectors:
        return {}
    data, blobs = puffin(vectors)
    path = f"data/{uuid.uuid4()}-deletes.puffin"
    folder.create(path, data)
    return {
        data_file: json.dumps({
            "spec-id": spec,
            "content": "position-deletes",
            "file-path": f"{location.rstrip('/')}/{path}",
            "file-format": "puffin",
            "partition": [],
            "file-size-in-bytes": len(data),
            "record-count": len(vectors[data_file]),
            "referenced-data-file": data_file,
            "content-offset": offset,
            "content-size-in-bytes": length,
        })
        for data_file, (offset, length) in blobs.items()
    }  # fmt: skip


def puffin(vectors: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return the content of a file of vectors, and offset and length of each in it."""
    content, blobs = bytearray(_MAGIC), {}
    metadata: list[dict[str, Any]] = []
    for location, vector in vectors.items():
        blob = to_blob(vector)
        blobs[location] = len(content), len(blob)
        metadata.append({
            "type": "deletion-vector-v1",
            "fields": [_ROW_POSITION],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": len(content),
            "length": len(blob),
            "properties": {"referenced-data-file": location, "cardinality": str(len(vector))},
        })  # fmt: skip
        content += blob
    properties = {"created-by": f"pgwire_codec {__version__}"}
    footer = json.dumps({"blobs": metadata, "properties": properties}).encode()
    content += _MAGIC + footer + struct.pack("<i", len(footer)) + _FLAGS + _MAGIC
    return bytes(content), blobs
