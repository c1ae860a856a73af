"""TableBatch: the changes of one table in a micro-batch of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgwire_codec.spark.formats.packed import ChangeFacts, TableRange
from pgwire_codec.spark.mirroring.row_columns import RowColumns
from pgwire_codec.spark.sinks.survey import Survey, time_of
from pgwire_codec.spark.tables import LogTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Changes of a table in a micro-batch.

    Attributes
    ----------
    changes : DataFrame
    count : int
        Number of changes.
    range : TableRange
        Range of the log of which they are all changes.
    facts : ChangeFacts
    partitions : int or None
        Number of partitions of the changes, if that is known.
    letters : DataFrame or None
        Changes that do not decode, which are not among the others; None without any.
    """

    changes: DataFrame
    count: int
    range: TableRange
    facts: ChangeFacts
    partitions: int | None
    letters: DataFrame | None = None

    @classmethod
    def of(cls, tables: LogTables, name: str) -> TableBatch:
        """Return the changes of a table; raise ``TableError`` if one of them does not decode.

        Changes that do not decode are letters instead if the tables have those. A letter has no
        name if it is of a part of the log of which the batch does not have the table's changes.
        """
        letters = tables.dead_letters.get(tables.relation_oids[name])
        return cls(
            tables[name],
            tables.counts[name],
            tables.ranges[name],
            tables.facts[name],
            tables.partitions[name],
            None if letters is None else letters.where("table IS NOT NULL"),
        )

    def survey_after(self, applied: int | None, form: RowColumns) -> Survey | None:
        """Return a survey of the changes, if all are to be applied; None if a job must look.

        The target has the changes up to the LSN ``applied``, and rows of a form.
        """
        facts = self.facts
        if not self.count or (applied is not None and applied > self.range.after):
            return None
        is_insert = form.is_history or facts.inserts == self.count
        return Survey(
            facts.last_lsn,
            time_of(facts.last_time),
            self.range.relation.oid,
            None if form.is_history else facts.truncated,
            has_inserts_only=is_insert,
            rows=self.count,
            sends_all=is_insert or not (facts.has_unsent or form.keeps_deleted),
            partitions=self.partitions,
        )

    def letters_after(self, lsn: int) -> DataFrame | None:
        """Return the letters after a commit LSN; None if the batch has no letters."""
        from pyspark.sql.functions import col

        return None if self.letters is None else self.letters.where(col("after_lsn") >= lsn)
