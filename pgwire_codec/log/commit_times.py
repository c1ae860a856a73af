"""Commit times: ranges of them, and those of a part's transactions."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import takewhile
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np

from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.errors import OptionError
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from pgwire_codec.protocol.spec import MESSAGES, MessageSpec, Wire
from pgwire_codec.protocol.tags import COMMITS

#: Microseconds since 1970, UTC.
Microseconds = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_EARLIEST: Final = -(2**63)
_LATEST: Final = 2**63 - 1


class TimeRange(NamedTuple):
    """Commit times from one to another, both included.

    Attributes
    ----------
    earliest, latest : int
        Microseconds since 1970, UTC.
    """

    earliest: Microseconds = _EARLIEST
    latest: Microseconds = _LATEST

    def overlaps(self, earliest: Any, latest: Any) -> Any:
        """Return whether it has times between two others; of arrays, an array."""
        return (earliest <= self.latest) & (latest >= self.earliest)

    def has(self, times: Any) -> Any:
        """Return whether it has a time; of an array, an array."""
        return self.overlaps(times, times)

    def union(self, other: TimeRange | None) -> TimeRange:
        """Return the smallest range that has the times of both."""
        if other is None:
            return self
        return TimeRange(min(self.earliest, other.earliest), max(self.latest, other.latest))


ALL_TIMES: Final = TimeRange()


def time_range(starting_time: Any, ending_time: Any) -> TimeRange:
    """Return the range of two arguments, each of which may be None.

    Raises ``TypeError`` for an argument that is not a time in UTC, and ``OptionError`` if the first
    is later than the second.
    """
    starting = _microseconds(starting_time, "starting_time", _EARLIEST)
    ending = _microseconds(ending_time, "ending_time", _LATEST)
    if ending < starting:
        raise OptionError(f"ending_time {ending_time} is before starting_time {starting_time}")
    return TimeRange(starting, ending)


def commit_times(messages: Messages, table: MessageTable) -> TimeRange | None:
    """Return the range of commit times of scanned messages, or None if nothing commits in them."""
    found: TimeRange | None = None
    for tag, place in _PLACES.items():
        starts = messages.offsets[:-1][table.kind == tag]
        if len(starts):
            written = messages.data[starts[:, None] + np.arange(place, place + 8)]
            times = written.view(">i8").astype(np.int64)
            first, last = (
                min(int(each) + EPOCH_MICROSECONDS, _LATEST) for each in (times.min(), times.max())
            )
            found = TimeRange(first, last).union(found)
    return found


def _place(message: MessageSpec) -> int:
    """Return the position of the commit time in a message, after fields of fixed sizes."""
    sizes = {Wire.INT8: 1, Wire.UINT32: 4, Wire.UINT64: 8}
    before = takewhile(lambda field: field.name != "commit_time", message.fields)
    return len(message.tag) + sum(sizes[field.wire] for field in before)


_PLACES: Final = {each.tag[0]: _place(each) for each in MESSAGES if each.tag in COMMITS}


def _microseconds(time: Any, name: str, default: int) -> int:
    if time is None:
        return default
    if isinstance(time, np.datetime64) and not np.isnat(time):
        return int(time.astype("datetime64[us]").astype(np.int64))
    if isinstance(time, datetime) and time.utcoffset() is not None:
        since = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return since // timedelta(microseconds=1)
    raise TypeError(
        f"{name} must be a datetime with a time zone, or a numpy.datetime64 in UTC, not {time!r}"
    )
