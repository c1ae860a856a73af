"""Changes of the benchmarks' tables as pgoutput messages, cached in the build directory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import pgwire_codec as pgc
from benchmarks import datasets, tables
from benchmarks.datasets import SIZES, Size
from benchmarks.encode import encode_rows
from benchmarks.shapes import LSN, XID, bounds

CACHE = Path(__file__).parent.parent / "build" / "benchmarks"


@dataclass(frozen=True)
class ChangeSet:
    """Messages with the changes of one table, without those that begin and end transactions."""

    table: str
    form: str  # text or binary
    operation: str
    relation: pgc.Relation
    messages: pa.LargeBinaryArray

    def ends(self) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
        """Return the messages before and after the changes that make them a transaction."""
        begin = pgc.encode_message(pgc.Begin(LSN, 0, XID))
        relation = pgc.encode_message(self.relation)
        commit = pgc.encode_message(pgc.Commit(0, LSN, LSN + 8, 0))
        return pa.array([begin, relation], pa.large_binary()), pa.array([commit], pa.large_binary())

    def transaction(self, first: int, count: int) -> pa.LargeBinaryArray:
        """Return some of the changes as a transaction, with their Relation."""
        before, after = self.ends()
        return pa.concat_arrays([before, self.messages.slice(first, count), after])

    def first(self, count: int) -> ChangeSet:
        """Return the first changes."""
        return replace(self, messages=self.messages.slice(0, count))

    def rest(self, start: int) -> ChangeSet:
        """Return the changes from one on."""
        return replace(self, messages=self.messages.slice(start))

    def repeated(self, count: int) -> ChangeSet:
        """Return a number of changes: the first ones, or all of them repeated."""
        times = -(-count // len(self.messages))
        many = pa.concat_arrays([self.messages] * times) if times > 1 else self.messages
        return replace(self, messages=many.slice(0, count))


# Table, form, operation; are old tuples whole; divisor of the table's number of rows.
CHANGE_SETS = {
    "lineitem text": ("lineitem", "text", "insert", False, 1),
    "lineitem binary": ("lineitem", "binary", "insert", False, 1),
    "orders text": ("orders", "text", "insert", False, 1),
    "orders binary": ("orders", "binary", "insert", False, 1),
    "accounts text": ("accounts", "text", "insert", False, 1),
    "accounts binary": ("accounts", "binary", "insert", False, 1),
    "wide text": ("wide", "text", "insert", False, 1),
    "wide binary": ("wide", "binary", "insert", False, 1),
    "documents text": ("documents", "text", "insert", False, 1),
    "documents update": ("documents", "text", "update", False, 1),
    "lineitem update": ("lineitem", "text", "update", True, 4),
    "lineitem delete": ("lineitem", "text", "delete", True, 4),
    "accounts delete": ("accounts", "text", "delete", False, 1),
}


def change_set(name: str, size: str) -> ChangeSet:
    """Return a change set, made again only if its sources have changed."""
    path = path_of(name, size)
    if not path.exists():
        table, form, operation, full, _ = CHANGE_SETS[name]
        relation, messages = _make(name, SIZES[size])
        what = f"{operation}, full old" if full else operation
        _write(path, ChangeSet(table, form, what, relation, messages))
    return read_change_set(path)


def read_change_set(path: Path) -> ChangeSet:
    """Read a cached change set into memory."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        messages = reader.get_batch(0).column(0)
        metadata = {key.decode(): value for key, value in reader.schema.metadata.items()}
    relation = pgc.decode_message(metadata.pop("relation"))
    assert isinstance(relation, pgc.Relation)
    text = {key: value.decode() for key, value in metadata.items()}
    return ChangeSet(relation=relation, messages=messages, **text)


def path_of(name: str, size: str) -> Path:
    """Return the path of a cached change set."""
    return CACHE / f"{name.replace(' ', '-')}-{size}-{_digest()}.arrow"


def small_transactions(size: str) -> pa.LargeBinaryArray:
    """Return many plain transactions of one insert each: Begin, Insert, Commit."""
    inserts = change_set("accounts text", size)
    count = len(inserts.messages)
    begin, commit = bounds(LSN + 64 * np.arange(count), XID + np.arange(count))
    relation = pa.array([pgc.encode_message(inserts.relation)], pa.large_binary())
    apart = pa.concat_arrays([begin, inserts.messages, commit, relation])
    places = np.arange(3 * count).reshape(3, count).T.ravel()
    return apart.take(pa.array(np.insert(places, 1, 3 * count)))


def _make(name: str, size: Size) -> tuple[pgc.Relation, pa.LargeBinaryArray]:
    table, form, operation, full, divisor = CHANGE_SETS[name]
    made = getattr(datasets, table)(size)
    rows = made.rows.slice(0, max(made.rows.num_rows // divisor, 1))
    relation = made.relation
    if full:  # the server then flags every column as key
        columns = tuple(replace(column, flags=1) for column in relation.columns)
        relation = replace(relation, replica_identity="f", columns=columns)
    options: dict[str, Any] = {"op": operation[0].upper(), "binary": form == "binary"}
    if operation == "update" and full:
        options["old"] = rows
    if operation == "update" and table == "documents":
        # Nine of ten updates do not change the long text.
        options["unchanged"] = {"body": np.arange(rows.num_rows) % 10 != 0}
    return relation, encode_rows(relation, rows, **options)


def _write(path: Path, made: ChangeSet) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str | bytes, str | bytes] = {
        "table": made.table,
        "form": made.form,
        "operation": made.operation,
        "relation": pgc.encode_message(made.relation),
    }
    schema = pa.schema([("message", pa.large_binary())], metadata)
    unfinished = path.with_suffix(".unfinished")
    with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write(pa.record_batch([made.messages], schema=schema))
    unfinished.replace(path)


def _digest() -> str:
    """Return a digest of the sources that define the data."""
    sources = [Path(tables.__file__), Path(datasets.__file__), Path(__file__)]
    return hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:8]
