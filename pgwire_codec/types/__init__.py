"""PostgreSQL's types by OID, and the Arrow types that their columns become."""

from pgwire_codec.types.arrow_types import (
    NATIVE,
    ArrowTypes,
    ColumnType,
    TypeOptions,
    column_type,
    element_oid,
)
from pgwire_codec.types.registry import PgType, TypeRegistry, default_registry, register_type

__all__ = [
    "NATIVE",
    "ArrowTypes",
    "ColumnType",
    "PgType",
    "TypeOptions",
    "TypeRegistry",
    "column_type",
    "default_registry",
    "element_oid",
    "register_type",
]
