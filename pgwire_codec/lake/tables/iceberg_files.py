"""Files of Iceberg tables, in the JSON of Iceberg's scan tasks, and files of deletion vectors.

Java parses and writes that JSON, so that one call passes the facts of many files. See
``ContentFile`` in Iceberg's REST catalog specification. Vectors are in Puffin files: see Iceberg's
Puffin specification.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec import __version__
from pgwire_codec.errors import TableError
from pgwire_codec.lake.data_files import Bounds, NewFile
from pgwire_codec.lake.folder import Folder, is_inside
from pgwire_codec.lake.table_files import DataFile
from pgwire_codec.lake.tables.iceberg_metrics import file_metrics
from pgwire_codec.lake.tables.iceberg_schema import Columns, field_id
from pgwire_codec.lake.vectors import StoredVector, to_blob

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC: Final = b"PFA1"

_FLAGS: Final = bytes(4)  # flags of a footer that is not compressed

#: Field IDs of the position of a row in its file, and of the file's location.
_ROW_POSITION: Final = 2147483645
_FILE_LOCATION: Final = 2147483546

_WRITERS: Final = 8  # files that are written at the same time

_DELETES_HINT: Final = (
    "Have Iceberg write the table's files again: CALL CATALOG.system.rewrite_data_files with the "
    "options rewrite-all and remove-dangling-deletes."
)


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A data file of a snapshot."""

    task: int  # number of its scan task
    location: str  # its location, as other files refer to it
    file: DataFile


def local_path(location: str) -> str:
    """Return a location without the scheme of local files, which may or may not be there."""
    if location.startswith("file:"):
        path = location.removeprefix("file:")
        return "/" + path.lstrip("/")
    return location


def scanned_files(name: str, location: str, columns: Columns, tasks: str) -> dict[str, ScannedFile]:
    """Return the data files of a response with scan tasks, by path.

    Raises ``TableError`` for files that this package cannot change or read.
    """
    response = json.loads(tasks)
    folder = local_path(location).rstrip("/") + "/"
    deletes = response.get("delete-files", [])
    files = {}
    for number, task in enumerate(response.get("file-scan-tasks", [])):
        content = task["data-file"]
        if content.get("partition"):
            raise TableError(
                f"{name} is partitioned",
                hint="Have the mirror write a table without partitions: its rows can be clustered.",
            )
        if content["file-format"] != "parquet":
            raise TableError(
                f"{name} has data files in the format {content['file-format']}",
                hint="Set write.format.default to parquet, and rewrite the data files.",
            )
        path = _path(name, folder, content["file-path"])
        vector, deleted = None, 0
        for reference in task.get("delete-file-references", ()):
            vector, deleted = _vector(name, folder, deletes[reference])
        file = DataFile(
            path,
            content["file-size-in-bytes"],
            content["record-count"],
            _bounds(content, columns),
            deleted,
            vector,
        )
        files[path] = ScannedFile(number, content["file-path"], file)
    return dict(sorted(files.items()))


def data_file_json(new: NewFile, metadata: pq.FileMetaData, location: str, spec: int) -> str:
    """Return a new data file as Iceberg parses it."""
    return json.dumps({
        "spec-id": spec,
        "content": "data",
        "file-path": f"{location.rstrip('/')}/{new.path}",
        "file-format": "parquet",
        "partition": [],
        "file-size-in-bytes": new.size,
        "record-count": new.rows,
        **file_metrics(metadata, new.bounds),
    })  # fmt: skip


def write_vectors(
    folder: Folder, location: str, spec: int, vectors: Mapping[str, BitMap64]
) -> dict[str, str]:
    """Write the vectors of data files, by their locations, into a new file each.

    Return each as Iceberg parses it. The table has a location and the ID of a partition spec. Of
    several vectors in a file, DuckDB 1.5 mixes up some; polars needs the bounds of the location.
    """

    def write(data_file: str) -> str:
        data, length = puffin(data_file, vectors[data_file])
        path = f"data/{uuid.uuid4()}-deletes.puffin"
        folder.create(path, data)
        bounds = {"keys": [_FILE_LOCATION], "values": [data_file.encode().hex()]}
        return json.dumps({
            "spec-id": spec,
            "content": "position-deletes",
            "file-path": f"{location.rstrip('/')}/{path}",
            "file-format": "puffin",
            "partition": [],
            "file-size-in-bytes": len(data),
            "record-count": len(vectors[data_file]),
            "lower-bounds": bounds,
            "upper-bounds": bounds,
            "referenced-data-file": data_file,
            "content-offset": len(_MAGIC),
            "content-size-in-bytes": length,
        })  # fmt: skip

    with ThreadPoolExecutor(_WRITERS) as threads:
        return dict(zip(vectors, threads.map(write, vectors), strict=True))


def puffin(location: str, vector: BitMap64) -> tuple[bytes, int]:
    """Return the content of a file of a data file's vector, and the vector's length."""
    blob = to_blob(vector)
    metadata = {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": len(_MAGIC),
        "length": len(blob),
        "properties": {"referenced-data-file": location, "cardinality": str(len(vector))},
    }
    properties = {"created-by": f"pgwire_codec {__version__}"}
    footer = json.dumps({"blobs": [metadata], "properties": properties}).encode()
    size = struct.pack("<i", len(footer))
    return b"".join((_MAGIC, blob, _MAGIC, footer, size, _FLAGS, _MAGIC)), len(blob)


def _path(name: str, folder: str, location: str) -> str:
    path = local_path(location)
    if not (path.startswith(folder) and is_inside(path.removeprefix(folder))):
        raise TableError(
            f"{name} has the file {location} outside of its folder {folder}",
            hint="Remove the table property write.data.path, and rewrite the data files.",
        )
    return path.removeprefix(folder)


def _vector(name: str, folder: str, delete: Mapping[str, Any]) -> tuple[StoredVector, int]:
    if delete["content"] != "position-deletes":
        raise TableError(f"{name} has equality deletes", hint=_DELETES_HINT)
    if delete["file-format"] != "puffin":
        raise TableError(
            f"{name} has deleted rows in files that are not deletion vectors", hint=_DELETES_HINT
        )
    path = _path(name, folder, delete["file-path"])
    count = delete["record-count"]
    stored = StoredVector(
        path, delete["content-offset"], delete["content-size-in-bytes"], count=count
    )
    return stored, count


def _bounds(content: Mapping[str, Any], columns: Columns) -> Bounds:
    """Return the bounds of the columns that have an int or a text."""
    lower, upper = _entries(content, "lower-bounds"), _entries(content, "upper-bounds")
    nulls = _entries(content, "null-value-counts")
    bounds = Bounds()
    for column in columns.schema:
        number = field_id(column)
        if number in nulls:
            bounds.nulls[column.name] = nulls[number]
        if number in lower and number in upper:
            first, last = _decode(column.type, lower[number]), _decode(column.type, upper[number])
            if first is not None and last is not None:
                bounds.lower[column.name], bounds.upper[column.name] = first, last
    return bounds


def _entries(content: Mapping[str, Any], name: str) -> dict[int, Any]:
    entries = content.get(name, {"keys": (), "values": ()})
    return dict(zip(entries["keys"], entries["values"], strict=True))


def _decode(kind: pa.DataType, text: str) -> int | str | None:
    data = bytes.fromhex(text)
    if pa.types.is_signed_integer(kind):
        # Files from before the column was wider have shorter ones.
        return int.from_bytes(data, "little", signed=True)
    if pa.types.is_string(kind):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None
    return None
