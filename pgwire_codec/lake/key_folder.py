"""Folder of this machine with keys of large data files, which mirrors and executors share.

It may be removed at any time. It has limited bytes: files that were not used for the longest time
are removed first. One that was used a while ago is kept: it would be written with each lookup.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa

from pgwire_codec.format import format_size
from pgwire_codec.lake.cache_folder import cache_folder
from pgwire_codec.lake.key_file import DamagedKeyFileError, KeyFile

_LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

#: Bytes of the folder, and its share of the free space with itself.
_MOST_BYTES: Final = 10_000_000_000
_SHARE: Final = 4

#: Seconds since the last use of a file after which it may be removed.
_UNUSED_SECONDS: Final = 3600.0


def open_keys(identity: str, schema: pa.Schema) -> KeyFile | None:
    """Return the keys with an identity; None if the folder lacks them. Raises ``OSError``."""
    path = _path(identity)
    try:
        return KeyFile(partial(_open, path), identity, schema)
    except FileNotFoundError:
        return None
    except DamagedKeyFileError as damage:
        remove_keys(identity, damage)
        return None


def remove_keys(identity: str, damage: DamagedKeyFileError) -> None:
    """Remove a file that is damaged; lookups write it again."""
    path = _path(identity)
    _LOGGER.warning("keys in the cache %s are damaged, and are made again: %s", path, damage)
    path.unlink(missing_ok=True)


def add_keys(identity: str, write: Callable[[BinaryIO], None]) -> None:
    """Add keys, which ``write`` writes into a file.

    Raises ``OSError``, including for a folder that may not have so many bytes.
    """
    path = _path(identity)
    space = _Space(path.parent)
    temporary = path.with_name(f".{identity}.{uuid.uuid4()}.tmp")
    try:
        # Keys may be personal data.
        with open(temporary, "xb", opener=partial(os.open, mode=0o600)) as file:
            write(cast("BinaryIO", _LimitedFile(file, space)))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _path(identity: str) -> Path:
    return cache_folder("keys") / f"{identity}.keys"


def _open(path: Path) -> BinaryIO:
    """Open a file, and record its use."""
    file = path.open("rb", buffering=0)
    if time.time() - os.fstat(file.fileno()).st_mtime > _UNUSED_SECONDS / 2:
        with suppress(OSError):  # a folder that cannot be written is not limited either
            os.utime(path)
    return file


class _Space:
    """Space in the folder for a new file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    status = entry.stat()
                    files.append((status.st_mtime, status.st_size, entry.path))
        self._files = sorted(files, reverse=True)  # the oldest last
        self._used = sum(size for _, size, _ in files)
        free = shutil.disk_usage(folder).free
        self._most = min(_MOST_BYTES, (self._used + free) // _SHARE)

    def reserve(self, size: int) -> None:
        """Remove old files, so that there is space for further bytes. Raises ``OSError``."""
        self._used += size
        before = time.time() - _UNUSED_SECONDS
        while self._used > self._most:
            if not self._files or self._files[-1][0] > before:
                raise OSError(f"{self._folder} may have {format_size(self._most)}")
            _, removed, path = self._files.pop()
            Path(path).unlink(missing_ok=True)
            self._used -= removed


class _LimitedFile:
    """A new file, for whose bytes there is space."""

    def __init__(self, file: BinaryIO, space: _Space) -> None:
        self._file = file
        self._space = space
        self.tell, self.seek = file.tell, file.seek

    def write(self, data: bytes) -> int:
        self._space.reserve(len(data))
        return self._file.write(data)
