"""KeyCache: sorted keys of data files in which rows are looked up again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

import pyarrow as pa

from pgwire_codec.lake.key_index import KeyIndex, SortedKeys
from pgwire_codec.lake.table_files import DataFile, TableFiles

#: Bytes of all sorted keys of this process, and number of files that are remembered without them.
_MOST_BYTES: Final = 128 << 20
_MOST_NAMES: Final = 10_000

#: Bytes of a row of the smallest keys.
_ROW_BYTES: Final = 20


class _Name(NamedTuple):
    uri: str
    path: str
    schema: pa.Schema
    are_plain: bool


class KeyCache:
    """Keys of files from the second lookup on, those of the last lookups.

    A mirror looks up a few keys in the same files with each turn: the cost then depends on their
    number, and not on the size of the table. Data files do not change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: OrderedDict[_Name, SortedKeys] = OrderedDict()
        self._names: OrderedDict[_Name, None] = OrderedDict()
        self._bytes = 0

    def get(
        self, target: TableFiles, file: DataFile, schema: pa.Schema, index: KeyIndex
    ) -> SortedKeys | None:
        """Return the keys of a file; None if it is to be read, as it is not looked up often."""
        name = _Name(target.uri, file.path, schema, index.are_plain)
        with self._lock:
            keys = self._keys.get(name)
            if keys is not None:
                self._keys.move_to_end(name)
                return keys
            if not self._is_known(name) or (file.rows or 0) * _ROW_BYTES > _MOST_BYTES:
                return None
        with target.open(file) as opened:
            rows = pa.concat_tables([group for _, group in opened.groups(schema)])
        keys = SortedKeys(
            [column.combine_chunks() for column in rows.columns], are_plain=index.are_plain
        )
        with self._lock:
            if name not in self._keys:
                self._keys[name] = keys
                self._bytes += keys.nbytes
            while self._bytes > _MOST_BYTES:
                _, oldest = self._keys.popitem(last=False)
                self._bytes -= oldest.nbytes
        return keys

    def _is_known(self, name: _Name) -> bool:
        if name in self._names:
            self._names.move_to_end(name)
            return True
        self._names[name] = None
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        return False
