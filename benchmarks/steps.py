"""The steps that are measured, for either implementation: each a function without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

import pgwire_codec as pgc
from benchmarks.limit_build import load_hop
from benchmarks.streams import Stream
from pgwire_codec._core import implementation as compiled
from pgwire_codec.codec.message_array import Messages, to_message_arrays
from pgwire_codec.reference import implementation as reference
from pgwire_codec.types import TypeOptions, column_type

Step = Callable[[], object]

CODECS: Final[dict[str, Any]] = {"cython": compiled, "reference": reference}
DECODERS: Final = {"cython": pgc.Decoder, "reference": pgc.reference.Decoder}

hop = load_hop()


@dataclass(frozen=True)
class Batch:
    """Some messages of a stream, all of them changes, and what ``scan`` says of them."""

    messages: Messages
    rows: np.ndarray
    body: np.ndarray

    @property
    def size(self) -> int:
        """How many bytes the messages are."""
        return int(self.messages.offsets[-1] - self.messages.offsets[0])


def batches(stream: Stream, rows: int | None) -> list[Batch]:
    """Cut a stream into batches of so many rows; all in one for None."""
    return [
        Batch(messages, np.arange(len(messages)), compiled.scan(messages).body)
        for first, count in _cuts(stream, rows)
        for messages in to_message_arrays(stream.messages.slice(first, count))
    ]


def limit(cut: Sequence[Batch]) -> Step:
    def step() -> None:
        for batch in cut:
            hop(batch.messages.data, batch.messages.offsets)

    return step


def scan(cut: Sequence[Batch], who: str = "cython") -> Step:
    codec = CODECS[who]

    def step() -> None:
        for batch in cut:
            codec.scan(batch.messages)

    return step


def tuples(stream: Stream, cut: Sequence[Batch], who: str = "cython") -> Step:
    codec, columns = CODECS[who], len(stream.relation.columns)

    def step() -> None:
        for batch in cut:
            codec.tuples(batch.messages, batch.rows, batch.body, columns)

    return step


def decode(
    stream: Stream,
    cut: Sequence[Batch],
    who: str = "cython",
    *,
    wanted: Sequence[int] | None = None,
    **options: object,
) -> Step:
    """Typed columns of tuples that were scanned; all of them, or those wanted."""
    codec, columns = CODECS[who], len(stream.relation.columns)
    types = [
        column_type(column.type_oid, column.type_modifier, TypeOptions())
        for column in stream.relation.columns
    ]
    chosen = [(number, types[number]) for number in wanted or range(columns)]

    def step() -> None:
        for batch in cut:
            codec.decode_columns(
                batch.messages, batch.rows, batch.body, columns, "current", chosen, **options
            )

    return step


def to_arrow(stream: Stream, rows: int | None, who: str = "cython", **options: object) -> Step:
    """From messages to record batches; each batch is a transaction, and has a decoder."""
    transactions: list[pa.LargeBinaryArray] = [
        stream.transaction(first, count) for first, count in _cuts(stream, rows)
    ]
    decoder = DECODERS[who]

    def step() -> None:
        for messages in transactions:
            for changes in decoder(**options).decode(messages):
                changes.to_arrow()

    return step


def _cuts(stream: Stream, rows: int | None) -> list[tuple[int, int]]:
    """Give the first row, and the number of rows, of each batch."""
    count = len(stream.messages)
    step = rows or count
    return [(first, min(step, count - first)) for first in range(0, count, step)]
