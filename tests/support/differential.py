"""The compiled implementation and the reference, asked the same and compared in all they answer.

The result or the error of either becomes plain Python data that ``==`` compares: arrays with their
dtype, shape and bytes, dataclasses field by field, errors with all of their attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import nanoarrow
import numpy as np
import pyarrow as pa

import pgwire_codec as pgc
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.column import Column
from pgwire_codec.changes.record_batch import build
from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.values import ValueProblem
from tests.support.implementations import implementation


def plain(value: Any) -> Any:
    """The same as data without identity, in which nothing equals what is not the same."""
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype.hasobject else value.tobytes()
        return "array", str(value.dtype), value.shape, data
    if isinstance(value, pgc.DecodeError):
        return ("DecodeError", *value.args)
    if isinstance(value, pgc.EncodeError):
        return "EncodeError", str(value)
    if isinstance(value, ValueProblem):
        return "ValueProblem", value.code, value.row, value.offset, value.expected, value.hint
    if isinstance(value, nanoarrow.Array):
        return "Array", value.to_pylist()
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(plain(getattr(value, f.name)) for f in fields(value)))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(plain, value)
    if isinstance(value, dict):
        return "dict", *((plain(key), plain(item)) for key, item in value.items())
    return type(value).__name__, value


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Result of a call, or its error if it is one of the package's; other errors are not caught."""
    try:
        return plain(call(*args, **options))
    except (pgc.DecodeError, pgc.EncodeError, ValueProblem) as error:
        return plain(error)


def differential(name: str, *args: Any, **options: Any) -> Any:
    """Call a function of both implementations, and return the outcome, which must be the same."""
    ours = outcome(getattr(implementation("cython"), name), *args, **options)
    theirs = outcome(getattr(implementation("python"), name), *args, **options)
    assert ours == theirs
    return ours


# Whole decoders.


class Pair:
    """A decoder of each implementation, which are given the same."""

    def __init__(self, **options: Any) -> None:
        self.ours = implementation("cython").Decoder(**options)
        self.theirs = implementation("python").Decoder(**options)

    def decode(self, messages: Any, lsn: Any = None) -> str | None:
        """Decode by both, and compare; the error's code if both raised the same."""
        seen = [observed(each, messages, lsn) for each in (self.ours, self.theirs)]
        for ours, theirs in zip(*seen, strict=True):
            assert ours == theirs
        error = seen[0][0][1]
        return error[1] if error[0] == "DecodeError" else None


def observed(decoder: Any, messages: Any, lsn: Any = None) -> list[tuple[Any, ...]]:
    """All that a decoder shows of the messages: named parts, the error or the outcome first."""
    try:
        changes = decoder.decode(messages, lsn)
    except pgc.DecodeError as error:
        found = [("raised", plain(error))]
    else:
        found = [
            ("decoded", plain(len(changes))),
            ("transactions", plain(changes.transactions)),
            ("logical messages", plain(changes.logical_messages)),
            ("rejected", plain(changes.rejected)),
            ("warnings", plain(changes.warnings)),
        ]
        for number, batch in enumerate(changes):
            found += [(number, *part) for part in of_batch(batch)]
    return [
        *found,
        ("pending", plain(decoder.pending)),
        ("relations", plain(dict(decoder.relations))),
        ("carry", plain(decoder.carry)),
    ]


def of_batch(batch: ChangeBatch) -> Iterator[tuple[Any, ...]]:
    """All that a batch shows: metadata, each column's places and values, the record batch."""
    yield "relation", plain(batch.relation)
    for name in ("op", "xid", "commit_lsn", "commit_time", "seq", "lsn", "origin"):
        yield name, plain(getattr(batch, name))
    for which in ("old", "new"):
        for column in getattr(batch, which).values():
            yield which, column.name, *of_column(column)
    yield "built", outcome(lambda: build(batch, batch.record_plan())[0])
    yield "record batch", outcome(serialized, batch)


def serialized(batch: ChangeBatch) -> tuple[pa.Schema, bytes]:
    """The record batch as it would be sent, after a check of what Arrow requires."""
    records = batch.to_arrow()
    records.validate(full=True)
    return records.schema, records.serialize().to_pybytes()


def of_column(column: Column) -> Iterator[Any]:
    yield plain(column.type)
    yield from (plain(getattr(column, each)) for each in ("state", "offsets", "lengths", "formats"))
    yield outcome(column.decode)
    yield [(row, plain(error)) for row, error in column.errors()]


# Function by function.


def exact(pieces: Iterable[bytes]) -> Messages:
    """An input array whose last byte is the last that may be read: a sanitizer sees one more."""
    several = list(pieces)
    data = np.frombuffer(b"".join(several), np.uint8).copy()
    data.flags.writeable = False
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in several], dtype=np.int64)])
    return Messages(data, offsets)


def same_functions(
    messages: Messages,
    *,
    streaming: bool,
    columns: int,
    wanted: Sequence[tuple[int, Any]],
    unrepresentable: str = "null",
) -> Any:
    """Compare scan, and tuples and decode_columns of all changes that it accepts; give scan's."""
    found = differential("scan", messages, streaming=streaming, skip=True)
    differential("scan", messages, streaming=streaming, skip=False)
    table = implementation("python").scan(messages, streaming=streaming, skip=True)
    rows = np.flatnonzero((table.body >= 0) | (table.kind == ord("T")))
    place = (messages, rows, table.body[rows], columns)
    differential("tuples", *place)
    for which in ("old", "new", "current"):
        differential("decode_columns", *place, which, wanted, unrepresentable=unrepresentable)
    return found
