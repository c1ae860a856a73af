"""Joining of the small parts that a reader of a growing segment begins with each reading.

Their number stays logarithmic, and from each position on, a reader reads little more than what is
after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from pgwire_codec.log.checked_json import checksum
from pgwire_codec.log.ipc_file import check_extent
from pgwire_codec.log.segment import Extent, SegmentPart
from pgwire_codec.transactions.summary import join

#: Parts are joined up to this share of what is after them.
_SHARE: Final = 0.5

#: Cost of reading a message, in bytes of messages.
_MESSAGE_COST: Final = 256


def join_small_parts(
    parts: list[SegmentPart],
    delivered_lsn: int,
    most_bytes: int,
    read: Callable[[Extent], pa.Buffer],
    file: str,
) -> None:
    """Join neighbours in a list of consecutive parts of one session, as far as they are small.

    Parameters
    ----------
    parts : list of SegmentPart
        The parts of a segment.
    delivered_lsn : int
        Commit LSN of the last transaction delivered before them.
    most_bytes : int
        Largest number of message bytes of a joined part.
    read : callable
        Returns bytes of the segment's file.
    file : str
        Name of the file in errors.

    Raises
    ------
    LogError
        When bytes do not have their checksum any more.
    """
    after = 0  # cost of the parts after a pair
    for place in range(len(parts) - 2, -1, -1):
        first, second = parts[place : place + 2]
        if (
            _cost(first) + _cost(second) <= _SHARE * after
            and first.message_bytes + second.message_bytes <= most_bytes
        ):
            before = parts[place - 1].delivered_lsn if place else delivered_lsn
            parts[place : place + 2] = [_joined(first, second, before, read, file)]
        else:
            after += _cost(second)


def _cost(part: SegmentPart) -> int:
    return part.message_bytes + _MESSAGE_COST * part.messages


def _joined(
    first: SegmentPart,
    second: SegmentPart,
    delivered_lsn: int,
    read: Callable[[Extent], pa.Buffer],
    file: str,
) -> SegmentPart:
    begins_in_block = first.summary.outside is None
    joined = join(first.summary, second.summary, begins_in_block, delivered_lsn)
    times = second.commit_times
    return SegmentPart(
        extent=_joined_extent(first.extent, second.extent, read, file),
        first_ordinal=first.first_ordinal,
        messages=first.messages + second.messages,
        message_bytes=first.message_bytes + second.message_bytes,
        summary=joined.summary,
        delivered_lsn=second.delivered_lsn,
        undecodable=first.undecodable + second.undecodable,
        committed=first.committed + second.committed + joined.committed,
        commit_times=first.commit_times if times is None else times.union(first.commit_times),
    )


def _joined_extent(
    first: Extent, second: Extent, read: Callable[[Extent], pa.Buffer], file: str
) -> Extent:
    joined = Extent(first.offset, first.length + second.length, "")
    data = read(joined)
    # The new checksum is that of the same bytes.
    check_extent(data[: first.length], first, file)
    check_extent(data[first.length :], second, file)
    return joined._replace(checksum=checksum(data))
