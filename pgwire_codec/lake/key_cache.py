"""KeyCache: keys of data files in which rows are looked up again and again."""

from __future__ import annotations

import hashlib
import io
import logging
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa

from pgwire_codec.lake.comparison import Numbers
from pgwire_codec.lake.data_files import FileChecksum
from pgwire_codec.lake.key_file import FORMAT, DamagedKeyFileError, KeyFile, write_key_file
from pgwire_codec.lake.key_folder import add_keys, open_keys, remove_keys
from pgwire_codec.lake.key_index import KeyIndex
from pgwire_codec.lake.table_files import DataFile, TableFiles

_LOGGER: Final = logging.getLogger("pgwire_codec.mirror")

#: Rows from which on the keys of a file are in the folder of this machine, and not in memory.
_LARGE_ROWS: Final = 1 << 16

#: Bytes in memory, and number of files that are remembered without their keys.
_MOST_BYTES: Final = 64 << 20
_MOST_NAMES: Final = 10_000

#: Seconds after which keys are made again that were not kept.
_RETRY_SECONDS: Final = 600.0


class _Name(NamedTuple):
    """Facts on which the keys of a file depend."""

    uri: str
    path: str
    size: int
    checksum: FileChecksum | None
    schema: pa.Schema
    field_ids: tuple[int | None, ...] | None
    are_plain: bool


class KeyCache:
    """Keys of files from the second lookup on: those of the last lookups.

    A mirror looks up a few keys in the same files with each turn: the cost then depends on their
    number, and not on the size of the table. Data files do not change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: OrderedDict[_Name, KeyFile] = OrderedDict()
        self._bytes = 0
        #: Times of ``monotonic`` from which on the keys of files that lack them are made.
        self._due: OrderedDict[_Name, float] = OrderedDict()
        self._has_warned = False

    def match(
        self, target: TableFiles, file: DataFile, schema: pa.Schema, index: KeyIndex
    ) -> tuple[Numbers, Numbers] | None:
        """Return the positions of rows that equal keys, and the numbers of these.

        Returns None if the file is to be read. The hashes of the index must be unique.
        """
        ids = target.field_ids
        name = _Name(
            target.uri,
            file.path,
            file.size,
            file.checksum,
            schema,
            None if ids is None else tuple(map(ids.get, schema.names)),
            index.are_plain,
        )
        with self._lock:
            keys = self._keys.get(name)
            if keys is not None:
                self._keys.move_to_end(name)
        try:
            if keys is None:
                keys = self._get(name, target, file)
            if keys is None:
                return None
            try:
                return index.match_file(keys)
            except DamagedKeyFileError as damage:
                self._forget(name)
                remove_keys(keys.identity, damage)
        except FileNotFoundError:  # it was removed
            self._forget(name)
        except OSError as error:
            self._warn(error)
        return None

    def _get(self, name: _Name, target: TableFiles, file: DataFile) -> KeyFile | None:
        """Return the keys of a file from the folder, or made if they are due."""
        is_due = self._is_due(name)
        write = partial(_write, name, target, file)
        keys: KeyFile | None = None
        if file.rows is not None and file.rows < _LARGE_ROWS:
            if is_due:
                keys = _in_memory(name, write)
        else:
            identity = _identity(name, target, file)
            keys = open_keys(identity, name.schema)
            if keys is None and is_due:
                add_keys(identity, partial(write, identity))
                keys = open_keys(identity, name.schema)
        if keys is not None and keys.nbytes <= _MOST_BYTES:
            with self._lock:
                self._drop(name)
                self._keys[name] = keys
                self._bytes += keys.nbytes
                while self._bytes > _MOST_BYTES:
                    self._drop(next(iter(self._keys)))
        return keys

    def _is_due(self, name: _Name) -> bool:
        """Return whether keys are to be made, from the second lookup on: by one thread."""
        now = time.monotonic()
        with self._lock:
            due = self._due.pop(name, None)
            is_due = due is not None and now >= due
            self._due[name] = now + _RETRY_SECONDS if is_due else now if due is None else due
            if len(self._due) > _MOST_NAMES:
                self._due.popitem(last=False)
        return is_due

    def _forget(self, name: _Name) -> None:
        """Have the next lookup make the keys of a file."""
        with self._lock:
            self._drop(name)
            self._due[name] = 0.0

    def _drop(self, name: _Name) -> None:
        keys = self._keys.pop(name, None)
        self._bytes -= 0 if keys is None else keys.nbytes

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "lookups read all keys of large files, since the cache of keys cannot be used: %s. "
                "Set XDG_CACHE_HOME to a folder with space that can be written.",
                error,
            )


def _in_memory(name: _Name, write: Callable[..., None]) -> KeyFile:
    sink = io.BytesIO()
    write("", sink)
    data = sink.getvalue()
    keys = KeyFile(partial(io.BytesIO, data), "", name.schema)
    keys.nbytes += len(data)
    return keys


def _write(name: _Name, target: TableFiles, file: DataFile, identity: str, sink: BinaryIO) -> None:
    """Write the keys of a data file."""
    with target.open(file) as opened:
        write_key_file(sink, identity, opened.groups(name.schema), are_plain=name.are_plain)


def _identity(name: _Name, target: TableFiles, file: DataFile) -> str:
    """Return the identity of the keys of a data file, as a name of a file."""
    if name.checksum is None:
        checksum = f"footer {_footer_crc32(target, file):08x}"
    else:
        checksum = name.checksum.to_text()
    columns = [(column.name, str(column.type)) for column in name.schema]
    facts = (
        FORMAT,
        name.uri,
        name.path,
        name.size,
        checksum,
        columns,
        name.field_ids,
        name.are_plain,
    )
    return hashlib.blake2b(repr(facts).encode(), digest_size=20).hexdigest()


def _footer_crc32(target: TableFiles, file: DataFile) -> int:
    """Return the CRC-32 of the footer of a Parquet file, which contains where all values are."""
    end = target.folder.read(file.path, max(0, file.size - 8))
    size = int.from_bytes(end[:4], "little")
    return zlib.crc32(target.folder.read(file.path, max(0, file.size - 8 - size)))
