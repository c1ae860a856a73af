"""Facts about user-defined types, as pg_type has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.types import TypeRegistry, UserType

if TYPE_CHECKING:
    from collections.abc import Iterable

_BUILT_IN: Final = TypeRegistry()

#: By typtype; an array is a base type there, and a pseudo-type is the type of no column.
_KINDS: Final = {
    "a": "array",
    "b": "base",
    "c": "composite",
    "d": "domain",
    "e": "enum",
    "m": "multirange",
    "r": "range",
}

# A multirange names no range; its range names it, from PostgreSQL 14 on: as JSON the column of the
# catalog may be missing. A type that has the internal output and send functions of a built-in type,
# under whatever names, is written as that, such as citext.
_TYPES: Final = """
WITH RECURSIVE needed(oid) AS (
    SELECT o FROM unnest(%s::oid[]) o
    UNION
    SELECT part FROM needed JOIN pg_type t ON t.oid = needed.oid
    LEFT JOIN pg_range r ON r.rngtypid = t.oid
    LEFT JOIN pg_range m ON (to_jsonb(m)->>'rngmultitypid')::oid = t.oid,
    unnest(ARRAY[t.typbasetype, t.typelem, r.rngsubtype, m.rngtypid]) part
    WHERE part <> 0
)
SELECT t.oid, t.typname, k.kind,
    CASE k.kind WHEN 'd' THEN t.typbasetype WHEN 'r' THEN r.rngsubtype WHEN 'm' THEN m.rngtypid
    WHEN 'a' THEN t.typelem ELSE (
        SELECT min(b.oid) FROM pg_type b
        JOIN pg_proc bo ON bo.oid = b.typoutput JOIN pg_proc bs ON bs.oid = b.typsend
        WHERE b.oid < 10000 AND b.typtype = 'b' AND (bo.prosrc, bs.prosrc) = (o.prosrc, s.prosrc)
        AND o.prolang = 12 AND s.prolang = 12
    ) END,
    t.typtypmod, coalesce(e.typdelim, ',')::text, t.typsend::oid <> 0
FROM needed JOIN pg_type t ON t.oid = needed.oid
JOIN pg_proc o ON o.oid = t.typoutput
CROSS JOIN LATERAL (SELECT CASE WHEN t.typtype = 'b' AND o.prosrc = 'array_out' THEN 'a'
    ELSE t.typtype::text END AS kind) k
LEFT JOIN pg_proc s ON s.oid = t.typsend
LEFT JOIN pg_type e ON e.oid = t.typelem
LEFT JOIN pg_range r ON r.rngtypid = t.oid
LEFT JOIN pg_range m ON (to_jsonb(m)->>'rngmultitypid')::oid = t.oid
"""


def is_user_type(oid: int) -> bool:
    """Return whether a type is not among the built-in ones that every decoder knows."""
    return _BUILT_IN.lookup(oid) is None


def read_user_types(cursor: Any, oids: Iterable[int]) -> dict[int, UserType]:
    """Return the types of these OIDs that exist and are not built in, and those of their parts.

    The cursor is of an ordinary connection.
    """
    wanted = sorted(filter(is_user_type, set(oids)))
    if not wanted:
        return {}
    cursor.execute(_TYPES, (wanted,))
    found = {}
    for oid, name, letter, part, typmod, delimiter, has_binary_form in cursor.fetchall():
        if is_user_type(oid) and letter in _KINDS:
            kind: Any = _KINDS[letter]
            found[oid] = UserType(oid, name, kind, part or 0, typmod, delimiter, has_binary_form)
    return found


def with_parts(oids: Iterable[int], types: dict[int, UserType]) -> tuple[UserType, ...]:
    """Return those of the types that have these OIDs, and their parts, by OID."""
    needed: dict[int, UserType] = {}
    left = list(oids)
    while left:
        oid = left.pop()
        if oid in types and oid not in needed:
            needed[oid] = types[oid]
            left.append(types[oid].part)
    return tuple(needed[oid] for oid in sorted(needed))
