"""Pruning of the segments of a log that are not needed any more."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import OptionError
from pgwire_codec.log.bounds import MANIFEST, manifest_to_bytes
from pgwire_codec.log.directory import classify_files
from pgwire_codec.log.index_file import INDEX
from pgwire_codec.log.partition import commit_lsn_of
from pgwire_codec.log.reader import Log
from pgwire_codec.log.segment import SEGMENT, SIDECAR
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.state import StateTracker
from pgwire_codec.log.store import Store, open_existing
from pgwire_codec.transactions.committed import Committed

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def prune(
    uri: str | os.PathLike[str], before_lsn: int, *, filesystem: FileSystem | None = None
) -> list[str]:
    """Remove segments that no transaction that commits after an LSN needs.

    A segment is kept if a transaction that commits later, or is open or prepared, has changes in
    it. All segments after it are kept, too, and so are the last sealed segment and the growing one.
    The log may be written and read meanwhile. A pruning by another process is waited for, up to
    10 seconds; in an object store, only one process may prune a log.

    Parameters
    ----------
    uri, filesystem
        As for :class:`Log`.
    before_lsn : int
        Commit LSN of the last transaction that is not needed any more. Every range after it stays
        readable.

    Returns
    -------
    list of str
        Names of the segments' files that were removed.

    Raises
    ------
    LogError
        When another pruning does not end.
    """
    before_lsn = commit_lsn_of(before_lsn, "before_lsn")
    if before_lsn < 0:
        raise OptionError(f"before_lsn must be 0 or more, not {before_lsn}")
    with exclusive(uri, filesystem) as (store, log):
        return remove_unneeded(store, log, before_lsn)


@contextmanager
def exclusive(
    uri: str | os.PathLike[str], filesystem: FileSystem | None
) -> Iterator[tuple[Store, Log]]:
    """Open a log that nobody else prunes inside of the context.

    Two prunings at once could exchange their manifests, and the log would begin at a segment that
    was removed.
    """
    log = Log(uri, filesystem=filesystem)  # before the lock's file is made
    store = open_existing(uri, filesystem, MANIFEST)
    with store.pruning_lock():
        log.refresh()
        yield store, log


def remove_unneeded(store: Store, log: Log, before_lsn: int) -> list[str]:
    """Remove the segments of a log, as :func:`prune` does."""
    count = _unneeded(log, before_lsn)
    if not count:
        return []
    names = [log.segment(number).name for number in range(count)]
    first = replace(log.segment(count), known=log.scope_before(count))
    store.write(first.name + SIDECAR, segment_to_bytes(first))
    # After this they are not part of the log, even if their files are not removed.
    manifest = replace(log.manifest, first_ordinal=first.first_ordinal)
    store.write(MANIFEST, manifest_to_bytes(manifest))
    store.remove(*(name + suffix for name in names for suffix in (SIDECAR, SEGMENT)))
    store.remove(*(name for name in classify_files(store).leftover if name.endswith(INDEX)))
    return [name + SEGMENT for name in names]


def _unneeded(log: Log, before_lsn: int) -> int:
    """Return the number of segments, from the first on, that are not needed."""
    delivered = log.index.delivered_lsn
    if len(delivered) < 2:
        return 0
    # Later transactions commit in this segment and after it.
    start = min(bisect_right(delivered, before_lsn), len(delivered) - 1)
    needed = log.segment(start).first_ordinal

    def on_commit(committed: Committed, opened: int) -> None:
        nonlocal needed
        if committed.commit_lsn > before_lsn:
            needed = min(needed, opened)

    tracker = StateTracker(log.segment(start).header.before, on_commit=on_commit)
    first_ordinal = needed
    for number in range(start, len(log)):
        # Later transactions need later segments only.
        if min(tracker.opened.values(), default=first_ordinal) >= first_ordinal:
            break
        for part in log.segment(number).parts:
            tracker.apply(part.summary, part.first_ordinal)
    needed = min([needed, *tracker.opened.values()])
    return log.number_of(needed)
