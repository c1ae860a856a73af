"""Copy the complete segments of a log to another place."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import LogError
from pgwire_codec.log.directory import look, not_a_log, read_sidecar
from pgwire_codec.log.manifest import MANIFEST, Manifest, manifest_to_bytes
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.store import FILE_MODE, Store, open_store
from pgwire_codec.log.stream import check_extent

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def copy(
    uri: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    target_filesystem: FileSystem | None = None,
    file_mode: int = FILE_MODE,
) -> list[str]:
    """Copy the sealed segments of a log that a copy of it does not have yet.

    The copy can be read while it is made, and up to its last complete segment. It is not written
    to by a :class:`LogWriter`: it has no watermark, and its manifest says where it ends. The log
    may be written and read meanwhile.

    Parameters
    ----------
    uri : str or path
        The log.
    target : str or path
        The copy: a directory or URI that is empty, or holds an earlier copy of the same log.
    filesystem, target_filesystem : pyarrow.fs.FileSystem, optional
        Then ``uri`` or ``target`` is a path in it.
    file_mode : int
        As for :class:`LogWriter`, of the copy's files.

    Returns
    -------
    list of str
        Names of the segments' files that were copied.

    Raises
    ------
    LogError
        When a file is missing or damaged, or the target is another log.
    """
    source = open_store(uri, filesystem)
    found = look(source)
    if found.manifest is None:
        raise not_a_log(source)
    store = open_store(target, target_filesystem, file_mode=file_mode)
    with store.lock():
        manifest = _manifest_of_copy(source, found.manifest, store)
        missing = [name for name in found.sealed if int(name) >= (manifest.end_ordinal or 0)]
        for name in missing:
            segment = read_sidecar(source, name, found.manifest)
            _copy_segment(source, store, segment)
            # Last: from here on the copy has the segment.
            manifest = replace(manifest, end_ordinal=segment.end_ordinal)
            store.write(MANIFEST, manifest_to_bytes(manifest))
    return [name + SEGMENT for name in missing]


def _manifest_of_copy(source: Store, manifest: Manifest, target: Store) -> Manifest:
    """Return the copy's manifest as it is, or write that of a copy without segments."""
    held = look(target)
    if not held.is_log:
        empty = replace(manifest, end_ordinal=manifest.first_ordinal)
        target.write(MANIFEST, manifest_to_bytes(empty))
        return empty
    found = held.manifest
    if found is None or found.end_ordinal is None or found.log_id != manifest.log_id:
        raise LogError(
            f"{target.name} is not a copy of {source.name}", hint="Copy to an empty directory."
        )
    if found.end_ordinal < manifest.first_ordinal:
        raise LogError(
            f"{source.name} was pruned: the copy {target.name} ends before ordinal "
            f"{found.end_ordinal}, and the log begins at {manifest.first_ordinal}",
            hint="Copy to an empty directory.",
        )
    return found


def _copy_segment(source: Store, target: Store, segment: Segment) -> None:
    """Copy the files of one segment, the sidecar last."""
    file = segment.name + SEGMENT
    data = source.read_buffer(file, 0, segment.bytes)
    for extent in (segment.header, *(part.extent for part in segment.parts)):
        check_extent(data[extent.offset : extent.stop], extent, f"{source.name}/{file}")
    target.write(file, data)
    target.write(segment.name + SIDECAR, segment_to_bytes(segment))
