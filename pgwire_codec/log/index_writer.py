"""IndexWriter: the files of a log's index, each written once."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pgwire_codec.log.index_file import INDEX, index_batch, index_row, index_to_bytes
from pgwire_codec.log.segment import Segment, segment_name
from pgwire_codec.log.store import Store
from pgwire_codec.transactions.carry import Scope

#: Segments of a file. The sidecars of later ones are read one by one.
INDEXED_SEGMENTS: Final = 256


class IndexWriter:
    """Collects the rows of complete segments, and writes a file when they are enough.

    Parameters
    ----------
    store : Store
        Store of the log.
    log_id : str
        Identifier of the log.
    rows : list of pyarrow.RecordBatch
        Rows of segments, one a batch, that no file has.
    """

    def __init__(self, store: Store, log_id: str, rows: list[pa.RecordBatch]) -> None:
        self._store = store
        self._log_id = log_id
        self._rows = rows
        self._write()

    def add(self, segment: Segment, before: Scope, declared: Scope) -> None:
        """Add a segment, with the relations known before it and those that it declared."""
        self._rows.append(index_batch([index_row(segment, before, declared)]))
        self._write()

    def _write(self) -> None:
        while self._rows:
            count = _consecutive(self._rows[:INDEXED_SEGMENTS])
            if count == len(self._rows) < INDEXED_SEGMENTS:
                break
            write_index(self._store, self._log_id, self._rows[:count])
            del self._rows[:count]


def _consecutive(rows: list[pa.RecordBatch]) -> int:
    """Return the number of rows up to the first gap: a file of the index has those after it."""
    ends = [row.column("end_ordinal")[0] for row in rows]
    starts = [row.column("first_ordinal")[0] for row in rows]
    gaps = (number for number in range(1, len(rows)) if ends[number - 1] != starts[number])
    return next(gaps, len(rows))


def write_index(store: Store, log_id: str, rows: list[pa.RecordBatch]) -> str:
    """Write a file of the index, and return its name."""
    batch = pa.concat_batches(rows)
    name = segment_name(batch.column("first_ordinal")[0].as_py()) + INDEX
    store.write(name, index_to_bytes(batch, log_id))
    return name
