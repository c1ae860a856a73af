"""Values to decode, and captures taken apart into them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from pgwire_codec.arrow.values import to_pylist
from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.protocol import messages
from pgwire_codec.reference import decode_message
from pgwire_codec.types import ColumnType, TypeOptions, TypeRegistry, column_type
from tests.support.corpus import Capture, truth
from tests.support.differential import differential
from tests.support.implementations import Implementation

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

POLICIES: Final = ("raise", "null", "clamp")
#: Options that change how a value is decoded.
OPTIONS: Final = [
    TypeOptions(),
    TypeOptions(arrow_types=ROW_TYPES),
    TypeOptions(types="text"),
    TypeOptions(types="text", strings="view"),
    TypeOptions(strings="view", numeric="float64"),
    TypeOptions(numeric="decimal128(20,3)", intervals="microseconds"),
    TypeOptions(numeric="decimal256(60,12)"),
]

Value = bytes | None
Row = tuple[Value, bool]  #: a value, and whether it is in binary form
Rows = Sequence[Row]


def numeric_typmod(precision: int, scale: int) -> int:
    """Type modifier of numeric(precision, scale)."""
    return (precision << 16 | (scale & 0x7FF)) + 4


def type_of(which: str | int, typmod: int = -1, **options: Any) -> ColumnType:
    """Type of a column, by an OID or a name as ``int4[]`` or ``numeric(15,2)``."""
    return with_options(which, TypeOptions(**options), typmod)


def with_options(which: str | int, options: TypeOptions, typmod: int = -1) -> ColumnType:
    if isinstance(which, str):
        name, _, digits = which.partition("(")
        if digits:
            precision, scale = digits.removesuffix(")").split(",")
            typmod = numeric_typmod(int(precision), int(scale))
        known = TypeRegistry().lookup_name(name)
        assert known is not None, which
        which = known.oid
    return column_type(which, typmod, options)


def every_way(name: str) -> list[ColumnType]:
    """Types of a column, one for each of OPTIONS."""
    return [with_options(name, options) for options in OPTIONS]


def laid_out(rows: Rows, lead: int = 13, tail: bytes = b"") -> tuple[Any, ...]:
    """Arguments of decode_values: `lead` bytes before the first value, `tail` after the last.

    Values must not depend on bytes before, between and after them, nor on their absence.
    """
    data = b"\xff" * lead + b"\xfe".join(value or b"" for value, _ in rows) + tail
    lengths = np.array([len(value or b"") for value, _ in rows], np.int32)
    offsets = lead + np.cumsum(lengths + 1, dtype=np.int64) - lengths - 1
    # 0, 2 and 3 are all without bytes.
    state = np.array([(0, 2, 3)[row % 3] if v is None else 1 for row, (v, _) in enumerate(rows)])
    formats = np.array([binary for _, binary in rows], np.uint8)
    return np.frombuffer(data, np.uint8), offsets, lengths, state.astype(np.uint8), formats


def decode(
    codec: Implementation,
    column: ColumnType | str | int,
    values: Sequence[Value],
    *,
    binary: bool | Sequence[bool] = False,
    typmod: int = -1,
    unrepresentable: str = "raise",
    **options: Any,
) -> Decoded:
    """Decode values of a type (a ColumnType, or as for type_of); None is NULL."""
    if not isinstance(column, ColumnType):
        column = type_of(column, typmod, **options)
    forms = [binary] * len(values) if isinstance(binary, bool) else binary
    arguments = laid_out(list(zip(values, forms, strict=True)), lead=1, tail=b"\xff")
    decoded: Decoded = codec.decode_values(column, *arguments, unrepresentable=unrepresentable)
    return decoded


def one(codec: Implementation, kind: str, raw: bytes, **options: Any) -> Any:
    """Decode one value to Python."""
    (value,) = to_pylist(decode(codec, kind, [raw], **options).array)
    return value


def problem(codec: Implementation, kind: str, raw: bytes, **options: Any) -> tuple[str, int]:
    """Code and offset of the error that a value is refused with."""
    with pytest.raises(ValueProblem) as caught:
        decode(codec, kind, [raw], **options)
    return caught.value.code, caught.value.offset


# The implementations compared.


def same_values(kind: ColumnType, rows: Rows, *, lead: int = 13, policy: str = "raise") -> bool:
    """Decode by both implementations and compare; return False if both raised the same."""
    outcome = differential("decode_values", kind, *laid_out(rows, lead), unrepresentable=policy)
    return bool(outcome[0] == "Decoded")


def broken(value: bytes, chosen: random.Random) -> list[bytes]:
    """Values that are cut at each byte, have changed bytes, or have one more."""
    cuts = range(len(value)) if len(value) <= 40 else chosen.sample(range(len(value)), 40)
    wrong = [value[:cut] for cut in cuts]
    for _ in range(12 if value else 0):
        changed = bytearray(value)
        changed[chosen.randrange(len(value))] = chosen.randrange(256)
        wrong.append(bytes(changed))
    return [*wrong, value + b"\0", value + b"0", b"-" + value, value + value]


def same_broken_values(kinds: list[ColumnType], value: bytes, binary: bool, name: str) -> list[int]:
    """Compare the implementations on broken values; return how many were refused and decoded."""
    chosen = random.Random(f"{name} {value!r} {binary}")
    outcomes = [0, 0]
    for raw in broken(value, chosen):
        kind = chosen.choice(kinds)
        # A good value before it, or none: the row is part of what must agree.
        rows: Rows = [(value, binary), (None, False), (raw, binary)][chosen.randrange(3) :]
        good = same_values(kind, rows, lead=chosen.choice((0, 13)), policy=chosen.choice(POLICIES))
        outcomes[good] += 1
    return outcomes


# Captures.


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
    """Values in the Inserts of a capture."""

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
    """Types of the scenario `types` that a stream does not declare, by that server's OIDs."""
    registry = TypeRegistry()
    said: dict[str, Any] = truth(capture)
    registry.register(said["t_enum"]["oid"], "mood", like="text")
    registry.register(said["t_enum_array"]["oid"], "_mood", element="mood")
    return registry
