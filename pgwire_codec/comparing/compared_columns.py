"""ComparedColumns: the columns that are compared, in the types in which both sides have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.changes.identity import key_columns
from pgwire_codec.changes.table_schema import TableSchema, widest
from pgwire_codec.errors import TableError
from pgwire_codec.lake.row_hashes import Hashes, column_hashes, combined
from pgwire_codec.lake.row_types import row_type
from pgwire_codec.protocol.messages import Relation

#: Seeds of the hashes of keys and of rows, which are independent of one another.
_KEY_SEED: Final = 1
_ROW_SEED: Final = 2


class RowHashes(NamedTuple):
    """Hashes of the keys of rows, and of the rows."""

    keys: Hashes
    rows: Hashes


@dataclass(frozen=True)
class ComparedColumns:
    """Columns of the server, and the hashes of rows. Picklable."""

    types: Mapping[str, pa.DataType]  # types in which the columns are compared
    keys: tuple[str, ...]  # columns that identify a row; all of them without a key
    has_keys: bool

    @classmethod
    def choose(
        cls,
        relation: Relation,
        server: Mapping[str, pa.DataType],
        target: Mapping[str, pa.DataType],
        masked: Collection[str] = (),
    ) -> ComparedColumns:
        """Return the columns of a server's table and a target, which have these types.

        If the types differ, the wider of two integers, floats or decimals is used, or else text.
        Columns that are ``masked`` are left out. If they identify rows, the others do.

        Raises ``TableError`` if all are masked.
        """
        types = {
            name: _common(row_type(kind), target.get(name))
            for name, kind in server.items()
            if name not in masked
        }
        if not types:
            raise TableError("all columns have a mask, so rows cannot be compared")
        keys = key_columns(relation)
        if keys is not None and not types.keys() >= set(keys):
            keys = None
        return cls(types, tuple(types if keys is None else keys), keys is not None)

    @property
    def numbers(self) -> dict[str, str]:
        """Names of the columns in rows with other columns, by their own names."""
        return {name: f"c{number}" for number, name in enumerate(self.types)}

    def with_texts(self, schema: TableSchema) -> TableSchema:
        """Return a schema that has the server's texts of columns that are compared as texts."""
        texts = {name for name, kind in self.types.items() if pa.types.is_string(kind)}

        def convert(field: pa.Field) -> pa.Field:
            if field.name in texts:
                return field.with_type(pa.string())
            if pa.types.is_struct(field.type):  # the old row
                return field.with_type(pa.struct([convert(member) for member in field.type]))
            return field

        fields = pa.schema([convert(field) for field in schema.arrow])
        others = {
            field.name
            for field in schema.arrow
            if field.name in texts and not pa.types.is_string(field.type)
        }
        return replace(schema, arrow=fields, as_text=schema.as_text | others)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the compared columns of rows, in their types. Missing ones are null."""
        present = set(batch.schema.names)
        columns = [
            _cast(batch.column(name), kind) if name in present else pa.nulls(len(batch), kind)
            for name, kind in self.types.items()
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(self.types))

    def hashes(self, rows: pa.RecordBatch) -> RowHashes:
        """Return the hashes of compared rows."""
        values = {
            name: column_hashes(column) for name, column in zip(self.types, rows, strict=True)
        }
        keys = combined((values[name] for name in self.keys), _KEY_SEED)
        return RowHashes(keys, combined(values.values(), _ROW_SEED))

    def key_hashes(self, columns: Mapping[str, pa.Array]) -> Hashes:
        """Return the hashes of keys, whose columns can have other types."""
        casts = (_cast(columns[name], self.types[name]) for name in self.keys)
        return combined(map(column_hashes, casts), _KEY_SEED)


def uncompared_columns(
    logged: Collection[str],
    server: Collection[str],
    target: Collection[str] | None,
    masked: Collection[str],
) -> dict[str, str]:
    """Return the columns of a table that cannot be compared, each with the reason.

    A column that only the server has is new, and no change has it yet. One that only the target has
    was dropped, or is not one of the table's. ``target`` is None without a target.
    """
    reasons = {}
    for name in dict.fromkeys([*logged, *server]):
        if name in masked:
            reasons[name] = "it has a mask"
        elif name not in server:
            reasons[name] = "the server does not have it"
        elif target is not None and name not in target and name in logged:
            reasons[name] = "the target does not have it"
    return reasons


def _common(server: pa.DataType, target: pa.DataType | None) -> pa.DataType:
    if target is None or target == server:
        return server
    # Bytes of the target need not be those of a text.
    return widest({server, target}) or (target if pa.types.is_binary(target) else pa.string())


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return (_text(column) if _is_text(kind) else column).cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _text(column: pa.Array) -> pa.StringArray:
    if pa.types.is_list(column.type):
        begin, end = (column.offsets[place].as_py() for place in (0, -1))
        elements = _text(column.values.slice(begin, end - begin)).fill_null("NULL")
        offsets = pc.subtract(column.offsets, pa.scalar(begin, pa.int32()))
        lists = pa.ListArray.from_arrays(offsets, elements, mask=column.is_null())
        return pc.binary_join(lists, ",")
    return column.cast(pa.string())
