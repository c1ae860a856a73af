"""History of a table: a row for each change, in place of the table's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgwire_codec.changes.metadata import free_name, metadata_names
from pgwire_codec.spark.mirroring.alignment import table_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Kind of a change: insert, update_preimage, update_postimage, delete or truncate.
CHANGE: Final = "_change"

#: Columns after those of the table.
HISTORY_COLUMNS: Final = (CHANGE, "_commit_lsn", "_commit_time", "_seq", "_unchanged")

_KINDS: Final = {"I": "insert", "U": "update_postimage", "D": "delete", "T": "truncate"}

#: Metadata columns that rows of a history still need: they are appended as inserts.
_NEEDED: Final = ("_op", "_commit_lsn", "_commit_time", "_seq", "_unchanged", "_relation_oid")


def history_rows(changes: DataFrame) -> DataFrame:
    """Return the rows of a history, as inserts into a table without a key.

    The kinds of changes are those of Delta's change data feed, and ``truncate``, whose other
    columns of the table are null. Before an update there is a preimage if the server sent the old
    tuple: its key, or with ``REPLICA IDENTITY FULL`` all of it. A value that an update did not
    send (unchanged TOAST) is null, and its column is named in ``_unchanged``.
    """
    from pyspark.sql import functions
    from pyspark.sql.functions import col, lit, when

    own, metadata = table_columns(changes), metadata_names(changes.columns)
    place = {name: f"p{number}" for number, name in enumerate(changes.columns)}
    usual = {name: place[actual] for name, actual in metadata.items()}
    placed = changes.toDF(*place.values())
    is_preimage = lit(False)
    before = metadata.get("_before")
    sent: set[str] = set()
    if before is not None:
        sent = set(changes.schema[before].dataType.fieldNames())  # type: ignore[attr-defined]
        has_preimage = (col(usual["_op"]) == "U") & col(place[before]).isNotNull()
        images = when(has_preimage, functions.array(lit(True), lit(False)))
        placed = placed.withColumn(
            "preimage", functions.explode(images.otherwise(functions.array(lit(False))))
        )
        is_preimage = col("preimage")
    selected = {}
    for name in own:
        old = col(place[before])[name] if before is not None and name in sent else lit(None)
        selected[name] = when(is_preimage, old).otherwise(col(place[name]))
    kinds = when(is_preimage, "update_preimage")
    for op, kind in _KINDS.items():
        kinds = kinds.when(col(usual["_op"]) == op, kind)
    selected[CHANGE] = kinds
    selected |= {name: col(usual[name]) for name in HISTORY_COLUMNS[1:4]}
    selected["_unchanged"] = when(~is_preimage, col(usual["_unchanged"]))
    nothing = lit(None).cast(changes.schema[metadata["_unchanged"]].dataType)
    constants = {"_op": lit("I"), "_unchanged": nothing}
    for name in _NEEDED:
        if name in usual:
            value = constants.get(name, col(usual[name]))
            selected[free_name(name, selected)] = value
    return placed.select(*(column.alias(name) for name, column in selected.items()))
