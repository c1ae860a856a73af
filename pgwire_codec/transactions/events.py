"""Events of a scanned array, one by one: runs of changes, and other messages.

Of changes only the number matters, so a run of them is one event. Every other message is decoded
to its object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.protocol.messages import LogicalMessage, Message, Truncate
from pgwire_codec.protocol.tags import ROW_CHANGES
from pgwire_codec.transactions.carry import START, Position

_NO_CHANGE: Final = re.compile(rb"[^%b]" % ROW_CHANGES, re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """Consecutive inserts, updates and deletes: messages ``start`` to ``stop - 1``."""

    start: int
    stop: int


class ScannedEvents:
    """Events of an input array. ``decode_message`` is the implementation's."""

    def __init__(
        self,
        messages: Messages,
        table: MessageTable,
        decode_message: Callable[..., LogicalMessage],
    ) -> None:
        self._messages = messages
        self._decoded = table.decoded
        self._kinds = table.kind.data
        self._decode_message = decode_message

    def iterate(self, start: int, stop: int) -> Iterator[tuple[int, ChangeRun | LogicalMessage]]:
        """Yield the events of some of the messages, each with the index of its (first) message.

        Messages that did not decode (``kind`` 0) are skipped; they end a run.
        """
        for match in _NO_CHANGE.finditer(self._kinds, start, stop):
            index = match.start()
            if index > start:
                yield start, ChangeRun(start, index)
            start = index + 1
            if self._kinds[index]:
                yield index, self.message(index)
        if start < stop:
            yield start, ChangeRun(start, stop)

    def message(self, index: int) -> LogicalMessage:
        """Return a message that is not a change."""
        return self._decoded.get(index) or self._decode_message(self._messages[index])


def first_of_each(table: MessageTable, run: ChangeRun) -> dict[int, Position]:
    """Return the first position of each (sub)transaction in a run, in order.

    Outside stream blocks the result is empty.
    """
    xids: npt.NDArray[Any] = table.xid[run.start : run.stop]
    if not xids.any():
        return {}
    # Only the first of a row of changes by the same subtransaction can be its first.
    places = np.flatnonzero(np.diff(xids, prepend=np.uint32(0)))
    first: dict[int, Position] = {}
    for xid, place in zip(xids[places].tolist(), places.tolist(), strict=True):
        if xid:
            first.setdefault(xid, Position(place))
    return first


def first_of(message: Truncate | Message) -> dict[int, Position]:
    """Return the same of one message."""
    return {message.xid: START} if message.xid else {}
