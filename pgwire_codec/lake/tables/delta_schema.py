"""Columns of Delta tables: their types in the log's JSON, and in Arrow."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES: Final = {kind: name for name, kind in _PRIMITIVES.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def to_json(schema: pa.Schema) -> str:
    """Return a schema as the action ``metaData`` has it. Raises ``TableError`` for other types."""
    fields = [_field(column) for column in schema]
    return json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)


def from_json(schema: str) -> pa.Schema:
    """Return the Arrow schema of an action ``metaData``. Raises ``TableError`` for other types."""
    return pa.schema([_arrow_field(field) for field in json.loads(schema)["fields"]])


def _field(column: pa.Field) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": _type(column.name, column.type),
        "nullable": column.nullable,
        "metadata": {},
    }


def _type(name: str, kind: pa.DataType) -> Any:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        element = kind.value_field
        return {
            "type": "array",
            "elementType": _type(name, element.type),
            "containsNull": element.nullable,
        }
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(member) for member in kind]}
    raise TableError(
        f"column {name} of type {kind} cannot be in a Delta table",
        hint="Leave the column out with the mask drop.",
    )


def _arrow_field(field: dict[str, Any]) -> pa.Field:
    return pa.field(field["name"], _arrow_type(field["name"], field["type"]), field["nullable"])


def _arrow_type(name: str, kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
    elif kind["type"] == "array":
        element = _arrow_type(name, kind["elementType"])
        return pa.list_(pa.field("element", element, kind["containsNull"]))
    elif kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    elif kind["type"] == "map":
        key, value = _arrow_type(name, kind["keyType"]), _arrow_type(name, kind["valueType"])
        return pa.map_(key, pa.field("value", value, kind["valueContainsNull"]))
    raise TableError(
        f"unsupported type {kind} of column {name} in a Delta table",
        hint="Use a table without it: let the mirror create its table.",
    )
