"""PostgreSQL's types by OID, and the Arrow types that their columns become."""

from pgwire_codec.types.arrow_types import (
    NATIVE,
    ArrowTypes,
    ColumnType,
    TypeOptions,
    column_type,
    element_oid,
    forms_agree,
)
from pgwire_codec.types.registry import (
    PgType,
    TypeRegistry,
    default_registry,
    register_type,
    registry_with,
)
from pgwire_codec.types.user_types import UserType

__all__ = [
    "NATIVE",
    "ArrowTypes",
    "ColumnType",
    "PgType",
    "TypeOptions",
    "TypeRegistry",
    "UserType",
    "column_type",
    "default_registry",
    "element_oid",
    "forms_agree",
    "register_type",
    "registry_with",
]


def __dir__() -> list[str]:
    return __all__
