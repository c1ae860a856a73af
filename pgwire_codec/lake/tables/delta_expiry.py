"""Files of a Delta table that only versions have from before the time for which it keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.tables.delta_log import DeltaState, state_before
from pgwire_codec.lake.tables.delta_vectors import vector_path

#: Property with the time for which files of former versions are kept, and its default.
_RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK: Final = "interval 1 week"

_INTERVAL: Final = re.compile(r"interval (\d+) (hour|day|week)s?")
_SECONDS: Final = {"hour": 3600, "day": 86_400, "week": 604_800}

#: Names of files of a table without partitions.
_OF_TABLE: Final = re.compile(r"[^_.].*\.parquet|deletion_vector_.*\.bin")


def expired_files(folder: Folder, state: DeltaState, now: float) -> list[str]:
    """Return the names of the files that no version of the last time has, by default a week.

    A vector of such a version counts as a file. Without the log from before that time, there are
    none; nor with a time in other units than hours, days and weeks.
    """
    kept = _INTERVAL.fullmatch(state.metadata["configuration"].get(_RETENTION, _WEEK))
    if kept is None:
        return []
    begin = now - int(kept[1]) * _SECONDS[kept[2]]
    former = state_before(folder, begin)
    if former is None:
        return []
    # Files that were added since have been written since.
    used = _files(former.files) | _files(state.files)
    return [
        name
        for name, written in folder.modified("").items()
        if written < begin and name not in used and _OF_TABLE.fullmatch(name)
    ]


def _files(files: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the paths of data files and of their vectors."""
    vectors = (file.get("deletionVector") for file in files.values())
    in_files = (vector for vector in vectors if vector and vector["storageType"] == "u")
    return {*files, *map(vector_path, in_files)}
