"""Source rows of a merge by Spark: by key, or counted for a table without a key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import TableError
from pgwire_codec.spark.kept_rows import kept
from pgwire_codec.spark.reduction.change_columns import table_schema
from pgwire_codec.spark.reduction.net_changes import net_changes, whole_rows
from pgwire_codec.spark.reduction.row_counts import comparable, row_changes
from pgwire_codec.spark.sinks.sql import literal, quoted
from pgwire_codec.spark.sinks.target import (
    MISSING_ROW_HINT,
    MISSING_ROWS_HINT,
    Batch,
    missing_row,
    missing_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

#: Before and after the key of a missing row, in the error that a task raises.
MISSING: Final = "pgwire_codec:missing_row:"

#: Errors of another class can have it, too: in the plan that they show.
_MISSING: Final = re.compile(rf"USER_RAISED_EXCEPTION\] {MISSING}(.*?){MISSING}", re.DOTALL)

_SHOWN: Final = 40  # characters of a value in an error


@dataclass(frozen=True, slots=True)
class MergeSource:
    """Source of a merge, whose alias is ``s``; that of the target is ``t``.

    Attributes
    ----------
    rows : DataFrame
        ``c0``, ``c1``, … the table's columns; ``gone`` boolean, for rows to delete; and others.
        Spark does not keep them: a merge that uses them twice must; see :func:`kept`.
    schema : StructType
        Of the table.
    matches : str
        SQL condition for a row of the target.
    updates, inserts : list of str
        Values of a matching and of a new row, a column each, in SQL; no updates if matching rows
        are only deleted.
    again : int
        Number of rows that are deleted and inserted again.
    """

    rows: DataFrame
    schema: StructType
    matches: str
    updates: list[str]
    inserts: list[str]
    again: int = 0

    def statement(self, target: str, view: str, batch: Batch, held: Sequence[str]) -> str:
        """Return the ``MERGE INTO`` of a batch into a target with the columns ``held``."""
        names = list(map(quoted, batch.columns.table))
        clauses = ["WHEN MATCHED AND s.gone THEN DELETE"]
        if self.updates:
            updates = dict(zip(names, self.updates, strict=True))
            if batch.empties:  # the row is a new one, in the columns that only the target has, too
                others = [name for name in held if name not in batch.columns.table]
                updates |= {quoted(name): "NULL" for name in others}
            assigned = ", ".join(f"t.{name} = {value}" for name, value in updates.items())
            clauses.append(f"WHEN MATCHED THEN UPDATE SET {assigned}")
        clauses.append(
            f"WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(self.inserts)})"
        )
        if batch.empties:
            clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
        into = f"MERGE INTO {target} AS t USING {view} AS s ON {self.matches}"
        return "\n".join([into, *clauses])


@contextmanager
def source_of(batch: Batch, target: DataFrame | None, name: str) -> Iterator[MergeSource]:
    """Yield the source of a merge into a target, None for one without rows.

    Raises ``TableError`` if the target lacks rows that the batch needs. A task of the merge raises
    an error with the key of a row between :data:`MISSING` if it finds that only then.
    """
    with ExitStack() as stack:
        yield (_keyed if batch.has_keys else _counted)(batch, target, name, stack)


def raise_missing_row(error: Exception, name: str) -> None:
    """Raise ``TableError`` if an error of Spark is that of a row that the target lacks."""
    missing = _MISSING.search(str(error))
    if missing is not None:
        raise TableError(missing_row(name, missing[1]), hint=MISSING_ROW_HINT) from None


def _keyed(batch: Batch, target: DataFrame | None, name: str, stack: ExitStack) -> MergeSource:
    from pyspark.sql import functions

    columns = batch.columns
    values = [f"s.{number}" for number in columns.numbers]
    same_key = (f"t.{quoted(columns.table[key])} = s.c{key}" for key in columns.keys)
    matches = " AND ".join(same_key)
    if batch.sends_all:
        rows = whole_rows(batch.changes, columns, batch.partitions)
        return MergeSource(
            rows, table_schema(rows, columns), matches, updates=values, inserts=values
        )
    net = net_changes(
        batch.changes, columns, lambda rows: stack.enter_context(kept(rows)), batch.partitions
    ).drop(*columns.row_metadata)
    lacks = functions.expr("coalesce(NOT gone AND size(unchanged) > 0, false)")
    needs = lacks & ~_is_deleted(batch)
    moved = lacks & ~_same_key(batch)
    ((lacking, moving, needing),) = net.agg(
        *(
            functions.coalesce(functions.max(each), functions.lit(False))
            for each in (lacks, moved, needs)
        )
    ).collect()
    if needing and target is None:
        (row,) = net.where(needs).select(_shown_key(batch, "r")).head(1)
        raise TableError(missing_row(name, row[0]), hint=MISSING_ROW_HINT)
    rows = net
    if moving and target is not None:
        rows = net.where(~moved).unionByName(_filled(net.where(moved), target, batch))
    updates, inserts = values, list(values)
    if lacking:
        names = [literal(each) for each in columns.table]
        updates = [
            f"CASE WHEN array_contains(s.unchanged, {names[number]}) "
            f"THEN t.{quoted(columns.table[number])} ELSE s.c{number} END"
            if number in columns.values
            else f"s.c{number}"
            for number in range(len(names))
        ]
        first = columns.keys[0]
        needed = "" if columns.deleted is None else f" AND NOT s.c{columns.deleted}"
        inserts[first] = (
            f"CASE WHEN size(s.unchanged) > 0{needed} THEN raise_error(s.missing) "
            f"ELSE s.c{first} END"
        )
        rows = rows.withColumn("missing", _missing(_shown_key(batch, "r")))
    return MergeSource(rows, table_schema(net, columns), matches, updates=updates, inserts=inserts)


def _filled(moved: DataFrame, target: DataFrame, batch: Batch) -> DataFrame:
    """Return rows that changed their key with the values that the target has under the old one."""
    from pyspark.sql import functions

    col = functions.col
    columns = batch.columns
    found = target.select(
        functions.lit(True).alias("is_found"),
        *(
            col(quoted(name)).cast(moved.schema[f"c{number}"].dataType).alias(f"t{number}")
            for number, name in enumerate(columns.table)
        ),
    )
    old_key = functions.lit(True)
    for place, number in enumerate(columns.keys):
        old_key &= col(f"r{place}") == col(f"t{number}")
    filled = {
        f"c{number}": functions.when(
            col("is_found").isNull() & ~_is_deleted(batch),
            functions.raise_error(_missing(_shown_key(batch, "r"))),
        )
        .when(
            functions.array_contains("unchanged", functions.lit(columns.table[number])),
            col(f"t{number}"),
        )
        .otherwise(col(f"c{number}"))
        for number in columns.values
    }
    joined = moved.join(found, old_key, "left").withColumns(filled)
    nothing = functions.lit(None).cast(moved.schema["unchanged"].dataType)
    return joined.withColumn("unchanged", nothing).select(*moved.columns)


def _counted(batch: Batch, target: DataFrame | None, name: str, stack: ExitStack) -> MergeSource:
    from pyspark.sql import functions

    col = functions.col
    columns = batch.columns
    net = row_changes(batch.changes, columns, batch.partitions).drop(*columns.row_metadata)
    net = net.withColumn("number", functions.monotonically_increasing_id())
    stack.enter_context(kept(net))
    kinds = {number: net.schema[number].dataType for number in columns.numbers}
    removed = net.where("removed")
    copies: Column = functions.lit(0)
    counted = removed
    if target is not None:
        equal = functions.lit(True)
        found = target.select(
            *(
                col(quoted(each)).cast(kinds[number]).alias(f"t{number}")
                for each, number in zip(columns.table, columns.numbers, strict=True)
            ),
            functions.lit(1).alias("copy"),
        )
        for number, kind in kinds.items():
            exact = comparable(kind)
            equal &= col(number).cast(exact).eqNullSafe(col(f"t{number}").cast(exact))
        found = removed.join(found, equal).groupBy("number").agg(functions.sum("copy").alias("had"))
        counted = removed.join(found, "number", "left")
        copies = functions.coalesce(col("had"), functions.lit(0))
    counted = stack.enter_context(kept(counted.withColumn("copies", copies.cast("long"))))
    again = functions.coalesce(functions.sum(col("copies") - col("count")), functions.lit(0))
    ((kept_rows,),) = counted.agg(again).collect()
    for row in counted.where("copies < count").select("copies", "count", _shown_row(batch)).head(1):
        raise TableError(missing_rows(name, row[0], row[2], row[1]), hint=MISSING_ROWS_HINT)
    numbers = columns.numbers
    rows = (
        removed.select(*numbers, functions.lit(True).alias("gone"))
        .unionByName(net.where("NOT removed").select(*numbers, functions.lit(False).alias("gone")))
        .unionByName(
            counted.select(
                *numbers,
                functions.explode(
                    functions.array_repeat(
                        functions.lit(False), (col("copies") - col("count")).cast("int")
                    )
                ).alias("gone"),
            )
        )
    )
    same = [
        f"CAST(t.{quoted(each)} AS {comparable(kind).simpleString()}) <=> "
        f"CAST(s.{number} AS {comparable(kind).simpleString()})"
        for each, (number, kind) in zip(columns.table, kinds.items(), strict=True)
    ]
    return MergeSource(
        rows,
        table_schema(net, columns),
        " AND ".join(["s.gone", *same]),
        updates=[],
        inserts=[f"s.{number}" for number in numbers],
        again=kept_rows,
    )


def _same_key(batch: Batch) -> Column:
    from pyspark.sql import functions

    same = functions.lit(True)
    for place, number in enumerate(batch.columns.keys):
        same &= functions.col(f"r{place}").eqNullSafe(functions.col(f"c{number}"))
    return same


def _is_deleted(batch: Batch) -> Column:
    from pyspark.sql import functions

    number = batch.columns.deleted
    return functions.lit(False) if number is None else functions.col(f"c{number}")


def _missing(key: Column) -> Column:
    from pyspark.sql import functions

    mark = functions.lit(MISSING)
    return functions.concat(mark, key, mark)


def _shown_key(batch: Batch, prefix: str) -> Column:
    """Return the key of a row as text, as ``name = value``."""
    columns = batch.columns
    return _shown(
        [(columns.table[number], f"{prefix}{place}") for place, number in enumerate(columns.keys)]
    )


def _shown_row(batch: Batch) -> Column:
    return _shown(list(zip(batch.columns.table, batch.columns.numbers, strict=True)))


def _shown(values: list[tuple[str, str]]) -> Column:
    from pyspark.sql import functions

    texts = []
    for name, column in values:
        text = functions.coalesce(functions.col(column).cast("string"), functions.lit("None"))
        cut = functions.concat(functions.substring(text, 1, _SHOWN - 3), functions.lit("..."))
        shown = functions.when(functions.length(text) < _SHOWN, text).otherwise(cut)
        texts.append(functions.concat(functions.lit(f"{name} = "), shown))
    return functions.concat_ws(", ", *texts)
