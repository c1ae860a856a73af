"""Steps that are measured, for either implementation, as functions without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

import pgwire_codec as pgc
from benchmarks.change_sets import ChangeSet
from benchmarks.limit import skip_columns
from pgwire_codec._core import implementation as compiled
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.reference import implementation as reference
from pgwire_codec.types import TypeOptions, column_type

Step = Callable[[], object]

CODECS: Final[dict[str, Any]] = {"cython": compiled, "reference": reference}
DECODERS: Final = {"cython": pgc.Decoder, "reference": pgc.reference.Decoder}


@dataclass(frozen=True)
class Batch:
    """Changes of a change set, and the result of their ``scan``."""

    messages: Messages
    rows: np.ndarray
    body: np.ndarray

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return int(self.messages.offsets[-1] - self.messages.offsets[0])


def batches(change_set: ChangeSet, rows: int | None) -> list[Batch]:
    """Cut a change set into batches of this many rows; None for one batch."""
    return [
        Batch(messages, np.arange(len(messages)), compiled.scan(messages).body)
        for first, count in _cuts(change_set, rows)
        for messages in to_message_arrays(change_set.messages.slice(first, count), compiled)
    ]


def limit(cut: Sequence[Batch]) -> Step:
    def step() -> None:
        for batch in cut:
            skip_columns(batch.messages.data, batch.messages.offsets)

    return step


def scan(cut: Sequence[Batch], who: str = "cython") -> Step:
    codec = CODECS[who]

    def step() -> None:
        for batch in cut:
            codec.scan(batch.messages)

    return step


def tuples(change_set: ChangeSet, cut: Sequence[Batch], who: str = "cython") -> Step:
    codec, columns = CODECS[who], len(change_set.relation.columns)

    def step() -> None:
        for batch in cut:
            codec.tuples(batch.messages, batch.rows, batch.body, columns)

    return step


def decode(
    change_set: ChangeSet,
    cut: Sequence[Batch],
    who: str = "cython",
    *,
    wanted: Sequence[int] | None = None,
    **options: object,
) -> Step:
    """Return the typed decode of scanned tuples; of all columns, or of those wanted."""
    codec, columns = CODECS[who], len(change_set.relation.columns)
    types = [
        column_type(column.type_oid, column.type_modifier, TypeOptions())
        for column in change_set.relation.columns
    ]
    chosen = [(number, types[number]) for number in wanted or range(columns)]

    def step() -> None:
        for batch in cut:
            codec.decode_columns(
                batch.messages, batch.rows, batch.body, columns, "current", chosen, **options
            )

    return step


def to_arrow(
    change_set: ChangeSet, rows: int | None, who: str = "cython", **options: object
) -> Step:
    """Return the way from messages to record batches, with a transaction and a decoder each."""
    transactions: list[pa.LargeBinaryArray] = [
        change_set.transaction(first, count) for first, count in _cuts(change_set, rows)
    ]
    decoder = DECODERS[who]

    def step() -> None:
        for messages in transactions:
            for changes in decoder(**options).decode(messages):
                changes.to_arrow()

    return step


def _cuts(change_set: ChangeSet, rows: int | None) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of each batch."""
    count = len(change_set.messages)
    step = rows or count
    return [(first, min(step, count - first)) for first in range(0, count, step)]
