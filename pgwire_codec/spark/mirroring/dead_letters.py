"""Dead letters of a mirror: changes that their targets lack, in a table of the lake."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.spark.mirroring.lake_table import LakeTable
from pgwire_codec.spark.mirroring.masks import QUOTED
from pgwire_codec.spark.mirroring.status import TableStatus
from pgwire_codec.spark.sinks.survey import Survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOGGER: Final = logging.getLogger("pgwire_codec.spark.mirror")

#: Columns that decide which letters are recorded.
_FACTS: Final = ("ordinal", "table", "relation_oid", "after_lsn")


class DeadLetters:
    """Table of dead letters, for the threads of a micro-batch.

    A letter is recorded before its change is missing in the target, and once: its ordinal in the
    log identifies it.

    Parameters
    ----------
    table : LakeTable
    hides_values : bool
        Whether letters are recorded without the message, and errors without values.
    """

    def __init__(self, table: LakeTable, *, hides_values: bool) -> None:
        self._table = table
        self._hides_values = hides_values
        self._lock = threading.Lock()

    def record(self, letters: DataFrame) -> list[int]:
        """Record letters that are not recorded yet; return the ordinals of all of them."""
        from pyspark.sql.functions import col

        kept = self._hidden(letters.dropDuplicates(["ordinal"])).persist()
        try:
            ordinals = kept.select("ordinal").toArrow().column("ordinal")
            with self._lock:
                known = pc.is_in(ordinals, self._facts().column("ordinal").combine_chunks())
                recorded = ordinals.filter(known).to_pylist()
                if len(recorded) < len(ordinals):
                    rows = kept.where(~col("ordinal").isin(recorded)) if recorded else kept
                    self._table.append(rows)
        finally:
            kept.unpersist()
        found: list[int] = ordinals.to_pylist()
        return found

    def recorded(self, status: TableStatus, letters: DataFrame) -> TableStatus:
        """Record the letters of a table, and return its status with the number of all."""
        if self.record(letters):
            LOGGER.warning("changes of %s do not decode, and are left out", status.table)
        return replace(status, dead_letters=self.count(status.relation_oid))

    def replaced(self, status: TableStatus, letters: DataFrame) -> TableStatus:
        """Replace the letters of a table, and return its status with the number of all."""
        remaining = self.record(letters)
        others = f" AND ordinal NOT IN ({', '.join(map(str, remaining))})" if remaining else ""
        self._delete(status.relation_oid, others)
        return replace(status, dead_letters=len(remaining))

    def without_lost(
        self, status: TableStatus, held: int | None, survey: Survey | None
    ) -> TableStatus:
        """Delete the letters of rows that a target does not have any more; return its status.

        They are those of the relation that it ``held``, if it is another one, and those before the
        last truncate of the changes, such as that of a copy.
        """
        oid = status.relation_oid
        if held is not None and held != oid:
            self._delete(held)
        if survey is not None and survey.truncated is not None:
            self._delete(oid, f" AND commit_lsn < {survey.truncated[0]}")
        return replace(status, dead_letters=self.count(oid))

    def count(self, relation_oid: int) -> int:
        """Return the number of letters of a relation."""
        return int(self._of(relation_oid).num_rows)

    def first_lsn(self, relation_oid: int) -> int | None:
        """Return the commit LSN after which to read a relation's letters; None without letters."""
        found: int | None = pc.min(self._of(relation_oid).column("after_lsn")).as_py()
        return found

    @property
    def unnamed(self) -> int:
        """Number of letters that belong to no table that is known."""
        return int(self._facts().column("table").null_count)

    def _delete(self, relation_oid: int, others: str = "") -> None:
        """Delete letters of a relation: those of a further condition in SQL, if there is one."""
        with self._lock:
            if self._of(relation_oid).num_rows:
                self._table.delete(f"relation_oid = {relation_oid}{others}")

    def _of(self, relation_oid: int) -> pa.Table:
        facts = self._facts()
        return facts.filter(pc.equal(facts.column("relation_oid"), relation_oid))

    def _facts(self) -> pa.Table:
        found = self._table.read(_FACTS)
        if found is not None:
            return found
        kinds = [pa.int64(), pa.string(), pa.int64(), pa.int64()]
        return pa.schema(list(zip(_FACTS, kinds, strict=True))).empty_table()

    def _hidden(self, letters: DataFrame) -> DataFrame:
        from pyspark.sql import functions

        if not self._hides_values:
            return letters
        texts = functions.regexp_replace("error", f"(?s){QUOTED.pattern}", "'…'")
        return letters.withColumns({"error": texts, "data": functions.lit(None).cast("binary")})
