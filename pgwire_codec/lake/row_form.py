"""RowForm: conversion of decoded changes into changes of a target's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.identity import check_identity, key_columns
from pgwire_codec.changes.table_schema import TableSchema, cast_array, table_schema, to_record_batch
from pgwire_codec.errors import TableError
from pgwire_codec.lake.change_columns import ChangeColumns, check_names
from pgwire_codec.lake.masks import DROP, apply_masks
from pgwire_codec.lake.row_columns import DELETED, RowColumns
from pgwire_codec.lake.row_types import row_schema
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion

if TYPE_CHECKING:
    from pgwire_codec.lake.log_range import LogRange
    from pgwire_codec.lake.mirror_options import MirrorOptions

#: Metadata of changes that a fold needs.
_METADATA: Final = ("_op", "_commit_lsn", "_seq", "_unchanged", "_before")


@dataclass(frozen=True, slots=True)
class RowForm:
    """Form of a table's changes, as its target has the rows. Picklable."""

    table: str  # ``schema.table``
    decoded: TableSchema  # columns of decoded changes
    #: Version with whose replica identity updates and deletes must have been sent.
    relation: Relation
    masks: Mapping[str, str]
    mask_key: bytes
    row_columns: RowColumns
    #: Columns that identify a row; None for rows that are counted or appended.
    keys: tuple[str, ...] | None
    columns: pa.Schema  # those of the table, and those of ``row_columns``

    @classmethod
    def create(
        cls,
        table: str,
        newest: RelationVersion,
        versions: Sequence[RelationVersion],
        options: MirrorOptions,
        whole: LogRange,
    ) -> RowForm:
        """Return the form of a table's rows, by its newest version and all that it may have.

        Raises ``TableError`` if the rows cannot have the masks or the further columns.
        """
        relation, decoder = newest.relation, options.decoder
        schema = table_schema(
            newest,
            versions,
            decoder.type_options,
            whole.registry,
            before=decoder.before,
            invalid=False,
            leaves=whole.leaves,
        )
        schema = replace(schema, arrow=row_schema(schema.arrow))
        own = {name: schema.arrow.field(name).type for name in schema.columns}
        identity = key_columns(relation)
        masks, row_columns = options.masks, options.row_columns
        chosen = masks.check_columns(table, own, identity or ())
        kept = [name for name in own if chosen.get(name) != DROP]
        if not kept:
            raise TableError(
                f"{table} has no columns to mirror, and a target has at least one",
                hint="Leave the table out: name the others as `tables`.",
            )
        row_columns.check_table(table, kept, relation)
        keys = None if row_columns.is_history or identity is None else tuple(identity)
        key = masks.key or b""
        form = cls(table, schema, relation, chosen, key, row_columns, keys, pa.schema([]))
        empty = pa.RecordBatch.from_pylist([], schema=schema.arrow)
        columns, _ = form._rows(empty)
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        return replace(form, columns=pa.schema(fields))

    def with_target(self, held: pa.Schema) -> RowForm:
        """Return the form of rows in the types of a target; columns that it lacks are left out."""
        if lacking := [name for name in self.keys or () if name not in held.names]:
            raise TableError(
                f"the target of {self.table} does not have the key column {', '.join(lacking)}",
                hint='Use `on_schema_change="evolve"`, and resume the table.',
            )
        fields = [held.field(name) for name in self.columns.names if name in held.names]
        return replace(self, columns=pa.schema(fields))

    def check_names(self) -> None:
        """Raise ``TableError`` for columns that have the same name in a lakehouse."""
        check_names(
            self.columns.names,
            lambda name: (
                f"Leave all but one of them out, as by --mask {self.table}.{name}=drop, "
                "and resume the table."
            ),
        )

    @property
    def change_columns(self) -> ChangeColumns:
        """Columns of numbered changes, as :meth:`changes` returns them."""
        names, before = tuple(self.columns.names), tuple(self._before_fields)
        keys = tuple(map(names.index, self.keys or ()))
        metadata = {name: name for name in _METADATA if name != "_before" or before}
        keeps_deleted = self.row_columns.keeps_deleted and DELETED in names
        return ChangeColumns(names, keys, metadata, before, DELETED if keeps_deleted else None)

    @property
    def _before_fields(self) -> list[str]:
        name = self.decoded.metadata.get("_before")
        if name is None:
            return []
        members: Any = self.decoded.arrow.field(name).type
        return [each.name for each in members if each.name in self.columns.names]

    def changes(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return numbered changes; see :class:`ChangeColumns`.

        Raises ``TableError`` for a change that was sent with another replica identity.
        """
        check_identity(batch, self.relation)
        columns, metadata = self._rows(to_record_batch(batch, self.decoded))
        numbers = {column.name: f"c{number}" for number, column in enumerate(self.columns)}
        result = {
            numbers[column.name]: cast_array(columns[column.name], column.type)
            for column in self.columns
        }
        result |= {name: metadata[name] for name in _METADATA[:4]}
        if fields := self._before_fields:
            before = metadata["_before"]
            members = {
                numbers[name]: cast_array(before.field(name), self.columns.field(name).type)
                for name in fields
            }
            result["_before"] = _struct(members, before)
        return pa.RecordBatch.from_pydict(result)

    def rows(self, batch: ChangeBatch) -> pa.RecordBatch:
        """Return the rows of inserts, or those of a history."""
        columns, _ = self._rows(to_record_batch(batch, self.decoded))
        arrays = [cast_array(columns[each.name], each.type) for each in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)

    def _rows(self, decoded: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Return the columns of rows, and the metadata of changes by the usual names."""
        columns = {name: decoded.column(name) for name in self.decoded.columns}
        metadata = {usual: decoded.column(name) for usual, name in self.decoded.metadata.items()}
        if self.masks:
            columns = apply_masks(columns, self.masks, self.mask_key)
            if "_before" in metadata:
                before = metadata["_before"]
                names = [member.name for member in before.type]
                members = dict(zip(names, before.flatten(), strict=True))
                members = apply_masks(members, self.masks, self.mask_key)
                metadata["_before"] = _struct(members, before)
        return self.row_columns.add(columns, metadata, self.keys or ())


def _struct(members: Mapping[str, pa.Array], like: pa.StructArray) -> pa.StructArray:
    """Return a struct of other members, which is null where another one is."""
    return pa.StructArray.from_arrays(
        list(members.values()), names=list(members), mask=like.is_null()
    )
