"""Remove from a log what nobody needs any more."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import OptionError
from pgwire_codec.log.manifest import MANIFEST, manifest_to_bytes
from pgwire_codec.log.position import commit_lsn
from pgwire_codec.log.reader import Log
from pgwire_codec.log.segment import SEGMENT, SIDECAR
from pgwire_codec.log.state import Follower
from pgwire_codec.log.store import open_store
from pgwire_codec.transactions.committed import Committed

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def prune(
    uri: str | os.PathLike[str], before_lsn: int, *, filesystem: FileSystem | None = None
) -> list[str]:
    """Remove segments that hold nothing of transactions that commit after an LSN.

    A segment stays as long as a transaction that commits later, or is open or prepared, has changes
    in it, and so do all segments behind it. The last sealed segment stays, and the one that grows.
    It may be done while the log is written and read.

    Parameters
    ----------
    uri, filesystem
        As for :class:`Log`.
    before_lsn : int
        Transactions that commit at or before it are not needed any more. Every range after it can
        be read afterwards as before.

    Returns
    -------
    list of str
        The names of the segments' files that were removed.
    """
    before_lsn = commit_lsn("before_lsn", before_lsn)
    if before_lsn < 0:
        raise OptionError(f"before_lsn must be an LSN, from 0 on, not {before_lsn}")
    store = open_store(uri, filesystem)
    log = Log(uri, filesystem=filesystem)
    count = _needless(log, before_lsn)
    if not count:
        return []
    names = [log.segment(number).name for number in range(count)]
    # From here on they are not part of the log, whatever becomes of the files.
    manifest = replace(log.manifest, first_ordinal=log.segment(count).first_ordinal)
    store.write(MANIFEST, manifest_to_bytes(manifest))
    for name in names:
        store.remove(name + SIDECAR)
        store.remove(name + SEGMENT)
    return [name + SEGMENT for name in names]


def _needless(log: Log, before_lsn: int) -> int:
    """Say how many segments, from the first on, nobody needs."""
    sealed = sum(segment.sealed for segment in log.segments)
    if sealed < 2:
        return 0
    numbers = range(len(log))
    # In this segment, and behind it, later transactions commit.
    start = bisect_right(numbers, before_lsn, key=lambda number: log.segment(number).delivered_lsn)
    start = min(start, sealed - 1)
    needed = log.segment(start).first_ordinal

    def on_commit(committed: Committed, opened: int) -> None:
        nonlocal needed
        if committed.commit_lsn > before_lsn:
            needed = min(needed, opened)

    follower = Follower(log.segment(start).head.before, on_commit)
    for number in range(start, len(log)):
        for part in log.segment(number).parts:
            follower.follow(part.summary, part.first_ordinal)
    needed = min([needed, *follower.opened.values()])
    return log.number_of(needed)
