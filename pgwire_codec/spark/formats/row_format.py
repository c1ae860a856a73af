"""Formats of the rows of ``format("pgoutput")``, and the choice of one by the options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from pgwire_codec.changes.identity import PossibleLeaves
from pgwire_codec.log import Log
from pgwire_codec.spark.formats.any_table import AnyTableRows
from pgwire_codec.spark.formats.debezium import DebeziumRows
from pgwire_codec.spark.formats.native import NativeRows
from pgwire_codec.spark.options import SourceOptions
from pgwire_codec.transactions.carry import RelationVersion

#: A format of rows. It is picklable, and returns record batches of exactly its ``schema``: Spark
#: accepts nothing else from a data source.
RowFormat: TypeAlias = AnyTableRows | NativeRows

_STYLES: Final = {"native": NativeRows, "debezium": DebeziumRows}


def row_format(
    options: SourceOptions,
    newest: RelationVersion | None,
    versions: Sequence[RelationVersion],
    log: Log,
    leaves: PossibleLeaves,
) -> RowFormat:
    """Return the format that the options ask for.

    ``newest`` is the newest version of the table, or None for all tables; ``versions`` are those of
    all relations, or of the table. Raises ``TableError`` when the table does not have a column.
    """
    if newest is None:
        return AnyTableRows.of(relation_oid=options.with_relation_oid)
    style = _STYLES[options.style]
    return style.of(options, newest, versions, log.source.database, leaves, log.registry)
