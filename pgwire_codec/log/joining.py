"""Joining of adjacent segments: their messages in the file of one segment.

The parts of the joined segment consist of whole parts of the others, of which it keeps the state
that each following segment has recorded. See :func:`_groups` for the bounds that must stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from pgwire_codec.errors import LogError
from pgwire_codec.log.growing_segment import GrowingSegment
from pgwire_codec.log.ipc_file import message_bytes, read_extents
from pgwire_codec.log.message_columns import encoding_of
from pgwire_codec.log.object_store import REQUESTS
from pgwire_codec.log.segment import SEGMENT, Segment, SegmentPart
from pgwire_codec.log.segment_builder import PART_BYTES
from pgwire_codec.protocol.messages import Relation, Type

if TYPE_CHECKING:
    from pgwire_codec.log.store import Store
    from pgwire_codec.options import Compression
    from pgwire_codec.transactions.carry import Scope
    from pgwire_codec.transactions.summary import Summary

#: A segment, and one of its parts.
_Part: TypeAlias = tuple[Segment, SegmentPart]


def join(
    store: Store,
    segments: Sequence[Segment],
    scope: Scope,
    compression: Compression | None,
    progress: Callable[[int], None],
) -> Segment:
    """Write the file of a segment with the messages of others, and return its description.

    It belongs to the log once it has a sidecar.

    Parameters
    ----------
    store : Store
        Store of the log.
    segments : sequence of Segment
        Adjacent segments of the same source, in order.
    scope : Scope
        The relations known before the first.
    compression : {"lz4", "zstd"} or None
        Compression of the record batches.
    progress : callable
        Called after each part with the bytes that were read.

    Raises
    ------
    LogError
        When a segment is damaged, or does not follow the one before it.
    """
    header = replace(
        segments[0].header,
        encoding=encoding_of(compression),
        end_ordinal=segments[-1].end_ordinal,
    )
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    joined = GrowingSegment(store, header, scope, options, None)
    try:
        groups = list(_groups(segments))
        runs = list(map(_runs, groups))
        with closing(_read_runs(store, list(chain.from_iterable(runs)))) as read:
            for group, of_segments in zip(groups, runs, strict=True):
                begins_session = group[0][1].summary.new_session
                if begins_session and group[0][1].first_ordinal > header.first_ordinal:
                    joined.begin_session()
                else:
                    joined.end_part()
                for records in _joined(_stored_batches(store, of_segments, read)):
                    joined.write(records)
                progress(sum(part.extent.length for _, part in group))
        segment = joined.complete()
        if segment.messages != segments[-1].end_ordinal - header.first_ordinal or (
            joined.state != segments[-1].state()
        ):
            raise LogError(
                f"cannot join the segments of {store.name} from {segments[0].name} to "
                f"{segments[-1].name}: their messages do not lead to the state after the last",
                hint="Check the log: pgwire-codec log verify DIR.",
            )
    except BaseException:
        joined.abandon()
        store.remove(header.name + SEGMENT)
        raise
    return segment


def _groups(segments: Sequence[Segment]) -> Iterator[list[_Part]]:
    """Yield the parts of segments in groups, each of which becomes one part.

    A group begins

    - with a session;
    - at an ordinal that the segments after these have recorded, as the beginning of the part in
      which an open transaction began;
    - with a part that declares a relation or type that the group has declared. A summary omits
      repetitions, and the state that later segments have recorded counts them.
    """
    bounds = {*segments[-1].opened.values()}
    group: list[_Part] = []
    size = 0
    known: set[tuple[type, int]] = set()
    for segment in segments:
        for part in segment.parts:
            declared = _declared(part.summary)
            if group and (
                part.summary.new_session
                or part.first_ordinal in bounds
                or not known.isdisjoint(declared)
                or size + part.message_bytes > PART_BYTES
            ):
                yield group
                group, size, known = [], 0, set()
            group.append((segment, part))
            size += part.message_bytes
            known |= declared
    if group:
        yield group


def _declared(summary: Summary) -> set[tuple[type, int]]:
    """Return the relations and types that a part declares."""
    return {
        (type(event), event.oid)
        for events in (summary.outside, summary.inside)
        if isinstance(events, tuple)
        for event in events
        if isinstance(event, (Relation, Type))
    }


def _runs(group: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts of a group by their segments."""
    return [list(parts) for _, parts in groupby(group, lambda each: each[0].name)]


def _read_runs(
    store: Store, runs: Sequence[Sequence[_Part]]
) -> Generator[Iterable[pa.RecordBatch], None, None]:
    """Yield the record batches of parts, each run of which is in one segment.

    In an object store, the next runs are read meanwhile.
    """

    def read(run: Sequence[_Part]) -> Iterator[pa.RecordBatch]:
        segment = run[0][0]
        extents = [part.extent for _, part in run]
        return read_extents(store, segment.name, extents, segment.header.encoding)

    if store.grows:
        yield from map(read, runs)
        return
    with ThreadPoolExecutor(REQUESTS) as threads:
        waiting: deque[Future[list[pa.RecordBatch]]] = deque()
        try:
            for run in runs:
                waiting.append(threads.submit(lambda run: list(read(run)), run))
                if len(waiting) > REQUESTS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)


def _stored_batches(
    store: Store, runs: Sequence[Sequence[_Part]], batches: Iterator[Iterable[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Take the record batches of a group's runs; raise ``LogError`` when messages are missing."""
    ordinal = runs[0][0][1].first_ordinal
    for run in runs:
        for records in next(batches):
            if records.column("ordinal")[0].as_py() != ordinal:
                raise LogError(
                    f"{store.name}/{run[0][0].name}{SEGMENT} has no message of ordinal {ordinal}",
                    hint="Check the log: pgwire-codec log verify DIR.",
                )
            ordinal += len(records)
            yield records


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join record batches to some of a part each, as far as they are small."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for records in batches:
        waiting.append(records)
        size += message_bytes(records)
        if size >= PART_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)
