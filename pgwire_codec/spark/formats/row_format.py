"""RowFormat: schema of the rows of ``format("pgoutput")`` and conversion of changes, by options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.identity import PossibleLeaves
from pgwire_codec.changes.table_schema import CommitColumns
from pgwire_codec.spark.formats.any_table import AnyTableRows
from pgwire_codec.spark.formats.debezium import DebeziumRows
from pgwire_codec.spark.formats.delta_feed import DeltaFeedRows
from pgwire_codec.spark.formats.native import NativeRows
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import TypeRegistry

_STYLES: Final = {"native": NativeRows, "debezium": DebeziumRows, "delta": DeltaFeedRows}


class RowFormat(Protocol):
    """A format of rows.

    Implementations are picklable, and return record batches of exactly their ``schema``: Spark
    accepts nothing else from a data source.
    """

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema in the form that Spark uses."""

    @property
    def commit_columns(self) -> CommitColumns:
        """Columns by which rows are filtered before they are decoded."""

    def record_batch(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows of a batch."""

    def check(self, versions: Sequence[RelationVersion]) -> None:
        """Raise ``TableError`` when one of these versions of the table does not fit."""


def row_format(
    options: SourceOptions,
    newest: RelationVersion | None,
    versions: Sequence[RelationVersion],
    database: str,
    leaves: PossibleLeaves,
    registry: TypeRegistry,
) -> RowFormat:
    """Return the format that the options ask for.

    ``newest`` is the newest version of the table, or None for all tables; ``versions`` are those of
    all relations, or of the table. Raises ``TableError`` when the table does not have a column.
    """
    if newest is None:
        return AnyTableRows.of(relation_oid=options.with_relation_oid)
    style = _STYLES[options.style]
    return style.of(options, newest, versions, database, leaves, registry)
