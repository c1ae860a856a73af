"""Reading of messages whose segment may have been joined with others since it was found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from pgwire_codec.log.directory import classify_files, read_sidecar
from pgwire_codec.log.ipc_file import read_extents
from pgwire_codec.log.message_columns import Encoding
from pgwire_codec.log.segment import Extent, first_ordinal_of
from pgwire_codec.log.store import Store
from pgwire_codec.log.store_errors import MissingFileError


class StoredMessages(NamedTuple):
    """Place of messages in a log.

    Attributes
    ----------
    segment : str
        Name of their segment, without suffix.
    extents : sequence of Extent
        The parts that have them, one after the other.
    encoding : {"differences", "plain"}
        As in the segment's header.
    """

    segment: str
    extents: Sequence[Extent]
    encoding: Encoding


def read_messages(
    store: Store, place: StoredMessages, first_ordinal: int, messages: int
) -> Iterator[pa.RecordBatch]:
    """Read messages, without their times.

    If the segment does not exist any more, the joined segment is read that has its messages.

    Parameters
    ----------
    store : Store
        Store of the log.
    place : StoredMessages
        Place at which the messages were when the log was opened or refreshed.
    first_ordinal, messages : int
        Ordinal of the first message, and their number.

    Raises
    ------
    LogError
        When the messages were pruned, or their file is damaged.
    """
    while True:
        segment, extents, encoding = place
        try:
            for records in read_extents(store, segment, extents, encoding, with_time=False):
                found = _between(records, first_ordinal, first_ordinal + messages)
                if len(found):
                    yield found
            return
        except MissingFileError:  # before the first record batch
            found_place = _find(store, first_ordinal, messages)
            if found_place is None or found_place.segment == segment:
                raise
            place = found_place


def _between(records: pa.RecordBatch, first_ordinal: int, end_ordinal: int) -> pa.RecordBatch:
    """Return the messages of a record batch in a range of ordinals."""
    begin = records.column("ordinal")[0].as_py()
    skipped = max(first_ordinal - begin, 0)
    return records.slice(skipped, max(min(end_ordinal - begin, len(records)) - skipped, 0))


def _find(store: Store, first_ordinal: int, messages: int) -> StoredMessages | None:
    """Return the present place of messages, or None if no complete segment has them all."""
    found = classify_files(store)
    if found.problems:
        return None
    number = bisect_right(found.sealed, first_ordinal, key=first_ordinal_of) - 1
    if number < 0:
        return None
    segment = read_sidecar(store, found.sealed[number], found.manifest)
    end_ordinal = first_ordinal + messages
    if segment.end_ordinal < end_ordinal:
        return None
    extents = [
        part.extent
        for part in segment.parts
        if part.end_ordinal > first_ordinal and part.first_ordinal < end_ordinal
    ]
    return StoredMessages(segment.name, extents, segment.header.encoding)
