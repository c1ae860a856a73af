"""Dead letters of a mirror: changes that their targets lack, in a table of the lake."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.masks import QUOTED
from pgwire_codec.lake.status import LOGGER, TableStatus
from pgwire_codec.lake.system_table import SystemTable
from pgwire_codec.lake.tasks import ChangeFacts


class DeadLetters:
    """Table of dead letters, for the threads of a micro-batch.

    A letter is recorded before its change is missing in the target, and once: its ordinal in the
    log identifies it.

    Parameters
    ----------
    table : SystemTable
    hides_values : bool
        Whether letters are recorded without the message, and errors without values.
    """

    def __init__(self, table: SystemTable, *, hides_values: bool) -> None:
        self._table = table
        self._hides_values = hides_values
        self._lock = threading.RLock()
        self._known: tuple[int, pa.Table] | None = None

    def record(self, letters: pa.Table) -> None:
        """Record letters that are not recorded yet."""
        with self._lock:
            recorded = self._read()
            if recorded is not None:
                known = pc.is_in(letters.column("ordinal"), recorded.column("ordinal"))
                letters = letters.filter(pc.invert(known))
            if len(letters):
                self._table.append(self._form(letters))

    def recorded(self, status: TableStatus, letters: pa.Table) -> TableStatus:
        """Record the letters of a table, and return its status with the number of all."""
        if len(letters):
            self.record(letters)
            LOGGER.warning("changes of %s do not decode, and are left out", status.table)
        return replace(status, dead_letters=self.count(status.relation_oid))

    def replaced(self, status: TableStatus, letters: pa.Table | None) -> TableStatus:
        """Replace the letters of a table, and return its status with the number of all."""
        oid = status.relation_oid
        with self._lock:
            recorded = self._read()
            others = None if recorded is None else recorded.filter(_is_not(recorded, oid))
            added = None if letters is None else self._form(letters)
            self._rewrite(recorded, others, added)
        return replace(status, dead_letters=self.count(oid))

    def without_lost(
        self, status: TableStatus, former: int | None, facts: ChangeFacts
    ) -> TableStatus:
        """Delete the letters of rows that a target does not have any more; return its status.

        They are those of the relation that it had before, if it is another one, and those before
        the last truncate of the changes, such as that of a copy.
        """
        oid = status.relation_oid
        with self._lock:
            recorded = self._read()
            if recorded is not None:
                keeps = pa.chunked_array([pa.repeat(True, len(recorded))])
                if former is not None and former != oid:
                    keeps = _is_not(recorded, former)
                if facts.truncated is not None:
                    later = pc.greater_equal(
                        recorded.column("commit_lsn"), facts.truncated.commit_lsn
                    ).fill_null(True)
                    keeps = pc.and_(keeps, pc.or_(_is_not(recorded, oid), later))
                self._rewrite(recorded, recorded.filter(keeps), None)
        return replace(status, dead_letters=self.count(oid))

    def count(self, relation_oid: int) -> int:
        """Return the number of letters of a relation."""
        recorded = self._read()
        if recorded is None:
            return 0
        return int(pc.sum(pc.equal(recorded.column("relation_oid"), relation_oid)).as_py() or 0)

    def first_lsn(self, relation_oid: int) -> int | None:
        """Return the commit LSN after which to read a relation's letters; None without letters."""
        recorded = self._read()
        if recorded is None:
            return None
        of_relation = recorded.filter(pc.equal(recorded.column("relation_oid"), relation_oid))
        found: int | None = pc.min(of_relation.column("after_lsn")).as_py()
        return found

    @property
    def unnamed(self) -> int:
        """Number of letters that belong to no table that is known."""
        recorded = self._read()
        return 0 if recorded is None else int(recorded.column("table").null_count)

    def _read(self) -> pa.Table | None:
        with self._lock:
            version = self._table.refresh()
            if version is None:
                return None
            if self._known is None or self._known[0] != version:
                self._known = version, self._table.read()
            return self._known[1]

    def _rewrite(
        self, recorded: pa.Table | None, kept: pa.Table | None, added: pa.Table | None
    ) -> None:
        """Replace the letters that are recorded, if they change."""
        if kept is None:
            if added is not None and len(added):
                self._table.append(added)
        elif recorded is not None and (len(kept) < len(recorded) or added is not None):
            parts = [kept] if added is None else [kept, added]
            self._table.overwrite(pa.concat_tables(parts))

    def _form(self, letters: pa.Table) -> pa.Table:
        """Return letters as they are recorded, each once."""
        ordinals = letters.column("ordinal").to_pylist()
        first = [place for place, each in enumerate(ordinals) if ordinals.index(each) == place]
        letters = letters.take(first)
        if not self._hides_values:
            return letters
        texts = _without_values(letters.column("error").to_pylist())
        place = letters.column_names.index("error")
        letters = letters.set_column(place, letters.schema.field("error"), pa.array(texts))
        place = letters.column_names.index("data")
        nothing = pa.nulls(len(letters), pa.binary())
        return letters.set_column(place, letters.schema.field("data"), nothing)


def _is_not(letters: pa.Table, oid: int) -> pa.ChunkedArray:
    return pc.not_equal(letters.column("relation_oid"), oid).fill_null(True)


def _without_values(texts: Sequence[str]) -> list[str]:
    return [re.sub(QUOTED, "'…'", text) for text in texts]
