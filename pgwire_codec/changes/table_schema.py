"""Schema of a table's changes across all versions of the table, and rows in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa

from pgwire_codec.arrow.export import pyarrow_type
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.identity import PossibleLeaves, check_keys_sent
from pgwire_codec.changes.metadata import METADATA_COLUMNS, RELATION_OID, free_name
from pgwire_codec.codec.values import null_column
from pgwire_codec.errors import TableError
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import ColumnType, TypeOptions, TypeRegistry, column_type, default_registry


class CommitColumns(NamedTuple):
    """Columns of rows with the commit LSN and the commit time, as paths of names.

    Attributes
    ----------
    lsn : tuple of str
        Column of bigint.
    time : tuple of str
        Column of timestamp; empty if the rows have none.
    """

    lsn: tuple[str, ...]
    time: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Schema of the changes of one table.

    Attributes
    ----------
    versions : frozenset of RelationVersion
        The versions of the table.
    arrow : pyarrow.Schema
        The columns of the newest version, then the metadata columns.
    as_text : frozenset of str
        Columns that are strings because no other type holds the values of all versions.
    metadata : mapping of str to str
        The metadata columns' actual names, by their usual names. They differ if the table has a
        column of that name.
    columns : tuple of str
        The table's columns.
    is_whole : bool
        Whether these are all columns of the newest version.
    leaves : tuple of Relation
        Relations that may be leaf partitions of the table, and have another replica identity.
    """

    versions: frozenset[RelationVersion]
    arrow: pa.Schema
    as_text: frozenset[str]
    metadata: Mapping[str, str]
    columns: tuple[str, ...]
    is_whole: bool
    leaves: tuple[Relation, ...]


def table_schema(
    newest: RelationVersion,
    versions: Sequence[RelationVersion],
    types: TypeOptions,
    registry: TypeRegistry,
    *,
    before: str,
    invalid: bool,
    relation_oid: bool = False,
    columns: Sequence[str] | None = None,
    leaves: PossibleLeaves | None = None,
) -> TableSchema:
    """Return the schema of a table, from its newest version and all versions of all relations.

    The columns are those of the newest version, or some of them. Columns of other versions are
    matched by name. A column whose type changed is the wider of two integers, floats or decimals,
    and otherwise a string. ``relation_oid`` adds the metadata column of that name.
    ``leaves`` are named in the error for an old tuple with another replica identity.

    Raises ``TableError`` for a column that the newest version does not have.
    """
    relation = newest.relation
    mine = [version for version in versions if version.relation.oid == relation.oid]
    known_columns = [column.name for column in relation.columns]
    chosen = known_columns if columns is None else list(columns)
    if unknown := [name for name in chosen if name not in known_columns]:
        raise TableError(
            f"{newest.qualified_name} has no column {', '.join(unknown)}",
            hint=f"Its columns are {', '.join(known_columns)}.",
        )
    fields: dict[str, pa.DataType] = {}
    text = pa.string_view() if types.strings == "view" else pa.string()
    as_text = set()
    for column in relation.columns:
        kinds = {
            _arrow_type(each)
            for version in mine
            for each in _types_of(version, column.name, types, registry)
        }
        common = widest(kinds)
        if common is None:
            as_text.add(column.name)
        fields[column.name] = common or text
    key = [c.name for c in relation.columns if before == "full" or c.flags & 1]
    has_before = bool(key) and before != "none"
    metadata = metadata_types(
        pa.struct([pa.field(name, fields[name]) for name in key]) if has_before else None,
        invalid=invalid,
        relation_oid=relation_oid,
    )
    names = {name: free_name(name, fields) for name in metadata}
    everything = [(name, fields[name]) for name in chosen]
    everything += [(names[name], kind) for name, kind in metadata.items()]
    return TableSchema(
        frozenset(mine),
        pa.schema(everything),
        frozenset(as_text),
        names,
        tuple(chosen),
        is_whole=columns is None,
        leaves=() if leaves is None else leaves.of(relation),
    )


def stream_schema(
    newest: RelationVersion, versions: Sequence[RelationVersion], options: DecoderOptions
) -> TableSchema:
    """Return the schema of a table's changes as one Arrow stream; see :func:`table_schema`."""
    return table_schema(
        newest,
        versions,
        stream_options(options).type_options,
        options.registry or default_registry,
        before=options.before,
        invalid=options.unrepresentable != "raise",
        leaves=PossibleLeaves(versions),
    )


def stream_options(options: DecoderOptions) -> DecoderOptions:
    """Return options under which the type of a column does not depend on its values."""
    formats = options.arrow_types.formats | {"unknown": "u"}
    return replace(options, arrow_types=replace(options.arrow_types, formats=formats))


def to_reader(batches: Iterable[ChangeBatch], schema: TableSchema) -> pa.RecordBatchReader:
    """Return batches of a table as a stream in the table's schema, each made when it is read."""

    def records() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            types = stream_options(batch.options).arrow_types
            yield to_record_batch(batch.with_options(arrow_types=types), schema)

    return pa.RecordBatchReader.from_batches(schema.arrow, records())


def misfit(
    version: RelationVersion, schema: TableSchema, types: TypeOptions, registry: TypeRegistry
) -> str | None:
    """Return why a later version of the table does not fit the schema, or None if it fits.

    A narrower integer, float or decimal fits. Every type fits if the schema has a string because of
    earlier changes. A column that was dropped is null.
    """
    old = schema.metadata.get("_before")
    before = None if old is None else schema.arrow.field(old).type
    for column in version.relation.columns:
        name = column.name
        if name not in schema.columns:
            if schema.is_whole:
                return f"has a new column {name}"
        elif name not in schema.as_text:
            (kind,) = map(_arrow_type, _types_of(version, name, types, registry))
            held = schema.arrow.field(name).type
            if widest({kind, held}) != held:
                return f"has {name} as {kind}, which was {held}"
        if column.flags & 1 and before is not None and before.get_field_index(name) < 0:
            return f"has {name} in its replica identity now"
    return None


def metadata_types(
    before: pa.StructType | None = None, *, invalid: bool, relation_oid: bool
) -> dict[str, pa.DataType]:
    """Return the metadata columns that rows have, in order, with their types.

    ``before`` is the type of ``_before``, or None for rows without it.
    """
    names = pa.list_(pa.string())
    types: dict[str, pa.DataType] = {
        "_op": pa.string(),
        "_xid": pa.int64(),
        "_lsn": pa.int64(),
        "_commit_lsn": pa.int64(),
        "_commit_time": pa.timestamp("us", "UTC"),
        "_seq": pa.int64(),
        "_origin": pa.string(),
        "_unchanged": names,
    }
    if before is not None:
        types["_before"] = before
    if invalid:
        types["_invalid"] = names
    if relation_oid:
        types[RELATION_OID] = pa.int64()
    return {name: types[name] for name in METADATA_COLUMNS if name in types}


def _types_of(
    version: RelationVersion, name: str, types: TypeOptions, registry: TypeRegistry
) -> list[ColumnType]:
    user_types = {each.oid: (each.namespace, each.name) for each in version.types}
    return [
        column_type(
            column.type_oid,
            column.type_modifier,
            types,
            user_types=user_types,
            registry=registry,
        )
        for column in version.relation.columns
        if column.name == name
    ]


def _arrow_type(column: ColumnType) -> pa.DataType:
    return pyarrow_type(null_column(column, 0))


#: Types of numbers, from narrow to wide.
_WIDER: Final = (
    (pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


def widest(kinds: set[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds all values of these types, or None."""
    if len(kinds) == 1:
        return next(iter(kinds))
    for members in _WIDER:
        if all(kind in members for kind in kinds):
            return max(kinds, key=members.index)
    if all(pa.types.is_decimal128(kind) for kind in kinds):
        scale = max(kind.scale for kind in kinds)
        whole = max(kind.precision - kind.scale for kind in kinds)
        return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else None
    return None


def to_record_batch(batch: ChangeBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return a batch of any version of the table, or of another table, in the table's schema.

    A column that the version lacks is null. A column that the schema lacks is not decoded.

    Raises ``TableError`` if the schema has ``_before``, and an old tuple lacks a part of the key.
    """
    ours = {column.name for column in batch.relation.columns}
    metadata = {name: key for key, name in schema.metadata.items()}
    wanted = [
        field.name for field in schema.arrow if field.name in ours and field.name not in metadata
    ]
    native = batch.to_arrow([name for name in wanted if name not in schema.as_text])
    old = free_name("_before", ours)
    if "_before" in schema.metadata and old in native.schema.names:
        check_keys_sent(batch, native.column(old), schema.leaves)
    text = native
    if schema.as_text:
        as_text = batch.with_options(types="text")
        text = as_text.to_arrow([name for name in wanted if name in schema.as_text])
    arrays = []
    for field in schema.arrow:
        if metadata.get(field.name) == RELATION_OID:
            arrays.append(pa.repeat(pa.scalar(batch.relation.oid, field.type), len(batch)))
            continue
        if field.name in metadata:
            # Names in the batch depend on the columns of its own version of the table.
            name = free_name(metadata[field.name], ours)
            is_present = name in native.schema.names
        else:
            name = field.name
            is_present = name in ours
        if not is_present:
            arrays.append(pa.nulls(len(batch), field.type))
        elif pa.types.is_struct(field.type):
            arrays.append(_before(native.column(name), text.column(name), field.type, schema))
        else:
            chosen = text if name in schema.as_text else native
            arrays.append(cast_array(chosen.column(name), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _before(
    native: pa.StructArray, text: pa.StructArray, wanted: pa.StructType, schema: TableSchema
) -> pa.StructArray:
    """Return ``_before`` with the fields of the table's schema."""
    children = []
    for field in wanted:
        source = text if field.name in schema.as_text else native
        number = source.type.get_field_index(field.name)
        child = pa.nulls(len(native), field.type) if number < 0 else source.field(number)
        children.append(cast_array(child, field.type))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=native.is_null())


def cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array in a type, without a copy if it has that type already."""
    return array if array.type == kind else array.cast(kind)
