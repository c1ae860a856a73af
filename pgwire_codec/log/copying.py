"""Copying of the complete segments of a log to another place."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import LogError
from pgwire_codec.log.bounds import MANIFEST, Manifest, manifest_to_bytes
from pgwire_codec.log.directory import Directory, not_a_log, read_directory, read_sidecar
from pgwire_codec.log.index_file import INDEX, IndexFile
from pgwire_codec.log.ipc_file import check_extent
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.store import Store, open_store
from pgwire_codec.options import SegmentOptions

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def copy(
    uri: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    filesystem: FileSystem | None = None,
    target_filesystem: FileSystem | None = None,
    file_mode: int = SegmentOptions.file_mode,
) -> list[str]:
    """Copy the sealed segments of a log that a copy of it does not have yet.

    The copy can be read meanwhile, up to its last complete segment. A :class:`LogWriter` cannot
    write to it: it has no watermark, and its manifest contains its end. The log may be written and
    read meanwhile.

    Parameters
    ----------
    uri : str or path
        Location of the log.
    target : str or path
        Location of the copy: a directory or URI that is empty, or has an earlier copy of the log.
    filesystem, target_filesystem : pyarrow.fs.FileSystem, optional
        File systems in which ``uri`` and ``target`` are paths.
    file_mode : int
        Permissions of the copy's files, as for :class:`LogWriter`.

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
    found = read_directory(source)
    if found.manifest is None:
        raise not_a_log(source)
    store = open_store(target, target_filesystem, file_mode=file_mode)
    with store.lock():
        manifest = _manifest_of_copy(source, found.manifest, store)
        missing = [name for name in found.sealed if int(name) >= (manifest.end_ordinal or 0)]
        for name in missing:
            segment = read_sidecar(source, name, found.manifest)
            _copy_segment(source, store, segment)
            # Last: only now the copy has the segment.
            manifest = replace(manifest, end_ordinal=segment.end_ordinal)
            store.write(MANIFEST, manifest_to_bytes(manifest))
        _copy_index(source, found, manifest, store)
    return [name + SEGMENT for name in missing]


def _manifest_of_copy(source: Store, manifest: Manifest, target: Store) -> Manifest:
    """Return the copy's manifest as it is, or write that of a copy without segments."""
    held = read_directory(target)
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
            f"{found.end_ordinal}, but the log begins at {manifest.first_ordinal}",
            hint="Copy to an empty directory.",
        )
    return found


def _copy_index(source: Store, found: Directory, manifest: Manifest, target: Store) -> None:
    """Copy the files of the index whose segments the copy has."""
    held = target.names()
    for name in found.indexes:
        if name + INDEX not in held:
            data = source.read(name + INDEX)
            if data is None:
                continue  # it was pruned meanwhile
            file = IndexFile(data, f"{source.name}/{name}{INDEX}", manifest.log_id)
            if file.rows.column("end_ordinal")[-1].as_py() <= (manifest.end_ordinal or 0):
                target.write(name + INDEX, data)


def _copy_segment(source: Store, target: Store, segment: Segment) -> None:
    """Copy the files of one segment, the sidecar last."""
    file = segment.name + SEGMENT
    data = source.read_buffer(file, 0, segment.bytes)
    for extent in (segment.header_extent, *(part.extent for part in segment.parts)):
        check_extent(data[extent.offset : extent.stop], extent, f"{source.name}/{file}")
    target.write(file, data)
    target.write(segment.name + SIDECAR, segment_to_bytes(segment))
