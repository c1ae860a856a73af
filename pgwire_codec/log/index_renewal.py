"""Renewal of the files of a log's index after its segments were joined."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from pgwire_codec.log.directory import Directory
from pgwire_codec.log.index_file import INDEX, ordinal_ranges
from pgwire_codec.log.index_writer import INDEXED_SEGMENTS, write_index
from pgwire_codec.log.joined_segments import JoinedSegments
from pgwire_codec.log.sealed_segments import SealedSegments
from pgwire_codec.log.segment import first_ordinal_of
from pgwire_codec.log.store import Store


class _File(NamedTuple):
    """A file of the index.

    Attributes
    ----------
    name : str
        Without suffix.
    segments : range
        Numbers of the segments from its first row to the first row of the next file.
    is_current : bool
        Whether its rows are those of these segments.
    """

    name: str
    segments: range
    is_current: bool


def index_is_current(found: Directory, sealed: SealedSegments) -> bool:
    """Return whether the files of an index have the rows of the log's segments, and no others.

    The parameters are those of :func:`renew_index`.
    """
    files = _files(found, sealed)
    return all(file.is_current for file in files) and not _without_file(files, sealed)


def renew_index(store: Store, found: Directory, sealed: SealedSegments) -> None:
    """Write the files of the index again that have rows of segments that were joined.

    They get the rows of the joined segments in their place, and small neighbours become one file.

    Parameters
    ----------
    store : Store
        Store of the log.
    found : Directory
        The log's files.
    sealed : SealedSegments
        Its complete segments, as of the same time.
    """
    files = _files(found, sealed)
    run: list[_File] = []
    for file in files:
        if run and file.segments.stop - run[0].segments.start > INDEXED_SEGMENTS:
            _renew(store, found, sealed, run)
            run = []
        run.append(file)
    _renew(store, found, sealed, run)
    _write(store, found, sealed, _without_file(files, sealed))


def _without_file(files: list[_File], sealed: SealedSegments) -> range:
    """Return the segments after those of the last file, as far as they fill further files.

    An interruption can have left them. A writer's index has the rest.
    """
    start = files[-1].segments.stop if files else 0
    return range(start, len(sealed) - (len(sealed) - start) % INDEXED_SEGMENTS)


def _files(found: Directory, sealed: SealedSegments) -> list[_File]:
    """Return the files of the index in order."""
    ordinals = [first_ordinal_of(name) for name in sealed.names]
    joined = JoinedSegments(found.sealed)
    files: list[_File] = []
    following = None  # number of the segment after those of the file
    for name, file in reversed(sealed.index_files().items()):
        ranges = list(ordinal_ranges(file.rows))
        if following is None:
            following = bisect_left(ordinals, ranges[-1][1])
        start = min(bisect_left(ordinals, ranges[0][0]), following)
        live = [each for each in ranges if each[0] >= found.first_ordinal]
        is_current = len(live) == following - start and not any(
            joined.replace(*each) for each in live
        )
        files.append(_File(name, range(start, following), is_current))
        following = start
    return files[::-1]


def _renew(store: Store, found: Directory, sealed: SealedSegments, files: list[_File]) -> None:
    """Write adjacent files again if one of them is not current."""
    if all(file.is_current for file in files):
        return
    segments = range(files[0].segments.start, files[-1].segments.stop)
    new = _write(store, found, sealed, segments)
    # Until now they were of use: a reader omits the rows that do not apply any more.
    store.remove(*(file.name + INDEX for file in files if file.name + INDEX not in new))


def _write(store: Store, found: Directory, sealed: SealedSegments, segments: range) -> list[str]:
    """Write the rows of segments, and return the names of the files."""
    log_id = "" if found.manifest is None else found.manifest.log_id
    return [
        write_index(store, log_id, [sealed.index.row(number) for number in each])
        for each in (
            segments[start : start + INDEXED_SEGMENTS]
            for start in range(0, len(segments), INDEXED_SEGMENTS)
        )
    ]
