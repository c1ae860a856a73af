"""Data files of a Delta table, which Spark's tasks write with delta-rs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from pgwire_codec.errors import TableError
from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.reduction.map_in_arrow import map_in_arrow
from pgwire_codec.spark.sinks.delta_bounds import bounds_property
from pgwire_codec.spark.sinks.delta_table import deltalake, writer_properties

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

#: Folder of a table's commits.
_LOG: Final = "_delta_log"

#: Begin of the property of a constraint.
_CONSTRAINT: Final = "delta.constraints."

#: Column of what a task returns: the ``add`` action of a file, as JSON.
_ADDED: Final = pa.schema({"added": pa.string()})


@dataclass(frozen=True, slots=True)
class TableForm:
    """Form of a table, which its files have.

    Attributes
    ----------
    schema : str
        Columns, as the Delta protocol writes them in JSON.
    partition_by : list of str
        Columns of the partitions.
    constraints : dict of str to str
        Conditions in SQL, by name.
    """

    schema: str
    partition_by: list[str] = field(default_factory=list)
    constraints: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: DeltaTable, schema: str | None = None) -> TableForm:
        """Return the form of a table; with ``schema``, the one that it will have then."""
        metadata = table.metadata()
        constraints = {
            name.removeprefix(_CONSTRAINT): condition
            for name, condition in metadata.configuration.items()
            if name.startswith(_CONSTRAINT) and condition is not None
        }
        return cls(schema or table.schema().to_json(), metadata.partition_columns, constraints)

    def create(self, path: str, options: dict[str, str]) -> DeltaTable:
        """Create an empty table of this form."""
        delta = deltalake()
        table: DeltaTable = delta.DeltaTable.create(
            path,
            schema=delta.Schema.from_json(self.schema),
            partition_by=self.partition_by or None,
            configuration=bounds_property(self.schema, self.partition_by),
            storage_options=options or None,
        )
        for name, condition in self.constraints.items():
            table.alter.add_constraint({name: condition})
        return table


def write_files(
    rows: DataFrame,
    names: Sequence[str],
    form: TableForm,
    path: str,
    storage_options: Mapping[str, str],
) -> list[AddAction]:
    """Write rows into new files in the folder of a Delta table; return what a commit has to add.

    Tasks write rows as they come, and keep few of them. Before a commit, the files are not a part
    of the table.

    Parameters
    ----------
    rows : DataFrame
        Rows with columns of the table. Other columns of the table are null.
    names : sequence of str
        Names that the columns have in the table.
    form : TableForm
        Form of the table.
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
    write = _writing(f"{path}/{folder}", list(names), form, options)
    files = _files(path, options)
    try:
        tasks = map_in_arrow(rows, write, spark_schema(_ADDED))
        found = [json.loads(added) for (added,) in tasks.collect()]
        # Commits have encoded paths.
        paths = [f"{folder}/{unquote(each['path'])}" for each in found]
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
    folder: str, names: list[str], form: TableForm, options: dict[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (each.rename_columns(names) for each in batches if each.num_rows)
        first = next(filled, None)
        if first is not None:
            written = _write(folder, form, chain([first], filled), options)
            yield pa.record_batch([written], _ADDED)

    return run


def _write(
    folder: str, form: TableForm, batches: Iterator[pa.RecordBatch], options: dict[str, str]
) -> list[str]:
    """Write rows into new files in a folder; return their ``add`` actions, relative to it.

    delta-rs writes a table of the same form, which has the statistics of its files. Only the files
    remain.
    """
    name = str(uuid.uuid4())
    table = form.create(f"{folder}/{name}", options)
    whole = (_with_all(batch, table) for batch in batches)
    first = next(whole)
    rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], whole))
    properties = writer_properties(form.schema)
    deltalake().write_deltalake(table, rows, mode="append", writer_properties=properties)
    table.update_incremental()
    files = _files(f"{folder}/{name}", options)
    with files.open_input_stream(f"{_LOG}/{table.version():020}.json") as commit:
        actions = [json.loads(line) for line in commit.read().splitlines()]
    files.delete_dir(_LOG)
    added = [action["add"] for action in actions if "add" in action]
    return [json.dumps({**each, "path": f"{name}/{each['path']}"}) for each in added]


def _with_all(batch: pa.RecordBatch, table: DeltaTable) -> pa.RecordBatch:
    """Return rows with all columns of a table: delta-rs appends no others."""
    for each in pa.schema(table.schema().to_arrow()):
        if each.name not in batch.schema.names:
            batch = batch.append_column(each, pa.nulls(len(batch), each.type))
    return batch


def _files(path: str, options: dict[str, str]) -> FileSystem:
    """Return the file system with the paths in a folder."""
    from deltalake.fs import DeltaStorageHandler

    if "://" in path:
        return PyFileSystem(DeltaStorageHandler(path, options))
    # That of delta-rs does not remove folders.
    return SubTreeFileSystem(path, LocalFileSystem())
