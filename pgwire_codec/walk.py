"""Walk a scanned input from one message that matters to the next.

Changes matter by their number only: a run of them is one step. Every other message is decoded to
its object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pgwire_codec._input import Messages
from pgwire_codec.carry import Position
from pgwire_codec.messages import LogicalMessage
from pgwire_codec.spec import in_stream_block
from pgwire_codec.tables import MessageTable

_CHANGES = np.frombuffer(b"IUD", np.uint8)


@dataclass(frozen=True, slots=True)
class Run:
    """Inserts, updates and deletes one behind the other: messages ``start`` to ``stop - 1``."""

    start: int
    stop: int


def walk(
    messages: Messages,
    table: MessageTable,
    streaming: bool,
    decode_message: Callable[..., LogicalMessage],
) -> Iterator[tuple[int, Run | LogicalMessage]]:
    """Give the runs of changes and the other messages in order, each with its (first) index.

    Messages that did not decode (``kind`` 0) are passed over; they end a run.
    """
    start = 0
    for index in np.flatnonzero(~np.isin(table.kind, _CHANGES)).tolist():
        if index > start:
            yield start, Run(start, index)
        start = index + 1
        if table.kind[index]:
            yield index, decode_message(messages[index], streaming=streaming)
        # A message that did not decode may still have opened or closed a stream block.
        streaming = in_stream_block(messages.tag(index), streaming)
    if start < len(messages):
        yield start, Run(start, len(messages))


def first_of_each(table: MessageTable, run: Run) -> dict[int, Position]:
    """Give where in a run each (sub)transaction first stands; empty outside stream blocks."""
    if not table.xid[run.start]:
        return {}
    xids, places = np.unique(table.xid[run.start : run.stop], return_index=True)
    return {xid: Position(place) for xid, place in zip(xids.tolist(), places.tolist(), strict=True)}
