"""Net changes of a table: the last state of each key.

A key has *lives*: one begins with an insert, or with an update that gave a row this key, and ends
with a delete, or with an update that gave the row another key. A value that an update did not send
is the last one sent in its life. If the life has none, it is the one that its row had in the
previous life, under the old key. So a value is searched for first among the changes of one key,
which are sorted together, and then along the key changes, in one task for the few rows that need
it.

Spark only sorts: the values are folded in Arrow. An expression for each column, on columns that
are expressions, would lead to plans that grow exponentially with the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.key_chains import CHAIN, resolve_chains
from pgwire_codec.lake.key_states import ARROW_PLACE, fold
from pgwire_codec.spark.reduction.change_columns import new_key, old_key
from pgwire_codec.spark.reduction.map_in_arrow import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_BATCH_ROWS = 10_000


def net_changes(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return one row for each key that changes touch: those that :func:`lasting_changes` returns.

    It uses the folded changes twice.

    Its columns: ``gone`` boolean, for a key without a row at the end; ``c0``, ``c1``, … the row, as
    numbered in :attr:`ChangeColumns.table`; ``unchanged`` array of string, the names of the columns
    whose value the changes do not contain (``c`` is null there), or null; ``r0``, … the columns of
    the key that the row had before all these changes, null for an inserted row; and the metadata of
    the last change of the row.
    """
    from pyspark.sql import functions

    col = functions.col
    events = _events(changes, columns)
    schema = _schema(events, columns)
    lives = map_in_arrow(_by_key(events, columns), _fold(columns), schema)
    near = lives.where("is_last AND NOT far").drop(*CHAIN)
    near = near.withColumn("unchanged", functions.when(~col("gone"), col("unchanged")))
    if not columns.values:
        return near
    # All in one task: a chain of key changes may lead anywhere.
    chains = lives.where("far OR left IS NOT NULL").repartition(1)
    return near.union(map_in_arrow(chains, _resolve_chains(columns), near.schema))


def lasting_changes(changes: DataFrame) -> DataFrame:
    """Return the numbered changes after the last truncate, of the relation that changed last."""
    from pyspark.sql import functions

    col = functions.col
    place = functions.struct("_commit_lsn", "_seq")
    truncated = functions.max(place).alias("truncated")
    lasting = functions.lit(True)
    if RELATION_OID in changes.columns:
        truncated = functions.max(functions.when(col("_op") == "T", place)).alias("truncated")
        relations = changes.groupBy(col(RELATION_OID).alias("relation")).agg(
            functions.max(place).alias("newest"), truncated
        )
        newest = functions.max(functions.struct("newest", "relation", "truncated"))
        last = relations.agg(newest.alias("last")).select("last.relation", "last.truncated")
        lasting = col(RELATION_OID).eqNullSafe(col("relation"))
    else:
        last = changes.where("_op = 'T'").agg(truncated)
    lasting &= (col("_op") != "T") & (col("truncated").isNull() | (place > col("truncated")))
    return changes.crossJoin(functions.broadcast(last)).where(lasting).drop(*last.columns)


def _events(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the changes by key: a change of a row's key counts for both keys."""
    from pyspark.sql import functions

    col = functions.col
    old = {number: old_key(columns, number).alias(f"o{number}") for number in columns.keys}
    new = {number: new_key(columns, number).alias(f"n{number}") for number in columns.keys}
    same = functions.lit(True)
    for number in columns.keys:
        same &= col(f"o{number}").eqNullSafe(col(f"n{number}"))
    moved = (col("_op") == "U") & ~same
    both = functions.when(col("moved"), functions.array(*map(functions.lit, (False, True))))
    event = functions.explode(both.otherwise(functions.array(functions.lit(False))))
    keys = {
        number: functions.when(col("leaving"), col(f"o{number}"))
        .otherwise(col(f"n{number}"))
        .alias(f"c{number}")
        for number in columns.keys
    }
    selected = [keys.get(number, f"c{number}") for number in range(len(columns.table))]
    # Of the old tuple, only the values are needed after this.
    has_values = any(map(columns.in_before, columns.values))
    metadata = ["_op", "_unchanged", *(["_before"] if has_values else []), *columns.row_metadata]
    return (
        changes.select("*", *old.values(), *new.values())
        .withColumn("moved", moved)
        .withColumn("leaving", event)
        .select(*selected, *metadata, "moved", "leaving")
    )


def _by_key(events: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return changes with those of a key one after another, in order."""
    key = [f"c{number}" for number in columns.keys]
    return events.repartition(*key).sortWithinPartitions(*key, "_commit_lsn", "_seq")


def _schema(events: DataFrame, columns: ChangeColumns) -> StructType:
    """Return the schema of lives, as :func:`fold` yields them."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import BooleanType, StructField, StructType

    kinds = {field.name: field.dataType for field in events.schema}
    place = from_arrow_type(ARROW_PLACE)
    fields: dict[str, Any] = dict.fromkeys(("gone", "is_last", "far", "written"), BooleanType())
    fields |= {"arrived": place, "left": place, "unchanged": kinds["_unchanged"]}
    fields |= {name: kinds[name] for name in (*columns.numbers, *columns.row_metadata)}
    fields |= {f"r{place}": kinds[f"c{number}"] for place, number in enumerate(columns.keys)}
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _fold(columns: ChangeColumns) -> Callable[[Batches], Batches]:
    return lambda batches: fold(batches, columns)


def _resolve_chains(columns: ChangeColumns) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        if several := list(batches):
            yield from resolve_chains(pa.Table.from_batches(several), columns).to_batches(
                _BATCH_ROWS
            )

    return run
