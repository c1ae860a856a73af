"""KeyFile: the keys of a data file by their hashes, in a file of a cache.

Such a file has blocks of hashes, which are sorted, with the positions of their rows, and blocks of
keys in the order of the rows. A lookup reads few of them. Each is checked when it is read: a file
that is damaged, cut or another one is an error, and never a key that is missing.

The header is followed by the blocks, and these by the directory: sorted runs of rows, which limit
the memory that sorting takes, then the blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from pgwire_codec.lake.comparison import Numbers, mask_of
from pgwire_codec.lake.row_hashes import Hashes, row_hashes
from pgwire_codec.lake.table_files import gather

#: Format of the files, to which the functions that make hashes belong.
FORMAT: Final = 1

_MAGIC: Final = b"pgwkeys\n"

#: Magic, offset of the directory, numbers of its entries; then the checksum of both.
_HEADER: Final = struct.Struct("<8sQIII")
_CHECK: Final = struct.Struct("<Q")
_FIRST: Final = _HEADER.size + _CHECK.size

#: Rows of a block, and bytes from which on one of keys has fewer; rows from which on a run ends.
_BLOCK_ROWS: Final = 1024
_BLOCK_BYTES: Final = 1 << 17
_RUN_ROWS: Final = 1 << 21

_CODEC: Final = ("zstd", 1)

_RUN: Final = np.dtype([("start", "<u8"), ("blocks", "<u4")])
#: ``key`` is the first hash or row; ``length`` the number of rows, or bytes before compression.
_BLOCK: Final = np.dtype(
    [("key", "<u8"), ("check", "<u8"), ("offset", "<u8"), ("size", "<u4"), ("length", "<u4")]
)
_HASH_BYTES: Final = 8
_ENTRY_BYTES: Final = _HASH_BYTES + 4


def key_hashes(columns: Sequence[pa.Array], *, are_plain: bool) -> Hashes:
    """Return the hashes of keys; those of plain integers are different if the keys are."""
    if not are_plain:
        return row_hashes(columns)
    (column,) = columns
    if column.null_count:  # no key is null
        column = column.fill_null(0)
    values: Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return values.view(np.uint64)


class DamagedKeyFileError(Exception):
    """The file with keys is damaged, cut or another one."""


class KeyFile:
    """Keys of a data file.

    ``open_file`` opens the file of a cache, and ``identity`` is that of the keys. Like the methods,
    it raises ``DamagedKeyFileError`` for a file that is damaged or another one.
    """

    def __init__(self, open_file: Callable[[], BinaryIO], identity: str, schema: pa.Schema) -> None:
        self.identity = identity
        self._open = open_file
        self._schema = schema
        with open_file() as file:
            header = _read(file, 0, _FIRST)
            magic, offset, *counts = _HEADER.unpack_from(header)
            ends = np.cumsum(
                [0, counts[0] * _RUN.itemsize, *(n * _BLOCK.itemsize for n in counts[1:])]
            )
            size = int(ends[-1])
            if magic != _MAGIC or offset + size != file.seek(0, 2):
                raise DamagedKeyFileError("it is cut or another file")
            directory = _read(file, offset, size)
        if (
            _CHECK.pack(_check(identity, header[: _HEADER.size], directory))
            != header[-_CHECK.size :]
        ):
            raise DamagedKeyFileError("its directory does not match its checksum")
        kinds = _RUN, _BLOCK, _BLOCK
        self._runs, self._hashes, self._keys = (
            np.frombuffer(directory[start:end], kind)
            for start, end, kind in zip(ends[:-1], ends[1:], kinds, strict=True)
        )
        #: Bytes in memory.
        self.nbytes = size

    def match(self, hashes: Hashes) -> tuple[Numbers, Numbers]:
        """Return the positions of rows whose hashes are among some, and the numbers of these.

        The hashes are sorted.
        """
        found: list[tuple[Numbers, Numbers]] = []
        begin = 0
        with self._open() as file:
            for start, count in self._runs.tolist():
                blocks = self._hashes[begin : begin + count]
                begin += count
                entries = [_entries(file, block) for block in blocks[_needed(blocks, hashes)]]
                if entries:
                    positions, numbers = _match(entries, hashes)
                    found.append((positions + start, numbers))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        positions, numbers = map(np.concatenate, zip(*found, strict=True))
        return positions, numbers

    def take(self, positions: Numbers) -> pa.Table:
        """Return the keys of rows, in the order of their positions."""
        blocks = np.searchsorted(self._keys["key"], positions.astype(np.uint64), side="right") - 1
        codec = pa.Codec(_CODEC[0])
        with self._open() as file:

            def read(number: int, chosen: Numbers) -> pa.Table:
                block = self._keys[number]
                data = codec.decompress(_block(file, block), int(block["length"]))
                rows = pa.ipc.read_record_batch(data, self._schema)
                within = positions[chosen] - int(block["key"])
                return pa.Table.from_batches([rows.take(pa.array(within))])

            return gather(blocks, read)


def _needed(blocks: npt.NDArray[Any], hashes: Hashes) -> Numbers:
    """Return the numbers of the blocks that may have some hashes, which are sorted."""
    # Equal hashes may begin at the end of the block before.
    first = np.searchsorted(blocks["key"], hashes, side="left") - 1
    last = np.searchsorted(blocks["key"], hashes, side="right") - 1
    changes = np.zeros(len(blocks) + 1, np.int64)
    np.add.at(changes, np.maximum(first, 0), 1)
    np.add.at(changes, last + 1, -1)
    return np.flatnonzero(np.cumsum(changes[:-1]))


def _entries(file: BinaryIO, block: Any) -> tuple[Hashes, npt.NDArray[np.uint32]]:
    data, count = _block(file, block), int(block["length"])
    hashes = np.frombuffer(data, "<u8", count)
    return hashes, np.frombuffer(data, "<u4", count, offset=_HASH_BYTES * count)


def _match(
    entries: Sequence[tuple[Hashes, npt.NDArray[np.uint32]]], hashes: Hashes
) -> tuple[Numbers, Numbers]:
    rows, places = map(np.concatenate, zip(*entries, strict=True))
    first = np.searchsorted(rows, hashes, side="left")
    counts = np.searchsorted(rows, hashes, side="right") - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    positions = places[np.repeat(first, counts) + within].astype(np.int64)
    return positions, np.repeat(np.arange(len(hashes)), counts)


def _block(file: BinaryIO, block: Any) -> bytes:
    """Return the bytes of a block. Raises ``DamagedKeyFileError``."""
    data = _read(file, int(block["offset"]), int(block["size"]))
    if xxhash.xxh3_64_intdigest(data) != block["check"]:
        raise DamagedKeyFileError("a block does not match its checksum")
    return data


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    data = file.read(size)
    if len(data) != size:
        raise DamagedKeyFileError("it is cut")
    return data


def _check(identity: str, header: bytes, directory: bytes) -> int:
    """Return the checksum of a header and a directory, which belong to an identity."""
    return xxhash.xxh3_64_intdigest(identity.encode() + header + directory)


def write_key_file(
    file: BinaryIO,
    identity: str,
    groups: Iterable[tuple[int, pa.Table]],
    *,
    are_plain: bool,
) -> None:
    """Write the keys of a data file, whose rows are there in groups, with their first positions."""
    writer = _Writer(file, are_plain=are_plain)
    for start, rows in groups:
        writer.add(start, rows)
    writer.finish(identity)


class _Writer:
    def __init__(self, file: BinaryIO, *, are_plain: bool) -> None:
        self._file = file
        self._are_plain = are_plain
        self._codec = pa.Codec(_CODEC[0], compression_level=_CODEC[1])
        self._runs: list[tuple[int, int]] = []
        self._hash_blocks: list[tuple[int, ...]] = []
        self._key_blocks: list[tuple[int, ...]] = []
        self._start = self._end = 0  # rows of the run
        self._hashes: list[Hashes] = []
        self._positions: list[npt.NDArray[np.int64]] = []
        file.write(bytes(_FIRST))

    def add(self, start: int, rows: pa.Table) -> None:
        """Add rows at a position."""
        columns = [column.combine_chunks() for column in rows.columns]
        positions = np.arange(start, start + len(rows))
        hashes = key_hashes(columns, are_plain=self._are_plain)
        if self._are_plain and columns[0].null_count:
            is_key = mask_of(columns[0].is_valid())
            hashes, positions = hashes[is_key], positions[is_key]
        self._hashes.append(hashes)
        self._positions.append(positions)
        if not self._are_plain:
            self._add_keys(start, pa.RecordBatch.from_arrays(columns, schema=rows.schema))
        self._end = start + len(rows)
        if self._end - self._start >= _RUN_ROWS:
            self._finish_run()

    def _add_keys(self, start: int, rows: pa.RecordBatch) -> None:
        most = _BLOCK_BYTES * len(rows) // max(1, rows.nbytes)
        count = max(1, min(_BLOCK_ROWS, most))
        for place in range(0, len(rows), count):
            data = rows.slice(place, count).serialize()
            packed = self._codec.compress(data, asbytes=True)
            self._key_blocks.append(self._write(start + place, packed, data.size))

    def _finish_run(self) -> None:
        hashes = np.concatenate(self._hashes)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        positions = (np.concatenate(self._positions)[order] - self._start).astype("<u4")
        for place in range(0, len(hashes), _BLOCK_ROWS):
            some = hashes[place : place + _BLOCK_ROWS]
            data = some.tobytes() + positions[place : place + _BLOCK_ROWS].tobytes()
            self._hash_blocks.append(self._write(int(some[0]), data, len(some)))
        self._runs.append((self._start, -(-len(hashes) // _BLOCK_ROWS)))
        self._hashes, self._positions, self._start = [], [], self._end

    def _write(self, key: int, data: bytes, length: int) -> tuple[int, ...]:
        offset = self._file.tell()
        self._file.write(data)
        return key, xxhash.xxh3_64_intdigest(data), offset, len(data), length

    def finish(self, identity: str) -> None:
        if self._hashes:
            self._finish_run()
        offset = self._file.tell()
        counts = len(self._runs), len(self._hash_blocks), len(self._key_blocks)
        directory = (
            np.array(self._runs, _RUN).tobytes()
            + np.array(self._hash_blocks, _BLOCK).tobytes()
            + np.array(self._key_blocks, _BLOCK).tobytes()
        )
        self._file.write(directory)
        header = _HEADER.pack(_MAGIC, offset, *counts)
        self._file.seek(0)
        self._file.write(header + _CHECK.pack(_check(identity, header, directory)))
