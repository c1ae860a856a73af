"""Staged rows: Parquet files of a table's decoded rows, which Spark reads without Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs, parquet

#: Neither dictionaries nor statistics: the files are read once or twice, and completely.
_OPTIONS: Final[Mapping[str, Any]] = {
    "compression": "lz4",
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
}


@dataclass(frozen=True, slots=True)
class Staging:
    """Place of the files of one partition.

    A partition always has the same rows, so a task that runs again writes the same files again.

    Attributes
    ----------
    folder : str
        Path or URI of a folder, with a folder for each table in it.
    name : str
        Name of the partition, by which its files are named.
    """

    folder: str
    name: str


class StagedFiles:
    """Writes the rows of tables, by OID, each into a Parquet file."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._filesystem, self._folder = filesystem_of(staging.folder)
        self._open: dict[int, tuple[Any, str]] = {}
        self.rows: dict[int, int] = {}  #: number of rows, by table

    def __contains__(self, oid: int) -> bool:
        return oid in self._open

    def write(self, oid: int, records: pa.Table) -> None:
        """Append rows to the file of a table, as a group of rows."""
        if oid not in self._open:
            folder = f"{self._folder}/{oid}"
            self._filesystem.create_dir(folder)
            # Spark does not read files that begin with a dot.
            path = f"{folder}/.{self._staging.name}-{uuid4().hex}"
            writer = parquet.ParquetWriter(
                path, records.schema, filesystem=self._filesystem, **_OPTIONS
            )
            self._open[oid] = writer, path
        self._open[oid][0].write_table(records)
        self.rows[oid] = self.rows.get(oid, 0) + len(records)

    def close(self) -> None:
        """Complete the files: before, Spark does not read them."""
        for oid, (writer, path) in self._open.items():
            writer.close()
            self._filesystem.move(path, f"{self._folder}/{oid}/{self._staging.name}.parquet")
        self._open.clear()


def filesystem_of(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, which may be one of Hadoop, and the path in it."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return fs.LocalFileSystem(), uri
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(
        f"{'s3' if scheme == 's3a' else scheme}://{rest}"
    )
    return found


def spark_uri(folder: str) -> str:
    """Return a folder as Spark takes it: a path alone may be one of another file system."""
    return folder if "://" in folder else f"file://{folder}"


def fits_parquet(schema: pa.Schema) -> bool:
    """Return whether Spark finds each column of a schema in a Parquet file again.

    It finds them by names, of which case does not matter. A struct needs a field.
    """
    return _fits(list(schema))


def _fits(fields: list[pa.Field]) -> bool:
    names = {field.name.lower() for field in fields}
    if not names or len(names) < len(fields):
        return False
    for field in fields:
        kind = field.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind) and not _fits(list(kind)):
            return False
    return True
