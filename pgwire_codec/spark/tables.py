"""latest: a DataFrame of changes becomes the table that they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgwire_codec.spark.net import TOLD, ChangeColumns, net_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Give the rows that the changes of a table leave, each in its last state.

    Deletes and truncates are obeyed, changes of a key are followed, and a value that an update did
    not send (unchanged TOAST) is the one that the row had before, under its old key if need be. All
    of it goes by ``(_commit_lsn, _seq)``; the order of the rows does not matter, nor does a change
    that is there twice.

    Parameters
    ----------
    changes : DataFrame
        Changes of one table, as :func:`decode_changes` and ``format("pgoutput")`` give them. It is
        read several times: persist one that is costly to make. The changes of keys have to fit into
        the memory of one task.
    keys : sequence of str
        Columns that identify a row: the replica identity, or some of it that suffices.

    Returns
    -------
    DataFrame
        The table's columns; ``_xid``, ``_lsn``, ``_commit_lsn``, ``_commit_time``, ``_seq`` and
        ``_origin`` of the change that made a row what it is; and ``_unchanged``, the names of the
        columns whose value the changes do not tell, because they begin after it was written. Lazy.

    Raises
    ------
    ValueError
        When a metadata column is missing, or a key column is not in the replica identity.
    """
    from pyspark.sql import functions

    columns = ChangeColumns.of(changes, keys)
    net = net_changes(changes, columns).where("NOT gone")
    table = [functions.col(f"c{number}").alias(name) for number, name in enumerate(columns.table)]
    told = [
        functions.col("told")[name].alias(columns.metadata[name])
        for name in TOLD
        if name in columns.metadata
    ]
    names = functions.array(
        *(
            functions.when(functions.col(f"u{number}"), functions.lit(columns.table[number]))
            for number in columns.value_numbers
        )
    ).cast("array<string>")
    known = functions.array_compact(names)
    unchanged = functions.when(functions.size(known) > 0, known)
    return net.select(*table, *told, unchanged.alias(columns.metadata["_unchanged"]))
