"""Data files of a Delta table, which Spark's tasks write with delta-rs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from pgwire_codec.errors import TableError
from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.reduction.map_in_arrow import map_in_arrow
from pgwire_codec.spark.sinks.delta_table import deltalake

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

#: Folder of a table's commits, and the first one.
_LOG: Final = "_delta_log"
_FIRST: Final = f"{_LOG}/{0:020}.json"

#: Column of what a task returns: the ``add`` action of a file, as JSON.
_ADDED: Final = pa.schema({"added": pa.string()})


def write_files(
    rows: DataFrame, names: Sequence[str], path: str, storage_options: Mapping[str, str]
) -> list[AddAction]:
    """Write rows into new files in the folder of a Delta table; return what a commit has to add.

    Tasks write rows as they come, and keep few of them. Before a commit, the files are not a part
    of the table.

    Parameters
    ----------
    rows : DataFrame
        Rows with the columns of the table.
    names : sequence of str
        Names that the columns have in the table.
    path : str
        Absolute path or URI of the table, which need not exist.
    storage_options : mapping of str to str
        As for ``deltalake.DeltaTable``.

    Raises
    ------
    TableError
        If the executors write to another disk than the one that this process sees.
    """
    from deltalake.transaction import AddAction

    folder = str(uuid.uuid4())
    options = dict(storage_options)
    write = _writing(f"{path}/{folder}", list(names), options)
    files = _files(path, options)
    try:
        tasks = map_in_arrow(rows, write, spark_schema(_ADDED))
        found = [json.loads(added) for (added,) in tasks.collect()]
        paths = [f"{folder}/{each['path']}" for each in found]
        if any(each.type != FileType.File for each in files.get_file_info(paths)):
            raise TableError(
                f"the executors wrote files of {path} that the driver does not find",
                hint="Use a folder that all machines of the cluster share, or an object store.",
            )
    except Exception:
        with suppress(FileNotFoundError):
            files.delete_dir(folder)
        raise
    return [
        AddAction(
            name,
            each["size"],
            each["partitionValues"],
            each["modificationTime"],
            each["dataChange"],
            each["stats"],
        )
        for name, each in zip(paths, found, strict=True)
    ]


def _writing(
    folder: str, names: list[str], options: dict[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (each.rename_columns(names) for each in batches if each.num_rows)
        first = next(filled, None)
        if first is not None:
            rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], filled))
            yield pa.record_batch([_write(folder, rows, options)], _ADDED)

    return run


def _write(folder: str, rows: pa.RecordBatchReader, options: dict[str, str]) -> list[str]:
    """Write rows into new files in a folder; return their ``add`` actions, relative to it.

    delta-rs writes a table, which has the statistics of its files, and of which only the files
    remain.
    """
    name = str(uuid.uuid4())
    deltalake().write_deltalake(f"{folder}/{name}", rows, storage_options=options or None)
    files = _files(f"{folder}/{name}", options)
    with files.open_input_stream(_FIRST) as commit:
        actions = [json.loads(line) for line in commit.read().splitlines()]
    files.delete_dir(_LOG)
    added = [action["add"] for action in actions if "add" in action]
    return [json.dumps({**each, "path": f"{name}/{each['path']}"}) for each in added]


def _files(path: str, options: dict[str, str]) -> FileSystem:
    """Return the file system with the paths in a folder."""
    from deltalake.fs import DeltaStorageHandler

    if "://" in path:
        return PyFileSystem(DeltaStorageHandler(path, options))
    # That of delta-rs does not remove folders.
    return SubTreeFileSystem(path, LocalFileSystem())
