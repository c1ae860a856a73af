"""Copying of the complete segments of a log to another place."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pgwire_codec.errors import LogError
from pgwire_codec.log.bounds import MANIFEST, Manifest, manifest_to_bytes
from pgwire_codec.log.directory import (
    Directory,
    not_a_log,
    read_directory,
    read_sidecar,
    remove_replaced,
)
from pgwire_codec.log.index_file import INDEX, IndexFile, ordinal_ranges
from pgwire_codec.log.ipc_file import check_extent
from pgwire_codec.log.segment import (
    SEGMENT,
    SIDECAR,
    Segment,
    end_ordinal_of,
    first_ordinal_of,
    segment_name,
)
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.store import Store, open_store
from pgwire_codec.log.type_record import TypeRecord
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

    A segment that was joined from others since these were copied replaces them in the copy. The
    copy can be read meanwhile, up to its last complete segment. A :class:`LogWriter` cannot write
    to it: it has no watermark, and its manifest contains its end. The log may be written and read
    meanwhile.

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
        missing = _missing(source, found, store, manifest)
        if missing:  # the types before the messages that need them
            TypeRecord(store).add(TypeRecord(source).read())
        for name in missing:
            segment = read_sidecar(source, name, found.manifest)
            _copy_segment(source, store, segment)
            # Last: only now the copy has the segment.
            end_ordinal = max(segment.end_ordinal, manifest.end_ordinal or 0)
            manifest = replace(manifest, end_ordinal=end_ordinal)
            store.write(MANIFEST, manifest_to_bytes(manifest))
        if replaced := read_directory(store).replaced:
            remove_replaced(store, manifest, replaced)
        has_joined = any(end_ordinal_of(name) is not None for name in missing)
        pruned = max(found.first_ordinal, manifest.first_ordinal)
        _copy_index(source, found, store, pruned, again=has_joined)
    return [name + SEGMENT for name in missing]


def _missing(source: Store, found: Directory, target: Store, manifest: Manifest) -> list[str]:
    """Return the segments that a copy does not have, in order.

    A joined segment replaces those that were copied before it was joined.
    """
    held = {*read_directory(target).sealed}
    copied = manifest.end_ordinal or 0
    missing = []
    for name in found.sealed:
        first, end = first_ordinal_of(name), end_ordinal_of(name)
        is_after = first >= copied if end is None else end > copied
        if first >= manifest.first_ordinal:
            if is_after or name not in held:
                missing.append(name)
        elif end is not None and is_after:
            raise LogError(
                f"the copy {target.name} was pruned up to ordinal {manifest.first_ordinal}, which "
                f"is inside of segment {name} of {source.name}",
                hint="Copy to an empty directory.",
            )
    return missing


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


def _copy_index(
    source: Store, found: Directory, target: Store, first_ordinal: int, *, again: bool
) -> None:
    """Copy the files of the index that the copy does not have, or with ``again`` all of them.

    Files with segments that the copy does not have are left out; those before an ordinal were
    pruned.
    """
    held = {*target.names()}
    if again:
        old = [name for name in held if name.endswith(INDEX)]
        target.remove(*old)
        held.difference_update(old)
    log_id = "" if found.manifest is None else found.manifest.log_id
    joined = {name for name in found.sealed if end_ordinal_of(name) is not None}
    for name in found.indexes:
        if name + INDEX not in held:
            data = source.read(name + INDEX)
            if data is None:
                continue  # it was pruned or replaced meanwhile
            rows = IndexFile(data, f"{source.name}/{name}{INDEX}", log_id).rows
            names = [
                each if (each := segment_name(*ordinals)) in joined else segment_name(ordinals[0])
                for ordinals in ordinal_ranges(rows)
                if ordinals[0] >= first_ordinal
            ]
            if held.issuperset(each + SIDECAR for each in names):
                target.write(name + INDEX, data)


def _copy_segment(source: Store, target: Store, segment: Segment) -> None:
    """Copy the files of one segment, the sidecar last."""
    file = segment.name + SEGMENT
    data = source.read_buffer(file, 0, segment.bytes)
    for extent in (segment.header_extent, *(part.extent for part in segment.parts)):
        check_extent(data[extent.offset : extent.stop], extent, f"{source.name}/{file}")
    target.write(file, data)
    target.write(segment.name + SIDECAR, segment_to_bytes(segment))
