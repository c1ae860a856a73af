"""Values to decode, and captures taken apart into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from pgwire_codec.codec.values import Decoded
from pgwire_codec.protocol import messages
from pgwire_codec.reference import decode_message
from pgwire_codec.reference.values import decode_values
from pgwire_codec.types import ColumnType, TypeOptions, TypeRegistry, column_type
from tests.support.corpus import Capture, truth


def decode(
    column: ColumnType | str | int,
    values: Sequence[bytes | None],
    *,
    binary: bool | Sequence[bool] = False,
    typmod: int = -1,
    unrepresentable: str = "raise",
    **options: str,
) -> Decoded:
    """Decode values of a type (a ColumnType, or name or OID of a built-in one); None is NULL."""
    if not isinstance(column, ColumnType):
        column = type_of(column, typmod, **options)
    # Bytes before, between and after the values must not matter.
    data = b"\xff" + b"\xfe".join(value or b"" for value in values) + b"\xff"
    lengths = np.array([len(value or b"") for value in values], np.int32)
    offsets = np.concatenate([[1], 1 + np.cumsum(lengths[:-1] + 1)]).astype(np.int64)
    state = np.array([value is not None for value in values], np.uint8)
    formats = np.empty(len(values), np.uint8)
    formats[:] = binary
    return decode_values(
        column,
        np.frombuffer(data, np.uint8),
        offsets[: len(values)],
        lengths,
        state,
        formats,
        unrepresentable=unrepresentable,
    )


def type_of(which: str | int, typmod: int = -1, **options: str) -> ColumnType:
    if isinstance(which, str):
        known = TypeRegistry().lookup_name(which)
        assert known is not None, which
        which = known.oid
    return column_type(which, typmod, TypeOptions(**options))


@dataclass
class TableColumn:
    """The column ``v`` of one table of a capture, row by row as it came."""

    name: str
    oid: int
    typmod: int
    keys: list[str] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)


@dataclass
class Taken:
    """What the Inserts of a capture carry."""

    tables: dict[str, dict[str, TableColumn]] = field(default_factory=dict)
    user_types: dict[int, tuple[str, str]] = field(default_factory=dict)


@cache
def take(capture: Capture) -> Taken:
    """Take a capture of Inserts apart: table name to column name to values."""
    taken = Taken()
    relations: dict[int, messages.Relation] = {}
    streaming = False
    for data in capture.messages:
        message = decode_message(data, streaming=streaming)
        if isinstance(message, messages.StreamStart):
            streaming = True
        elif isinstance(message, messages.StreamStop):
            streaming = False
        elif isinstance(message, messages.Type):
            taken.user_types[message.oid] = (message.namespace, message.name)
        elif isinstance(message, messages.Relation):
            relations[message.oid] = message
        elif isinstance(message, messages.Insert):
            relation = relations[message.relation_oid]
            table = taken.tables.setdefault(relation.name, {})
            for column, kind, value in zip(
                relation.columns, message.new.kinds, message.new.values, strict=True
            ):
                into = table.setdefault(
                    column.name, TableColumn(column.name, column.type_oid, column.type_modifier)
                )
                into.values.append(value)
                into.binary.append(kind == ord("b"))
    return taken


@cache
def user_registry(capture: Capture) -> TypeRegistry:
    """The types of the scenario `types` that a stream does not tell, by that server's OIDs."""
    registry = TypeRegistry()
    said: dict[str, Any] = truth(capture)
    registry.register(said["t_enum"]["oid"], "mood", like="text")
    registry.register(said["t_enum_array"]["oid"], "_mood", element="mood")
    return registry
