"""Dead letters of a mirror: changes that their targets lack, in a table of the lake."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.masks import without_values
from pgwire_codec.lake.system_table import SystemTable
from pgwire_codec.log.dead_letters import DEAD_LETTERS


class DeadLetters:
    """Table of dead letters, for the threads of a micro-batch.

    A letter is recorded before its change is missing in the target, and once: its ordinal in the
    log identifies it. With ``hides_values``, letters are recorded without the message, and errors
    without values.
    """

    def __init__(self, table: SystemTable, *, hides_values: bool) -> None:
        self._table = table
        self._hides_values = hides_values
        self._lock = threading.RLock()

    def record(self, letters: pa.RecordBatch) -> None:
        """Record letters that are not recorded yet."""
        with self._lock:
            recorded = self._read()
            known = pc.is_in(letters.column("ordinal"), recorded.column("ordinal"))
            self._write(recorded, recorded, self._form(letters.filter(pc.invert(known))))

    def replace(self, relation_oid: int, letters: pa.RecordBatch | None) -> None:
        """Replace the letters of a relation."""
        with self._lock:
            recorded = self._read()
            added = None if letters is None else self._form(letters)
            self._write(recorded, recorded.filter(_is_not(recorded, relation_oid)), added)

    def delete_lost(self, relation_oid: int, former: int | None, truncated: int | None) -> None:
        """Delete the letters of rows that a target does not have any more.

        They are those of the relation ``former`` that it had before, if it is another one, and
        those before the commit LSN of the last truncate, such as that of a copy.
        """
        with self._lock:
            recorded = kept = self._read()
            if former is not None and former != relation_oid:
                kept = kept.filter(_is_not(kept, former))
            if truncated is not None:
                later = pc.greater_equal(kept.column("commit_lsn"), truncated)
                kept = kept.filter(pc.or_(_is_not(kept, relation_oid), later.fill_null(True)))
            self._write(recorded, kept)

    def count(self, relation_oid: int) -> int:
        """Return the number of letters of a relation."""
        return len(self._of(relation_oid))

    def first_lsn(self, relation_oid: int) -> int | None:
        """Return the commit LSN after which to read a relation's letters; None without letters."""
        first: int | None = pc.min(self._of(relation_oid).column("after_lsn")).as_py()
        return first

    @property
    def unnamed(self) -> int:
        """Number of letters that belong to no table that is known."""
        return int(self._read().column("table").null_count)

    def _of(self, relation_oid: int) -> pa.Table:
        letters = self._read()
        return letters.filter(pc.equal(letters.column("relation_oid"), relation_oid))

    def _read(self) -> pa.Table:
        with self._lock:
            return self._table.read()

    def _write(
        self, recorded: pa.Table, kept: pa.Table, added: pa.RecordBatch | None = None
    ) -> None:
        """Keep some of the letters that are recorded, and add others."""
        rows = pa.Table.from_batches([] if added is None else [added], DEAD_LETTERS)
        if len(kept) < len(recorded):
            self._table.overwrite(pa.concat_tables([kept, rows]))
        elif len(rows):
            self._table.append(rows)

    def _form(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Return letters as they are recorded, each once."""
        _, first = np.unique(letters.column("ordinal").to_numpy(), return_index=True)
        letters = letters.take(pa.array(np.sort(first)))
        if not self._hides_values:
            return letters
        hidden = {
            "error": pa.array(
                map(without_values, letters.column("error").to_pylist()), pa.string()
            ),
            "data": pa.nulls(len(letters), pa.binary()),
        }
        columns = [hidden.get(name, letters.column(name)) for name in letters.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=letters.schema)


def _is_not(letters: pa.Table, oid: int) -> pa.ChunkedArray:
    return pc.not_equal(letters.column("relation_oid"), oid).fill_null(True)
