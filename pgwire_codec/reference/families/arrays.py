"""Arrays and vectors: text form ``{1,NULL,"a,b"}``, ``{{1,2},{3,4}}``, ``[5:6]={10,20}``.

An array is read into its elements' own forms, which decode_values hands to the element's codec:
how a value that the Arrow type cannot hold is handled is decided there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import (
    INT32_MAX,
    ValueReader,
    bad_value,
    read_part,
    refuse,
)
from pgwire_codec.types import ColumnType, element_oid

_MAX_DIMENSIONS: Final = 6  # MAXDIM of PostgreSQL

_BOUNDS: Final = re.compile(rb"(?:\[-?[0-9]{1,10}:-?[0-9]{1,10}\]){1,6}=")
_BOUND: Final = re.compile(rb"\[(-?[0-9]{1,10}):(-?[0-9]{1,10})\]")
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ArrayParts:
    """Array taken apart.

    Attributes
    ----------
    bounds : tuple of (int, int)
        First index and length of each dimension; empty for an array without elements.
    elements : list of (bytes or None, int)
        Each element's own form and the offset at which it starts, the last index fastest.
    """

    bounds: tuple[tuple[int, int], ...]
    elements: list[tuple[bytes | None, int]]


def _read_text(delimiter: str, raw: bytes) -> ArrayParts:
    """Take the text form apart, in one pass and without recursion."""
    declared = _BOUNDS.match(raw)
    start = declared.end() if declared is not None else 0
    plain = re.compile(rb'[^"\\{} \t\n\v\f\r%b]+' % re.escape(delimiter.encode()))
    elements: list[tuple[bytes | None, int]] = []
    lengths: list[int] = []  # of each dimension, as the first of its arrays has it
    counts: list[int] = []  # so far, of each array that is open
    depth = 0  # of the first element: all must have the same
    at = start
    # An opening brace or an element may follow an opening brace or a delimiter, nothing else.
    wanted = True
    while True:
        byte = raw[at : at + 1]
        if byte == b"{" and wanted:
            if len(counts) == _MAX_DIMENSIONS or (depth and len(counts) == depth):
                raise bad_value(at, f"an array of one depth, at most {_MAX_DIMENSIONS} dimensions")
            counts.append(0)
            at += 1
        elif byte == b"}" and counts and (not wanted or raw == b"{}"):
            at = _close(counts, lengths, at)
            wanted = False
            if not counts:
                break
        elif byte == delimiter.encode() and counts and not wanted:
            wanted = True
            at += 1
        elif wanted and counts:
            depth = depth or len(counts)
            if len(counts) != depth:
                raise bad_value(at, "elements at the same depth throughout the array")
            quoted, bare = _QUOTED.match(raw, at), plain.match(raw, at)
            if quoted is not None:
                elements.append((_ESCAPE.sub(rb"\1", quoted[1]), at))
                at = quoted.end()
            elif bare is not None:
                elements.append((None if bare[0].upper() == b"NULL" else bare[0], at))
                at = bare.end()
            else:
                raise bad_value(at, "an array element")
            counts[-1] += 1
            wanted = False
        else:
            raise bad_value(at, "an array as {1,2,NULL}")
    if at != len(raw):
        raise bad_value(at, "nothing after an array's closing brace")
    if not elements:
        lengths = []
    return ArrayParts(_bounds(raw[:start], lengths), elements)


def _close(counts: list[int], lengths: list[int], at: int) -> int:
    """Close the innermost array, which must be as long as the others of its dimension."""
    level = len(counts) - 1
    length = counts.pop()
    while len(lengths) <= level:
        lengths.append(-1)
    if lengths[level] not in (-1, length):
        raise bad_value(at, "arrays of the same length within an array")
    lengths[level] = length
    if counts:
        counts[-1] += 1
    return at + 1


def _bounds(declared: bytes, lengths: list[int]) -> tuple[tuple[int, int], ...]:
    if not declared:
        return tuple((1, length) for length in lengths)
    bounds = tuple(
        (int(found[1]), int(found[2]) - int(found[1]) + 1) for found in _BOUND.finditer(declared)
    )
    if [length for _, length in bounds] != lengths:
        refuse("dimensions that are those of the array's elements")
    return bounds


def _read_binary(element_oid: int | None, raw: bytes) -> ArrayParts:
    """Take array_send's form apart."""
    reader = ValueReader(raw)
    dimensions = reader.number("i", "array dimension count")
    if not 0 <= dimensions <= _MAX_DIMENSIONS:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, f"0 to {_MAX_DIMENSIONS} dimensions")
    if reader.number("i", "array flags") not in (0, 1):
        raise bad_value(4, "an array's flags: 0 or 1")
    if reader.number("I", "array element type") != element_oid and element_oid is not None:
        raise bad_value(8, f"an array of elements of type {element_oid}")
    bounds = []
    size = min(dimensions, 1)
    for _ in range(dimensions):
        start = reader.at
        length = reader.number("i", "array dimension")
        first = reader.number("i", "array lower bound")
        size *= length
        if length < 0 or size * 4 > len(raw) or first + length - 1 > INT32_MAX:
            raise ValueProblem(ErrorCode.BAD_LENGTH, start, f"a dimension of {length} elements")
        bounds.append((first, length))
    elements: list[tuple[bytes | None, int]] = []
    for _ in range(size):
        length = reader.number("i", "array element length")
        if length == -1:
            elements.append((None, reader.at))
        else:
            start = reader.at
            elements.append((reader.take(length, "array element"), start))
    reader.finish()
    return ArrayParts(tuple(bounds) if elements else (), elements)


def _render(element: Family, element_oid: int | None, delimiter: bytes, raw: bytes) -> bytes:
    parts = _read_binary(element_oid, raw)
    if not parts.elements:
        return b"{}"
    shown = [
        b"NULL" if each is None else _quoted(read_part(element.render, each, at), delimiter)
        for each, at in parts.elements
    ]
    for _, length in reversed(parts.bounds):
        shown = [
            b"{" + delimiter.join(shown[i : i + length]) + b"}"
            for i in range(0, len(shown), length)
        ]
    return _dimensions(parts) + shown[0]


def _dimensions(parts: ArrayParts) -> bytes:
    if all(first == 1 for first, _ in parts.bounds):
        return b""
    return b"".join(b"[%d:%d]" % (first, first + n - 1) for first, n in parts.bounds) + b"="


def _quoted(text: bytes, delimiter: bytes) -> bytes:
    """Quote an element as array_out does."""
    special = b'"\\{} \t\n\r\v\f' + delimiter
    if text and text.upper() != b"NULL" and not any(byte in special for byte in text):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _write(
    element: Family, column: ColumnType, formats: Sequence[str], value: Sequence[Any]
) -> bytes:
    assert column.child is not None
    has_null = any(each is None for each in value)
    parts = [struct.pack(">iiI", 1 if value else 0, has_null, column.pg.element)]
    if value:
        parts.append(struct.pack(">ii", len(value), 1))
    for each in value:
        if each is None:
            parts.append(struct.pack(">i", -1))
        else:
            raw = element.binary_form(column.child, formats[1:], each)
            parts += (struct.pack(">i", len(raw)), raw)
    return b"".join(parts)


def _write_text(
    element: Family, column: ColumnType, formats: Sequence[str], value: Sequence[Any]
) -> bytes:
    child = column.child
    assert child is not None
    delimiter = column.pg.delimiter.encode()
    shown = [
        b"NULL" if each is None else _quoted(element.text_form(child, formats[1:], each), delimiter)
        for each in value
    ]
    return b"{" + delimiter.join(shown) + b"}"


def _array(column: ColumnType, element: Family) -> Family:
    delimiter, declared = column.pg.delimiter, element_oid(column)
    return Family(
        render=partial(_render, element, declared, delimiter.encode()),
        read_text=partial(_read_text, delimiter),
        read_binary=partial(_read_binary, declared),
        write=partial(_write, element),
        write_text=partial(_write_text, element),
        arrow_name=f"a list of {element.wanted_arrow}",
        arrow_formats=r"\+[lL]|\+w:.*",
        element=element,
    )


def _render_vector(element: Family, element_oid: int, raw: bytes) -> bytes:
    """Return ``1 2 3``: int2vector and oidvector have neither brackets nor NULLs."""
    parts = _read_binary(element_oid, raw)
    if len(parts.bounds) > 1 or any(each is None for each, _ in parts.elements):
        refuse("one dimension without NULLs")
    return b" ".join(read_part(element.render, each or b"", at) for each, at in parts.elements)


def _vector(column: ColumnType, element: Family) -> Family:
    return Family(render=partial(_render_vector, element, column.pg.subtype))


CONTAINERS: Final = {"array": _array, "vector": _vector}
