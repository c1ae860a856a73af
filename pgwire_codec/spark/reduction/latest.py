"""latest: the rows of a table after its changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgwire_codec.spark.reduction.change_columns import columns_of, numbered
from pgwire_codec.spark.reduction.net_changes import lasting_changes, net_changes
from pgwire_codec.spark.reduction.row_counts import row_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    lasting = lasting_changes(numbered(changes, columns))
    if keys is None:
        rows = row_changes(lasting, columns).where("NOT removed")
        none = functions.lit(None).cast(lasting.schema["_unchanged"].dataType)
        rows = rows.withColumn("unchanged", none)
    else:
        rows = net_changes(lasting, columns).where("NOT gone")
    selected = [*columns.numbers, *columns.row_metadata, "unchanged"]
    names = [columns.metadata[name] for name in (*columns.row_metadata, "_unchanged")]
    return rows.select(*selected).toDF(*columns.table, *names)
