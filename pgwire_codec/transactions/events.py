"""Walk a scanned input from one message that matters to the next.

Changes matter by their number only: a run of them is one step. So is a stretch of plain
transactions, of which there may be millions. Every other message is decoded to its object.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable, tagged
from pgwire_codec.protocol.messages import LogicalMessage
from pgwire_codec.protocol.spec import in_stream_block
from pgwire_codec.transactions.carry import Position

_CHANGES: Final = b"IUD"

#: Fewer plain transactions than this, one behind the other, are not worth a stretch.
_STRETCH: Final = 8


@dataclass(frozen=True, slots=True)
class Run:
    """Inserts, updates and deletes one behind the other: messages ``start`` to ``stop - 1``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Whole plain transactions one behind the other, with nothing in them but changes.

    Attributes
    ----------
    start, stop : int
        The messages ``start`` to ``stop - 1``.
    begin, commit : numpy.ndarray of int64
        Indexes of the Begin and of the Commit messages, one each a transaction.
    """

    start: int
    stop: int
    begin: npt.NDArray[np.int64]
    commit: npt.NDArray[np.int64]


@dataclass(slots=True)
class Walk:
    """Goes through an input. ``decode_message`` is the implementation's."""

    messages: Messages
    table: MessageTable
    decode_message: Callable[..., LogicalMessage]

    def steps(self, streaming: bool) -> Iterator[tuple[int, Stretch | Run | LogicalMessage]]:
        """Give the steps in order, each with its (first) index.

        Messages that did not decode (``kind`` 0) are passed over; they end a run.
        """
        place = 0
        for stretch in _stretches(self.table.kind):
            yield from self.between(place, stretch.start, streaming)
            yield stretch.start, stretch
            place, streaming = stretch.stop, False
        yield from self.between(place, len(self.messages), streaming)

    def between(
        self, start: int, stop: int, streaming: bool
    ) -> Iterator[tuple[int, Run | LogicalMessage]]:
        """Give the steps from one message to another, without stretches."""
        kind = self.table.kind[start:stop]
        for index in (start + np.flatnonzero(~tagged(kind, _CHANGES))).tolist():
            if index > start:
                yield start, Run(start, index)
            start = index + 1
            if self.table.kind[index]:
                yield index, self.decode_message(self.messages[index], streaming=streaming)
            # A message that did not decode may still have opened or closed a stream block.
            streaming = in_stream_block(self.messages.tag(index), streaming)
        if start < stop:
            yield start, Run(start, stop)


def _stretches(kind: npt.NDArray[np.uint8]) -> list[Stretch]:
    """Find the stretches of plain transactions."""
    places = np.flatnonzero(~tagged(kind, _CHANGES))
    tags = kind[places]
    # Begin with Commit as the next that is no change.
    pairs = np.flatnonzero((tags[:-1] == ord("B")) & (tags[1:] == ord("C")))
    if len(pairs) < _STRETCH:
        return []
    begin, commit = places[pairs], places[pairs + 1]
    cuts = 1 + np.flatnonzero(begin[1:] != commit[:-1] + 1)
    edges = [0, *cuts.tolist(), len(pairs)]
    return [
        Stretch(int(begin[a]), int(commit[b - 1]) + 1, begin[a:b], commit[a:b])
        for a, b in itertools.pairwise(edges)
        if b - a >= _STRETCH
    ]


def first_of_each(table: MessageTable, run: Run) -> dict[int, Position]:
    """Give where in a run each (sub)transaction first stands; empty outside stream blocks."""
    xids: npt.NDArray[Any] = table.xid[run.start : run.stop]
    if not xids[0]:
        return {}
    found, places = np.unique(xids, return_index=True)
    return {
        xid: Position(place) for xid, place in zip(found.tolist(), places.tolist(), strict=True)
    }
