"""latest: the rows of a table after its changes.

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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.key_chains import CHAIN, resolve_chains
from pgwire_codec.lake.key_states import ARROW_PLACE, fold
from pgwire_codec.lake.row_counts import ROW_HASH, count_rows, split_updates
from pgwire_codec.spark.reduction.change_columns import columns_of, new_key, numbered, old_key
from pgwire_codec.spark.tasks import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_BATCH_ROWS: Final = 10_000


def latest(changes: DataFrame, keys: Sequence[str] | None) -> DataFrame:
    """Return the rows that exist after the changes of a table, each in its last state.

    Deletes and truncates are applied, and changes of a key are followed. A value that an update did
    not send (unchanged TOAST) is the one that the row had before, under its old key if necessary.
    Changes are applied in the order of ``(_commit_lsn, _seq)``, so the order of rows does not
    matter. A change that occurs twice is applied once.

    A table is a relation, independent of its name. If the changes have the column
    ``_relation_oid``, only those of the relation that changed last are applied. A relation that had
    the name before, and was dropped or renamed, leaves no rows.

    A row's changes are sorted by Spark and folded in Arrow, a batch at a time. Neither the number
    of keys nor the number of changes of a key affects memory.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, as :func:`decode_changes` and ``format("pgoutput")`` return them. They
        are read twice, first for truncates and the relation: persist them if they are expensive.
        The changes of keys that left large values unsent have to fit into the memory of one task.
    keys : sequence of str or None
        Columns that identify a row: the replica identity, or a sufficient part of it. None is for
        tables without a key, in which rows can be equal: inserts add a row; deletes and updates,
        which need ``REPLICA IDENTITY FULL``, remove one that equals the old row. Values are equal
        if the server sent the same: 0.0 and -0.0 differ, and so do 1.0 and 1.00 as strings; NULL
        equals NULL, and NaN equals NaN.

    Returns
    -------
    DataFrame
        The table's columns; ``_xid``, ``_lsn``, ``_commit_lsn``, ``_commit_time``, ``_seq``,
        ``_origin`` and, if it is present, ``_relation_oid`` of the last change of the row (of equal
        rows, a removed one is the newest that existed); and ``_unchanged``, the names of the
        columns whose value the changes do not contain, because they begin after it was written.
        Lazy. If names of columns differ in case only, set ``spark.sql.caseSensitive`` to ``true``
        to select one of them.

    Raises
    ------
    TableError
        When a metadata column is missing, or a key column is not in the replica identity. Without
        keys, a delete or update without the whole old row fails the job that reads the result.
    """
    from pyspark.sql import functions

    columns = columns_of(changes, keys)
    lasting = _lasting_changes(numbered(changes, columns))
    if keys is None:
        none = functions.lit(None).cast(lasting.schema["_unchanged"].dataType)
        rows = _added_rows(lasting, columns).withColumn("unchanged", none)
    else:
        rows = _last_states(lasting, columns)
    selected = [*columns.numbers, *columns.row_metadata, "unchanged"]
    names = [columns.metadata[name] for name in (*columns.row_metadata, "_unchanged")]
    return rows.select(*selected).toDF(*columns.table, *names)


def _lasting_changes(changes: DataFrame) -> DataFrame:
    """Return the numbered changes after the last truncate, of the relation that changed last."""
    from pyspark.sql import functions

    col = functions.col
    place = functions.struct("_commit_lsn", "_seq")
    truncated = functions.max(functions.when(col("_op") == "T", place)).alias("truncated")
    lasting = functions.lit(True)
    if RELATION_OID in changes.columns:
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


def _last_states(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the last state of each row with a key: its numbers, its metadata and ``unchanged``.

    It uses the folded changes twice.
    """

    def fold_keys(batches: Batches) -> Batches:
        return fold(batches, columns)

    def resolve(batches: Batches) -> Batches:
        if several := list(batches):
            chains = resolve_chains(pa.Table.from_batches(several), columns)
            yield from chains.to_batches(_BATCH_ROWS)

    keys = [f"c{number}" for number in columns.keys]
    events = _events(changes, columns)
    by_key = events.repartition(*keys).sortWithinPartitions(*keys, "_commit_lsn", "_seq")
    lives = map_in_arrow(by_key, fold_keys, _lives_schema(events, columns))
    states = lives.where("is_last AND NOT far").drop(*CHAIN)
    if columns.values:
        # All in one task: a chain of key changes may lead anywhere.
        chains = lives.where("far OR left IS NOT NULL").repartition(1)
        states = states.union(map_in_arrow(chains, resolve, states.schema))
    return states.where("NOT gone")


def _events(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the changes by key: a change of a row's key counts for both keys."""
    from pyspark.sql import functions

    col = functions.col
    old = [old_key(columns, number).alias(f"o{number}") for number in columns.keys]
    new = [new_key(columns, number).alias(f"n{number}") for number in columns.keys]
    same = functions.lit(True)
    for number in columns.keys:
        same &= col(f"o{number}").eqNullSafe(col(f"n{number}"))
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
        changes.select("*", *old, *new)
        .withColumn("moved", (col("_op") == "U") & ~same)
        .withColumn("leaving", event)
        .select(*selected, *metadata, "moved", "leaving")
    )


def _lives_schema(events: DataFrame, columns: ChangeColumns) -> StructType:
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


def _added_rows(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Return the rows without a key that changes add and do not remove, and their metadata."""
    from pyspark.sql import functions
    from pyspark.sql.types import BooleanType, LongType, StructType

    kinds = {field.name: field.dataType for field in changes.schema}
    names = [*columns.numbers, *columns.row_metadata]
    rows = StructType()
    for name in names:
        rows.add(name, kinds[name])
    rows.add("removed", BooleanType())
    exact = {
        name: functions.col(name).cast(_comparable(kinds[name])).alias(f"exact_{name}")
        for name in columns.numbers
        if kinds[name] != _comparable(kinds[name])
    }
    compared = [f"exact_{name}" if name in exact else name for name in columns.numbers]

    def split(batches: Batches) -> Batches:
        return (split_updates(batch, columns) for batch in batches)

    def count(batches: Batches) -> Batches:
        return count_rows(batches, compared, names)

    events = map_in_arrow(changes.select(*columns.numbers, *columns.metadata), split, rows)
    hashed = events.select("*", *exact.values())
    hashed = hashed.withColumn(ROW_HASH, functions.xxhash64(*compared))
    ordered = hashed.repartition(ROW_HASH).sortWithinPartitions(
        ROW_HASH,
        *compared,
        functions.col("_commit_lsn").desc(),
        functions.col("_seq").desc(),
        "removed",
    )
    counted = StructType([*rows.fields]).add("count", LongType())
    return map_in_arrow(ordered, count, counted).where("NOT removed")


def _comparable(kind: Any) -> Any:
    """Return the type in which values are compared: floats as text, where -0.0 and 0.0 differ."""
    from pyspark.sql.types import ArrayType, DecimalType, FractionalType, StringType

    if isinstance(kind, ArrayType):
        return ArrayType(_comparable(kind.elementType), kind.containsNull)
    is_float = isinstance(kind, FractionalType) and not isinstance(kind, DecimalType)
    return StringType() if is_float else kind
