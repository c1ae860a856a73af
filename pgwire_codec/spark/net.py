"""What changes leave of a table: the last state of each key, wherever its row came from.

A key has *lives*: one begins with an insert, or with an update that gave a row this key, and ends
with a delete, or with an update that gave the row another key. A value that an update did not send
is the last one that its life knows; where the life knows none, the one that its row had in the
life that it came from, under the old key. So a value is looked for first among the changes of one
key, which is a window, and then along the key changes, which takes one task over the few rows that
have any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.spark.follow import CHAIN, follow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The metadata columns of changes, in their order.
METADATA: Final = (
    "_op", "_xid", "_lsn", "_commit_lsn", "_commit_time", "_seq", "_origin", "_unchanged",
    "_before", "_invalid",
)  # fmt: skip

_NEEDED: Final = ("_op", "_commit_lsn", "_seq", "_unchanged")

_BATCH_ROWS: Final = 10_000

#: Of a row of :func:`net_changes`: the change that made it what it is.
TOLD: Final = ("_xid", "_lsn", "_commit_lsn", "_commit_time", "_seq", "_origin")


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """What the columns of a DataFrame of changes are.

    Attributes
    ----------
    table : tuple of str
        The table's columns.
    keys, values : tuple of str
        Which of them identify a row, and the others.
    metadata : dict of str to str
        The metadata columns that are there: their names, by the name without further underscores.
    before : frozenset of str
        Fields of ``_before``.
    """

    table: tuple[str, ...]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    metadata: dict[str, str]
    before: frozenset[str]

    @classmethod
    def of(cls, changes: DataFrame, keys: Sequence[str]) -> ChangeColumns:
        """Find them. Raises ``ValueError`` for a DataFrame that is not one of changes."""
        from pyspark.sql import DataFrame

        if not isinstance(changes, DataFrame):
            raise TypeError(f"changes must be a Spark DataFrame, not {type(changes).__name__}")
        if isinstance(keys, str) or not keys:
            raise ValueError(f"keys must name at least one column in a list, not {keys!r}")
        there = changes.columns
        metadata = {}
        for name in METADATA:
            found = name
            while f"_{found}" in there:  # the table has a column of that name, too
                found = f"_{found}"
            if found in there:
                metadata[name] = found
        if missing := [name for name in _NEEDED if name not in metadata]:
            raise ValueError(
                f"this is no DataFrame of changes, as decode_changes gives: it has no "
                f"{', '.join(missing)}; it has: {', '.join(there)}"
            )
        table = [name for name in there if name not in metadata.values()]
        if unknown := [name for name in keys if name not in table]:
            raise ValueError(
                f"the table has no key column {', '.join(unknown)}; it has: {', '.join(table)}"
            )
        before: frozenset[str] = frozenset()
        if "_before" in metadata:
            kind: Any = changes.schema[metadata["_before"]].dataType
            before = frozenset(kind.fieldNames())
        if before and (unknown := [name for name in keys if name not in before]):
            raise ValueError(
                f"key column {', '.join(unknown)} is not in the table's replica identity: _before "
                f"has {', '.join(sorted(before))}, so that a change of the key would go unseen"
            )
        values = tuple(name for name in table if name not in keys)
        return cls(tuple(table), tuple(keys), values, metadata, before)

    @property
    def value_numbers(self) -> list[int]:
        """Where in the table the columns stand that are not of the key."""
        return [self.table.index(name) for name in self.values]

    def column(self, name: str) -> Column:
        """Give a metadata column, by the name without further underscores."""
        from pyspark.sql import functions

        return functions.col(quote(self.metadata[name]))

    @property
    def at(self) -> Column:
        """The place of a change in the total order."""
        from pyspark.sql import functions

        return functions.struct(
            self.column("_commit_lsn").alias("lsn"), self.column("_seq").alias("seq")
        )

    @property
    def unchanged(self) -> Column:
        """Names of the columns that were not sent; never null."""
        from pyspark.sql import functions

        none = functions.array().cast("array<string>")
        return functions.coalesce(self.column("_unchanged"), none)

    def key(self) -> Column:
        """The key that a change leaves its row with: a long one may not be sent but as the old."""
        from pyspark.sql import functions

        return functions.struct(*(self._sent_or_old(name).alias(name) for name in self.keys))

    def old_key(self) -> Column:
        """The key that an update found its row under."""
        from pyspark.sql import functions

        if not self.before:
            # The server refuses updates of a table without replica identity: _before was left out.
            no_before = functions.raise_error(
                functions.lit(
                    "an update without _before, by which a change of the key is seen: decode with "
                    'before="key"'
                )
            )
            return functions.when(self.column("_op") == "U", no_before).otherwise(self.key())
        before = self.column("_before")
        found = functions.struct(*(before[name].alias(name) for name in self.keys))
        updated = (self.column("_op") == "U") & before.isNotNull()
        return functions.when(updated, found).otherwise(self.key())

    def cell(self, name: str) -> Column:
        """A value as ``struct<v>``; null where it is not known."""
        from pyspark.sql import functions

        sent = functions.when(
            ~functions.array_contains(self.unchanged, name),
            functions.struct(functions.col(quote(name)).alias("v")),
        )
        if name not in self.before:
            return sent
        # A value that was moved out of its row is never NULL: where the old tuple has one, it is
        # this; where it has NULL, the server did not send it.
        old = self.column("_before")[name]
        return sent.when(old.isNotNull(), functions.struct(old.alias("v")))

    def _sent_or_old(self, name: str) -> Column:
        from pyspark.sql import functions

        if name not in self.before:
            return functions.col(quote(name))
        old = functions.array_contains(self.unchanged, name)
        return functions.when(old, self.column("_before")[name]).otherwise(
            functions.col(quote(name))
        )


def quote(name: str) -> str:
    """Give a column's name as SQL and ``functions.col`` take any name."""
    return "`" + name.replace("`", "``") + "`"


def net_changes(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Give one row a key that the changes touch, behind the last truncate.

    Its columns, numbered as :attr:`ChangeColumns.table`: ``gone`` boolean, where the key is free
    now; ``c0``, ``c1``, … the row; ``u0``, … boolean, for the columns that are not of the key,
    where there is a row and the changes do not tell the value (``c`` is null there); ``r0``, … the
    columns of the key under which the row stood before all these changes, null for one that they
    inserted; ``told`` struct of :data:`TOLD`, of the last change of the row.
    """
    from pyspark.sql import functions

    col = functions.col
    lives = _lives(changes, columns)
    values = columns.value_numbers
    lacking = functions.lit(False)
    for number in values:
        lacking |= col(f"u{number}")
    far = col("is_last") & ~col("gone") & col("arrived").isNotNull() & lacking
    lives = lives.withColumn("far", far)
    masked = {f"u{number}": ~col("gone") & col(f"u{number}") for number in values}
    near = lives.where("is_last AND NOT far").drop(*CHAIN).withColumns(masked)
    if not values:
        return near
    # All in one task: a chain of key changes may lead anywhere.
    chains = lives.where("far OR left IS NOT NULL").drop("is_last").repartition(1)
    followed = chains.mapInArrow(_follow(values, len(columns.keys)), near.schema)
    return near.unionByName(followed)


def _follow(
    values: list[int], keys: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if several := list(batches):
            yield from follow(pa.Table.from_batches(several), values, keys).to_batches(_BATCH_ROWS)

    return run


def _lives(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Give one row a life of a key that the changes touch, behind the last truncate.

    Its columns: those of :func:`net_changes`, as far as the changes of this life tell them (``u0``,
    … where it ended, too, and ``r0``, … null where a change of the key began it); ``is_last``,
    whether no later life of the key is known; and ``arrived`` and ``left`` struct, the places of
    the changes of a key that it began and ended with, or null. What arrived goes on from what left
    there.
    """
    from pyspark.sql import functions

    col = functions.col
    truncates = changes.where(columns.column("_op") == "T")
    truncate = functions.broadcast(truncates.agg(functions.max(columns.at).alias("truncated")))
    behind = functions.col("truncated").isNull() | (columns.at > functions.col("truncated"))
    lasting = changes.crossJoin(truncate).where(behind & (columns.column("_op") != "T"))
    lives = _by_life(_events(lasting, columns), columns)
    selected = [(~col("alive")).alias("gone")]
    for number, name in enumerate(columns.table):
        if name in columns.keys:
            selected.append(col("key")[name].alias(f"c{number}"))
        else:
            cell = col("cells")[name]
            selected += [cell["v"].alias(f"c{number}"), cell.isNull().alias(f"u{number}")]
    selected += [col("root")[name].alias(f"r{n}") for n, name in enumerate(columns.keys)]
    return lives.select(*selected, "told", "is_last", "arrived", "left")


def _events(changes: DataFrame, columns: ChangeColumns) -> DataFrame:
    """Give what happens to each key: a change of a row's key happens to two."""
    from pyspark.sql import functions

    op = columns.column("_op")
    told = [columns.column(name).alias(name) for name in TOLD if name in columns.metadata]
    row = changes.select(
        columns.at.alias("at"),
        op.alias("op"),
        columns.key().alias("key"),
        columns.old_key().alias("old"),
        functions.struct(
            *(columns.cell(name).alias(name) for name in columns.values),
            functions.lit(True).alias(_ALWAYS),
        ).alias("cells"),
        functions.struct(*told).alias("told"),
    )
    moved = (functions.col("op") == "U") & ~functions.col("old").eqNullSafe(functions.col("key"))
    kind = functions.when(functions.col("op") == "D", "delete").otherwise("write")
    here = functions.struct(functions.col("key"), kind.alias("kind"), moved.alias("arrived"))
    there = functions.struct(
        functions.col("old").alias("key"),
        functions.lit("leave").alias("kind"),
        functions.lit(False).alias("arrived"),
    )
    both = functions.when(moved, functions.array(here, there)).otherwise(functions.array(here))
    return row.withColumn("event", functions.explode(both)).select(
        "at",
        (functions.col("op") == "I").alias("inserted"),
        "event.key",
        "event.kind",
        "event.arrived",
        "cells",
        "told",
    )


#: A field of cells that is always there, so that a table of key columns only has a struct, too.
_ALWAYS: Final = "_"


def _by_life(events: DataFrame, columns: ChangeColumns) -> DataFrame:
    from pyspark.sql import Window, functions

    col = functions.col
    in_order = Window.partitionBy("key").orderBy("at")
    before, after = functions.lag("at").over(in_order), functions.lead("at").over(in_order)
    was_written = functions.lag("kind").over(in_order) == "write"
    # A change that was stored twice begins nothing.
    begins = before.isNull() | (
        (col("inserted") | col("arrived") | ~was_written) & (before < col("at"))
    )
    numbered = events.select(
        "*", begins.cast("int").alias("begins"), after.isNull().alias("is_last")
    ).withColumn("life", functions.sum("begins").over(in_order))
    written = functions.when(col("kind") == "write", col("at"))

    def newest(name: str) -> Column:
        cell = col("cells")[name]
        return functions.max_by(cell, functions.when(cell.isNotNull(), written)).alias(name)

    cells = functions.struct(
        *map(newest, columns.values), functions.max_by(functions.lit(True), written).alias(_ALWAYS)
    )
    began_here = functions.max("inserted") | functions.max("arrived")
    return numbered.groupBy("key", "life").agg(
        cells.alias("cells"),
        (functions.max_by("kind", "at") == "write").alias("alive"),
        functions.min(functions.when(col("arrived"), col("at"))).alias("arrived"),
        functions.max(functions.when(col("kind") == "leave", col("at"))).alias("left"),
        functions.max_by("told", "at").alias("told"),
        functions.when(~began_here, col("key")).alias("root"),
        functions.max("is_last").alias("is_last"),
    )
