"""Selection of the row format that the options of ``format("pgoutput")`` ask for."""

from __future__ import annotations

from collections.abc import Sequence

from pgwire_codec.spark.formats.any_table import AnyTableRows
from pgwire_codec.spark.formats.debezium import DebeziumRows
from pgwire_codec.spark.formats.delta_feed import DeltaFeedRows
from pgwire_codec.spark.formats.native import NativeRows
from pgwire_codec.spark.formats.row_format import RowFormat
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion


def row_format(
    options: SourceOptions,
    newest: RelationVersion | None,
    versions: Sequence[RelationVersion],
    database: str,
) -> RowFormat:
    """Return the format that the options ask for.

    ``newest`` is the newest version of the table, or None for all tables; ``versions`` are those of
    all relations. Raises ``TableError`` when the table does not have a column.
    """
    if newest is None:
        return AnyTableRows.of(relation_oid=options.with_relation_oid)
    native = NativeRows.of(options, newest, versions)
    if options.style == "debezium":
        return DebeziumRows.of(native, database)
    if options.style == "delta":
        return DeltaFeedRows.of(native)
    return native
