"""Events of a scanned array: runs of changes, runs of plain transactions, and other messages.

Of changes only the number matters, so a run of them is one event. So is a run of plain
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
from pgwire_codec.protocol.tags import ROW_CHANGES, in_stream_block
from pgwire_codec.transactions.carry import Position

#: Number of consecutive plain transactions from which on they are read as one run.
_SHORTEST: Final = 8


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """Consecutive inserts, updates and deletes: messages ``start`` to ``stop - 1``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class PlainRun:
    """Consecutive whole plain transactions that contain nothing but changes.

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
class ScannedEvents:
    """Events of an input array. ``decode_message`` is the implementation's."""

    messages: Messages
    table: MessageTable
    decode_message: Callable[..., LogicalMessage]

    def iterate(
        self, streaming: bool
    ) -> Iterator[tuple[int, PlainRun | ChangeRun | LogicalMessage]]:
        """Yield the events in order, each with the index of its (first) message.

        Messages that did not decode (``kind`` 0) are skipped; they end a run.
        """
        place = 0
        for run in _plain_runs(self.table.kind):
            yield from self.iterate_between(place, run.start, streaming)
            yield run.start, run
            place, streaming = run.stop, False
        yield from self.iterate_between(place, len(self.messages), streaming)

    def iterate_between(
        self, start: int, stop: int, streaming: bool
    ) -> Iterator[tuple[int, ChangeRun | LogicalMessage]]:
        """Yield the events of some of the messages, without runs of plain transactions."""
        kind = self.table.kind[start:stop]
        for index in (start + np.flatnonzero(~tagged(kind, ROW_CHANGES))).tolist():
            if index > start:
                yield start, ChangeRun(start, index)
            start = index + 1
            if self.table.kind[index]:
                yield index, self.decode_message(self.messages[index], streaming=streaming)
            # A message that did not decode may still have opened or closed a stream block.
            streaming = in_stream_block(self.messages.tag(index), streaming)
        if start < stop:
            yield start, ChangeRun(start, stop)


def _plain_runs(kind: npt.NDArray[np.uint8]) -> list[PlainRun]:
    """Return the runs of plain transactions that are long enough."""
    places = np.flatnonzero(~tagged(kind, ROW_CHANGES))
    tags = kind[places]
    # A Begin whose next message that is not a change is a Commit.
    pairs = np.flatnonzero((tags[:-1] == ord("B")) & (tags[1:] == ord("C")))
    if len(pairs) < _SHORTEST:
        return []
    begin, commit = places[pairs], places[pairs + 1]
    cuts = 1 + np.flatnonzero(begin[1:] != commit[:-1] + 1)
    edges = [0, *cuts.tolist(), len(pairs)]
    return [
        PlainRun(int(begin[a]), int(commit[b - 1]) + 1, begin[a:b], commit[a:b])
        for a, b in itertools.pairwise(edges)
        if b - a >= _SHORTEST
    ]


def first_of_each(table: MessageTable, run: ChangeRun) -> dict[int, Position]:
    """Return the first position of each (sub)transaction in a run; none outside stream blocks."""
    xids: npt.NDArray[Any] = table.xid[run.start : run.stop]
    if not xids[0]:
        return {}
    found, places = np.unique(xids, return_index=True)
    return {
        xid: Position(place) for xid, place in zip(found.tolist(), places.tolist(), strict=True)
    }
