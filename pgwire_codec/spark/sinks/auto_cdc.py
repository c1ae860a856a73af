"""auto_cdc_rows: changes in the form that Spark's AUTO CDC needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.errors import OptionError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.spark.reduction.change_columns import columns_of, new_key, numbered, old_key, stop

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def auto_cdc_rows(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Prepare changes of a table for ``pyspark.pipelines.create_auto_cdc_flow``.

    AUTO CDC applies upserts and deletes of whole rows by key. So an update that changed its row's
    key becomes two rows: a delete of the old key and an upsert of the new one. Values that an
    update did not send (unchanged TOAST) are read from ``_before``, if the table has ``REPLICA
    IDENTITY FULL``.

    Two changes stop the flow with an error: a value that was not sent and is not in ``_before``,
    because AUTO CDC would overwrite it with NULL, and a truncate, because AUTO CDC would keep the
    rows. :func:`merge_into` applies both.

    AUTO CDC cannot replace a table by another one that gets its name, either. Leave the stream's
    option ``onRelationChange`` at ``fail``, and refresh the table in full after its error.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, batch or stream, as ``format("pgoutput")`` returns them.
    keys : sequence of str
        Columns that identify a row, as for the flow.

    Returns
    -------
    DataFrame
        The table's columns, then ``_op`` (``D`` for a delete, ``U`` for an upsert); ``_commit_lsn``
        and ``_seq``, the flow's sequence; and ``_relation_oid``, if the changes have it.

    Raises
    ------
    TableError
        When a metadata column is missing, or a key column is not in the replica identity.

    Examples
    --------
    ::

        log = spark.readStream.format("pgoutput").option("table", "public.orders").load(path)
        # Outside the view's function, which must not access columns.
        upserts_and_deletes = auto_cdc_rows(log, keys=["id"])

        @dp.temporary_view
        def order_changes():
            return upserts_and_deletes

        dp.create_streaming_table("orders")
        dp.create_auto_cdc_flow(
            target="orders",
            source="order_changes",
            keys=["id"],
            sequence_by="struct(_commit_lsn, _seq)",
            apply_as_deletes="_op = 'D'",
            except_column_list=["_op", "_commit_lsn", "_seq"],
        )
    """
    from pyspark.sql import functions

    if keys is None:
        raise OptionError(
            "keys must be a list of at least one column, not None",
            hint="AUTO CDC finds rows by their key.",
        )
    col = functions.col
    columns = columns_of(changes, keys)
    places = ["_commit_lsn", "_seq", *({RELATION_OID} & columns.metadata.keys())]
    truncated = stop(
        "AUTO CDC cannot apply a truncate",
        hint="Apply it to the target by a full refresh, or use merge_into.",
    )
    op = functions.when(col("_op") == "T", truncated).when(col("_op") == "D", "D").otherwise("U")
    row = numbered(changes, columns).select(
        op.alias("op"),
        (col("_op") == "U").alias("updated"),
        *places,
        functions.struct(*(new_key(columns, n).alias(f"c{n}") for n in columns.keys)).alias("key"),
        functions.struct(*(old_key(columns, n).alias(f"c{n}") for n in columns.keys)).alias("old"),
        functions.struct(
            *(_sent(number, columns).alias(f"c{number}") for number in columns.values),
            functions.lit(None).alias(""),  # so that it is a struct if there are keys only
        ).alias("values"),
    )
    whole = functions.struct("op", "key", "values")
    gone = functions.struct(
        functions.lit("D").alias("op"),
        col("old").alias("key"),
        functions.lit(None).cast(row.schema["values"].dataType).alias("values"),
    )
    moved = col("updated") & ~col("old").eqNullSafe(col("key"))
    rows = functions.when(moved, functions.array(gone, whole)).otherwise(functions.array(whole))
    table = [
        f"row.{'key' if number in columns.keys else 'values'}.c{number}"
        for number in range(len(columns.table))
    ]
    names = [columns.metadata[name] for name in ("_op", *places)]
    return (
        row.select(*places, functions.explode(rows).alias("row"))
        .select(*table, "row.op", *places)
        .toDF(*columns.table, *names)
    )


def _sent(number: int, columns: ChangeColumns) -> Column:
    """Return a value that was sent, or that is in ``_before``; raise an error for others."""
    from pyspark.sql import functions

    name = columns.table[number]
    lost = stop(
        f"column {name} was not sent (it is unchanged TOAST) and is not in _before: AUTO CDC "
        "would overwrite it with NULL",
        hint="Set REPLICA IDENTITY FULL, with which the server sends old rows, or use merge_into.",
    )
    old = functions.when(functions.col("_op") == "U", lost)
    if columns.in_before(number):
        # A value in TOAST storage is never NULL: a NULL was not sent.
        old = functions.coalesce(functions.col("_before")[f"c{number}"], old)
    is_unchanged = functions.array_contains("_unchanged", name)
    return functions.when(is_unchanged, old).otherwise(functions.col(f"c{number}"))
