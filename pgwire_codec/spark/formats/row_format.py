"""RowFormat: the schema of the rows of ``format("pgoutput")``, and the conversion of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.transactions.carry import RelationVersion


class RowFormat(Protocol):
    """A format of rows.

    Implementations are picklable, and return record batches of exactly their ``schema``: Spark
    accepts nothing else from a data source.
    """

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema in the form that Spark uses."""

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows of a batch."""

    def check(self, versions: Sequence[RelationVersion]) -> None:
        """Raise ``TableError`` when one of these versions of the table does not fit."""
