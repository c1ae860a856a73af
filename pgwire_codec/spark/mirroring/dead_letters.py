"""Dead letters of a mirror: changes that their targets lack, in a table of the lake."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.spark.kept_rows import kept
from pgwire_codec.spark.mirroring.lake_table import Filters, LakeTable
from pgwire_codec.spark.mirroring.masks import QUOTED
from pgwire_codec.spark.mirroring.status import LOGGER, TableStatus
from pgwire_codec.spark.sinks.survey import Survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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

    def record(self, letters: DataFrame) -> int:
        """Record letters that are not recorded yet; return the number of all of them."""
        with kept(self._form(letters)) as rows:
            ordinals = rows.select("ordinal").toArrow().column("ordinal")
            if len(ordinals):
                with self._lock:
                    recorded = self._recorded(ordinals)
                    if len(recorded) < len(ordinals):
                        self._table.append(_without(rows, recorded) if len(recorded) else rows)
            return len(ordinals)

    def recorded(self, status: TableStatus, letters: DataFrame) -> TableStatus:
        """Record the letters of a table, and return its status with the number of all."""
        if self.record(letters):
            LOGGER.warning("changes of %s do not decode, and are left out", status.table)
        return replace(status, dead_letters=self.count(status.relation_oid))

    def replaced(self, status: TableStatus, letters: DataFrame) -> TableStatus:
        """Replace the letters of a table, and return its status with the number of all."""
        oid = status.relation_oid
        with kept(self._form(letters)) as rows, self._lock:
            number = rows.count()
            if not self.count(oid):
                if number:
                    self._table.append(rows)
            elif number:
                self._table.replace([_of(oid)], "ordinal", rows)
            else:
                self._table.delete([_of(oid)])
        return replace(status, dead_letters=number)

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
            self._delete(oid, ("commit_lsn", "<", survey.truncated[0]))
        return replace(status, dead_letters=self.count(oid))

    def count(self, relation_oid: int) -> int:
        """Return the number of letters of a relation."""
        return len(self._read("relation_oid", [_of(relation_oid)]))

    def first_lsn(self, relation_oid: int) -> int | None:
        """Return the commit LSN after which to read a relation's letters; None without letters."""
        found: int | None = pc.min(self._read("after_lsn", [_of(relation_oid)])).as_py()
        return found

    @property
    def unnamed(self) -> int:
        """Number of letters that belong to no table that is known."""
        return int(self._read("table").null_count)

    def _delete(self, relation_oid: int, *others: tuple[str, str, int]) -> None:
        """Delete letters of a relation: those of further conditions, if there are any."""
        with self._lock:
            if self.count(relation_oid):
                self._table.delete([_of(relation_oid), *others])

    def _recorded(self, ordinals: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the ordinals of these whose letters are recorded."""
        bounds = pc.min_max(ordinals).as_py()
        between = [("ordinal", ">=", bounds["min"]), ("ordinal", "<=", bounds["max"])]
        found = self._read("ordinal", between)
        return found.filter(pc.is_in(found, ordinals)).unique() if len(found) else found

    def _read(self, column: str, filters: Filters = ()) -> pa.ChunkedArray:
        found = self._table.read([column], filters)
        return pa.chunked_array([], pa.null()) if found is None else found.column(column)

    def _form(self, letters: DataFrame) -> DataFrame:
        """Return letters as they are recorded, each once."""
        from pyspark.sql import functions

        letters = letters.dropDuplicates(["ordinal"])
        if not self._hides_values:
            return letters
        texts = functions.regexp_replace("error", f"(?s){QUOTED.pattern}", "'…'")
        return letters.withColumns({"error": texts, "data": functions.lit(None).cast("binary")})


def _of(relation_oid: int) -> tuple[str, str, int]:
    return ("relation_oid", "=", relation_oid)


def _without(letters: DataFrame, ordinals: pa.Array) -> DataFrame:
    known = letters.sparkSession.createDataFrame(pa.table({"ordinal": ordinals}))
    return letters.join(known, "ordinal", "left_anti").select(*letters.columns)
