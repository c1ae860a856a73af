"""tsvector and tsquery."""

from __future__ import annotations

from typing import Final

from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import ValueReader, bad_value

_NOT, _AND, _OR, _PHRASE = 1, 2, 3, 4
_PRIORITY: Final = {_NOT: 4, _AND: 2, _OR: 1, _PHRASE: 3}
_WEIGHTS: Final = ((8, b"A"), (4, b"B"), (2, b"C"), (1, b"D"))
_OPERAND: Final = 5  # binds tighter than any operator


def _render_tsvector(raw: bytes) -> bytes:
    """Return ``'a' 'cat':3A,5``."""
    reader = ValueReader(raw)
    lexemes = []
    for _ in range(reader.count("i", 3, "lexemes")):
        lexeme = _quote(reader.text("a lexeme"))
        positions = []
        for _ in range(reader.count("H", 2, "positions")):
            packed = reader.number("H", "position")
            positions.append(f"{packed & 0x3FFF}{('', 'C', 'B', 'A')[packed >> 14]}".encode())
        lexemes.append(lexeme + (b":" + b",".join(positions) if positions else b""))
    reader.finish()
    return b" ".join(lexemes)


def _render_tsquery(raw: bytes) -> bytes:
    """Return ``'fat':AB & !( 'cat':* | 'rat' )``."""
    reader = ValueReader(raw)
    count = reader.count("i", 2, "query items")
    items = [_read_item(reader) for _ in range(count)]
    reader.finish()
    # An operator precedes its operands, the right one first: read from the end, every
    # operator finds its operands done, and no depth of nesting costs any stack.
    done: list[tuple[bytes, int]] = []
    for operator, text, offset in reversed(items):
        if not operator:
            done.append((text, _OPERAND))
        elif len(done) < (1 if operator == _NOT else 2):
            raise bad_value(offset, "an operator that has its operands")
        elif operator == _NOT:
            done.append((b"!" + _enclose(done.pop(), _PRIORITY[_NOT]), _PRIORITY[_NOT]))
        else:
            priority = _PRIORITY[operator]
            right = _enclose(done.pop(), priority + (operator == _PHRASE))
            left = _enclose(done.pop(), priority)
            done.append((left + text + right, priority))
    if len(done) > 1:
        raise bad_value(4, "one expression")
    return done[0][0] if done else b""


def _read_item(reader: ValueReader) -> tuple[int, bytes, int]:
    """Return an item's operator (0 for an operand), its text and its offset."""
    offset = reader.at
    kind = reader.number("B", "query item")
    if kind == 1:
        weight = reader.number("B", "weight")
        prefix = reader.number("B", "prefix flag")
        if weight > 15 or prefix > 1:
            raise bad_value(offset, "a weight of four bits and a prefix flag")
        text = _quote(reader.text("an operand"))
        marks = b"*" * prefix
        marks += b"".join(mark for bit, mark in _WEIGHTS if weight & bit)
        return 0, text + (b":" + marks if marks else b""), offset
    operator = reader.number("B", "operator") if kind == 2 else 0
    if operator not in _PRIORITY:
        raise bad_value(offset, "an operand or an operator")
    if operator == _PHRASE:
        distance = reader.number("H", "distance")
        return operator, b" <-> " if distance == 1 else b" <%d> " % distance, offset
    return operator, {_NOT: b"!", _AND: b" & ", _OR: b" | "}[operator], offset


def _enclose(operand: tuple[bytes, int], priority: int) -> bytes:
    text, own = operand
    return text if own >= priority else b"( " + text + b" )"


def _quote(lexeme: bytes) -> bytes:
    return b"'" + lexeme.replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'"


FAMILIES: Final = {
    "tsvector": Family(render=_render_tsvector),
    "tsquery": Family(render=_render_tsquery),
}
