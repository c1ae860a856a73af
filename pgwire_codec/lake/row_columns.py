"""RowColumns: columns that a mirror adds to a table's own, and rows that it keeps.

A history has a row for each change, in place of the table's rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.comparison import mask_of
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import identifier

#: Boolean column, true in rows that were deleted. Iceberg has ``_deleted`` itself.
DELETED: Final = "_is_deleted"

#: Commit LSN of the transaction that changed a row last, bigint, and its time, timestamp.
COMMIT_COLUMNS: Final = ("_commit_lsn", "_commit_time")

#: Kind of a change: insert, update_preimage, update_postimage, delete or truncate.
CHANGE: Final = "_change"

#: Columns after those of the table.
HISTORY_COLUMNS: Final = (CHANGE, "_commit_lsn", "_commit_time", "_seq", "_unchanged")

_KINDS: Final = ("insert", "update_postimage", "delete", "truncate", "update_preimage")
_OPS: Final = ("I", "U", "D", "T")
_PREIMAGE: Final = 4


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Columns that the rows of a target have beside those of the table.

    Raises ``OptionError`` for a history with another column.
    """

    commits: bool = False  # whether rows have COMMIT_COLUMNS
    keeps_deleted: bool = False  # whether deleted rows remain, with true in DELETED
    #: Whether the target has a row for each change instead; see history_rows().
    is_history: bool = False

    def __post_init__(self) -> None:
        if self.is_history and (self.commits or self.keeps_deleted):
            raise OptionError(
                "a history excludes soft deletes and commit columns",
                hint="It has all changes, each with its commit.",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        if self.is_history:
            return HISTORY_COLUMNS
        commits = COMMIT_COLUMNS if self.commits else ()
        return (*commits, DELETED) if self.keeps_deleted else commits

    def check_recorded(
        self, table: str, recorded: Collection[str] | None, held: Collection[str]
    ) -> None:
        """Raise ``TableError`` if the rows of a target and the next ones do not go together.

        ``recorded`` are the columns that were added to the target, if they are known, and ``held``
        are all that it has.
        """
        has_history = set(HISTORY_COLUMNS) <= set(held if recorded is None else recorded)
        if has_history != self.is_history:
            raise TableError(
                f"the target of {table} has "
                + ("the history of the table" if has_history else "rows, and not their history"),
                hint="A history needs a target of its own.",
            )
        if recorded is not None and DELETED in recorded and not self.keeps_deleted:
            raise TableError(
                f"{table} was written with soft deletes, and has rows that were deleted",
                hint=f"Use soft deletes, and resume the table. Or: {COPY_AGAIN}",
            )

    def check_held(self, table: str, held: Collection[str]) -> None:
        """Raise ``TableError`` if a target with the columns ``held`` lacks one that is needed.

        Without it, rows would seem to be what they are not.
        """
        needed = set(self.names) - set(held)
        if not self.is_history:
            needed &= {DELETED}
        if needed:
            raise TableError(
                f"the target of {table} does not have the column {', '.join(sorted(needed))}",
                hint='Use `on_schema_change="evolve"`, and resume the table.',
            )

    def check_table(self, table: str, own: Collection[str], relation: Relation) -> None:
        """Raise ``TableError`` if a table with the columns ``own`` cannot have these columns.

        That is so if it has such a column, and for rows that are identified by all their values:
        those of the target are unknown then. A history has such rows, too.
        """
        if not self.names:
            return
        taken = [name for name in own if name.lower() in self.names]
        if taken:
            mask = f"{table}.{identifier(taken[0])}=drop"
            raise TableError(
                f"{table} has a column {', '.join(taken)} itself, which the mirror is to add",
                hint=f"Rename the column, or leave it out with a mask: --mask '{mask}'.",
            )
        if not self.is_history and relation.replica_identity == "f":
            raise TableError(
                f"rows of {table} are identified by all their values, and cannot have the columns "
                f"{', '.join(self.names)}",
                hint="Give the table a primary key and REPLICA IDENTITY DEFAULT, and resume it.",
            )

    def add(
        self,
        columns: Mapping[str, pa.Array],
        metadata: Mapping[str, pa.Array],
        keys: Collection[str],
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Return the columns of changes with these, and the metadata of the changes.

        With soft deletes, a delete is an update that sends the key and :data:`DELETED` only. So the
        row has the values that it had, whether the target or an earlier change has them.
        """
        if self.is_history:
            return history_rows(columns, metadata), {}
        result, others = dict(columns), dict(metadata)
        if self.commits:
            result |= {name: metadata[name] for name in COMMIT_COLUMNS}
        if self.keeps_deleted:
            is_delete = pc.equal(metadata["_op"], "D")
            unchanged, count = metadata["_unchanged"], len(is_delete)
            result[DELETED] = is_delete
            unsent = pa.array([[name for name in columns if name not in keys]], unchanged.type)
            places = np.where(mask_of(is_delete), count, np.arange(count))
            others["_op"] = pc.if_else(is_delete, "U", metadata["_op"])
            others["_unchanged"] = pa.concat_arrays([unchanged, unsent]).take(pa.array(places))
        return result, others


def history_rows(
    columns: Mapping[str, pa.Array], metadata: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return the columns of a history, from those of changes and their metadata.

    The kinds of changes are those of Delta's change data feed, and ``truncate``, whose other
    columns of the table are null. Before an update there is a preimage if the server sent the old
    tuple: its key, or with ``REPLICA IDENTITY FULL`` all of it. A value that an update did not
    send (unchanged TOAST) is null, and its column is named in ``_unchanged``.
    """
    kinds = pc.index_in(metadata["_op"], value_set=pa.array(_OPS)).to_numpy()
    before, count = metadata.get("_before"), len(kinds)
    has_preimage = np.zeros(count, np.bool_)
    if before is not None:
        has_preimage = (kinds == 1) & mask_of(before.is_valid())
    rows = np.repeat(np.arange(count), 1 + has_preimage)
    is_preimage = np.zeros(len(rows), np.bool_)
    is_preimage[:-1] = rows[1:] == rows[:-1]
    result = dict(columns)
    if before is not None and has_preimage.any():
        places = pa.array(np.where(is_preimage, rows + count, rows))
        for name, column in columns.items():
            has_old = before.type.get_field_index(name) >= 0
            old = pc.struct_field(before, name) if has_old else pa.nulls(count, column.type)
            result[name] = pa.concat_arrays([column, old]).take(places)
    taken = pa.array(rows)
    result[CHANGE] = pa.array(_KINDS).take(pa.array(np.where(is_preimage, _PREIMAGE, kinds[rows])))
    for name in HISTORY_COLUMNS[1:4]:
        result[name] = metadata[name].take(taken)
    result["_unchanged"] = metadata["_unchanged"].take(pa.array(rows, mask=is_preimage))
    return result
