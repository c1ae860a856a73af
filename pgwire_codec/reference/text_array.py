"""The text form of an array: ``{1,NULL,"a,b"}``, ``{{1,2},{3,4}}``, ``[5:6]={10,20}``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode

MAX_DIMENSIONS: Final = 6  # MAXDIM of PostgreSQL

_BOUNDS: Final = re.compile(rb"(?:\[-?[0-9]{1,10}:-?[0-9]{1,10}\]){1,6}=")
_BOUND: Final = re.compile(rb"\[(-?[0-9]{1,10}):(-?[0-9]{1,10})\]")
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ArrayParts:
    """An array taken apart.

    Attributes
    ----------
    bounds : tuple of (int, int)
        First index and length of each dimension; empty for an array without elements.
    elements : list of (bytes or None, int)
        Each element's own form and the offset at which it starts, the last index fastest.
    """

    bounds: tuple[tuple[int, int], ...]
    elements: list[tuple[bytes | None, int]]


def _refuse(offset: int, expected: str) -> NoReturn:
    raise ValueProblem(ErrorCode.BAD_VALUE, offset, expected)


def read_array(raw: bytes, delimiter: str) -> ArrayParts:
    """Take the text form of an array apart, in one pass and without recursion."""
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
            if len(counts) == MAX_DIMENSIONS or (depth and len(counts) == depth):
                _refuse(at, f"an array of one depth, at most {MAX_DIMENSIONS} dimensions")
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
                _refuse(at, "elements at the same depth throughout the array")
            quoted, bare = _QUOTED.match(raw, at), plain.match(raw, at)
            if quoted is not None:
                elements.append((_ESCAPE.sub(rb"\1", quoted[1]), at))
                at = quoted.end()
            elif bare is not None:
                elements.append((None if bare[0].upper() == b"NULL" else bare[0], at))
                at = bare.end()
            else:
                _refuse(at, "an array element")
            counts[-1] += 1
            wanted = False
        else:
            _refuse(at, "an array as {1,2,NULL}")
    if at != len(raw):
        _refuse(at, "nothing after an array's closing brace")
    if not elements:
        lengths = []
    return ArrayParts(_bounds(raw[:start], lengths), elements)


def _close(counts: list[int], lengths: list[int], at: int) -> int:
    """Close the innermost array, which must be as long as its sisters."""
    level = len(counts) - 1
    length = counts.pop()
    while len(lengths) <= level:
        lengths.append(-1)
    if lengths[level] not in (-1, length):
        _refuse(at, "arrays of the same length within an array")
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
        _refuse(0, "dimensions that are those of the array's elements")
    return bounds
