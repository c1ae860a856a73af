"""Metrics of new data files, by which readers of Iceberg tables skip files.

They are Parquet's, from the file's footer: sizes, counts, and bounds of dates, timestamps, decimals
and booleans. Those of integers and texts are the ones that this package computes: they are cut.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from pgwire_codec.lake.data_files import Bounds
from pgwire_codec.lake.tables.iceberg_schema import field_id

_MOST_BOUNDS: Final = 100  # columns with bounds, as Iceberg itself has by default

_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_BOOLEAN: Final = struct.Struct("?")

_Encode: TypeAlias = Callable[[Any], bytes]

#: Types whose bounds this package computes.
_COMPUTED: Final[Mapping[pa.DataType, _Encode]] = {
    pa.int32(): _INT.pack,
    pa.int64(): _LONG.pack,
    pa.string(): str.encode,
}


def file_metrics(metadata: pq.FileMetaData, bounds: Bounds) -> dict[str, Any]:
    """Return the metrics of a file in the JSON of Iceberg's files."""
    schema = metadata.schema.to_arrow_schema()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes, values, nulls = {}, {}, {}
    lower, upper = {}, {}
    bounded = {field_id(column) for column in list(schema)[:_MOST_BOUNDS]}
    for place, leaf in enumerate(_leaves(schema)):
        number, chunks = field_id(leaf), [group.column(place) for group in groups]
        sizes[number] = sum(chunk.total_compressed_size for chunk in chunks)
        values[number] = sum(chunk.num_values for chunk in chunks)
        if number not in bounded:
            continue
        statistics = [chunk.statistics for chunk in chunks]
        if all(each is not None and each.has_null_count for each in statistics):
            nulls[number] = sum(each.null_count for each in statistics)
        if (extremes := _extremes(leaf, statistics, bounds)) is not None:
            lower[number], upper[number] = (value.hex().upper() for value in extremes)
    return {
        "column-sizes": _map(sizes),
        "value-counts": _map(values),
        "null-value-counts": _map(nulls),
        "lower-bounds": _map(lower),
        "upper-bounds": _map(upper),
        "split-offsets": [_start(group) for group in groups],
    }


def _map(entries: Mapping[int, Any]) -> dict[str, Any]:
    """Return a map in Iceberg's JSON."""
    return {"keys": [*entries], "values": [*entries.values()]}


def _leaves(fields: Any) -> Iterator[pa.Field]:
    """Yield the fields that are columns of Parquet, in their order there."""
    for field in fields:
        if pa.types.is_nested(field.type):
            yield from _leaves(field.type.field(n) for n in range(field.type.num_fields))
        else:
            yield field


def _extremes(
    leaf: pa.Field, statistics: Sequence[pq.Statistics | None], bounds: Bounds
) -> tuple[bytes, bytes] | None:
    """Return the bounds of a column, if it has certain ones, as Iceberg writes single values."""
    if leaf.type in _COMPUTED:
        if leaf.name not in bounds.lower:
            return None
        encode = _COMPUTED[leaf.type]
        return encode(bounds.lower[leaf.name]), encode(bounds.upper[leaf.name])
    certain = _encoder(leaf.type)
    known = [each for each in statistics if each is not None and each.has_min_max]
    # A row group of nulls has no bounds.
    empty = [each for each in statistics if each is not None and each.num_values == 0]
    if certain is None or not known or len(known) + len(empty) != len(statistics):
        return None
    lowest = min((each.min_raw for each in known), key=_order)
    return certain(lowest), certain(max((each.max_raw for each in known), key=_order))


def _encoder(kind: pa.DataType) -> _Encode | None:
    """Return the function from Parquet's bound to Iceberg's, for types with certain bounds."""
    if pa.types.is_date32(kind):
        return _INT.pack
    if pa.types.is_timestamp(kind):
        return _LONG.pack
    if pa.types.is_boolean(kind):
        return _BOOLEAN.pack
    return _decimal if pa.types.is_decimal(kind) else None


def _decimal(value: bytes) -> bytes:
    """Return a number without the bytes that repeat its sign, as Iceberg has it."""
    number = int.from_bytes(value, "big", signed=True)
    return number.to_bytes(((number + (number < 0)).bit_length() // 8) + 1, "big", signed=True)


def _order(value: Any) -> Any:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value


def _start(group: pq.RowGroupMetaData) -> int:
    """Return the place of a row group, at which readers split a file."""
    column = group.column(0)
    start = column.dictionary_page_offset if column.has_dictionary_page else None
    return int(column.data_page_offset if start is None else start)
