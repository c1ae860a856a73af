"""auto_cdc_rows: changes in the form that Spark's AUTO CDC needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.metadata import RELATION_OID
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.comparison import mask_of
from pgwire_codec.lake.fold import key_events
from pgwire_codec.lake.unsent_values import missing_values, with_old_values
from pgwire_codec.spark.reduction.change_columns import columns_of, numbered
from pgwire_codec.spark.tasks import Batches, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    from pyspark.sql.types import StructType

    if keys is None:
        raise OptionError(
            "keys must be a list of at least one column, not None",
            hint="AUTO CDC finds rows by their key.",
        )
    columns = columns_of(changes, keys)
    rows = numbered(changes, columns)
    metadata = ["_op", "_commit_lsn", "_seq", *({RELATION_OID} & columns.metadata.keys())]
    schema = StructType()
    for name in (*columns.numbers, *metadata):
        schema.add(name, rows.schema[name].dataType)
    names = schema.names

    def run(batches: Batches) -> Batches:
        return (_upserts_and_deletes(batch, columns).select(names) for batch in batches)

    selected = map_in_arrow(rows, run, schema)
    return selected.toDF(*columns.table, *(columns.metadata[name] for name in metadata))


def _upserts_and_deletes(changes: pa.RecordBatch, columns: ChangeColumns) -> pa.RecordBatch:
    """Return numbered changes as upserts and deletes, of old keys, too. Raises ``TableError``."""
    if pc.any(pc.equal(changes.column("_op"), "T")).as_py():
        raise TableError(
            "AUTO CDC cannot apply a truncate",
            hint="Apply it to the target by a full refresh, or use merge_into.",
        )
    events = key_events(changes, columns)
    data = dict(zip(events.schema.names, events.columns, strict=True))
    missing = missing_values(data["_unchanged"], columns.table)
    data, lacking = with_old_values(data, columns, missing)
    leaving = mask_of(data["leaving"])
    for number, rows in lacking.items():
        if not leaving[rows].all():
            raise TableError(
                f"column {columns.table[number]} was not sent (it is unchanged TOAST) and is not "
                "in _before: AUTO CDC would overwrite it with NULL",
                hint="Set REPLICA IDENTITY FULL, with which the server sends old rows, or use "
                "merge_into.",
            )
    kept = pa.array(np.arange(len(events)), mask=leaving)
    data |= {f"c{number}": data[f"c{number}"].take(kept) for number in columns.values}
    is_delete = pc.or_(data["leaving"], pc.equal(data["_op"], "D"))
    data["_op"] = pc.if_else(is_delete, "D", "U")
    return pa.RecordBatch.from_pydict(data)
