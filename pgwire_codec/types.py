"""PostgreSQL's types: which OID is what, and which Arrow type its column becomes.

An OID names a :class:`PgType`, whose *family* says how its text and binary forms are read.
:func:`column_type` adds the options of a decoder and gives the :class:`ColumnType`, which is all
that the value layer asks for. Built-in OIDs are the same in every server; user-defined types get
theirs when they are created, so a stream's own `Type` messages or :func:`register_type` tell them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pgwire_codec._pg_type import BUILTIN
from pgwire_codec.errors import OptionError

__all__ = [
    "ColumnType",
    "PgType",
    "TypeOptions",
    "TypeRegistry",
    "column_type",
    "register_type",
    "registry",
]

_NO_USER_TYPES: Final[Mapping[int, tuple[str, str]]] = MappingProxyType({})
#: Arrays of ranges of … a stream cannot nest deeper than this without a registry that loops.
_MAX_NESTING: Final = 8


@dataclass(frozen=True, slots=True)
class PgType:
    """A PostgreSQL type, as pg_type has it.

    Attributes
    ----------
    oid : int
        Its OID; for an unknown type the OID that the stream gave.
    name : str
        Its name without schema: ``"int4"``, ``"_int4"`` for the array of it.
    family : str
        How its forms are read. Types that are written alike share a family: text, varchar and
        json are all ``"text"``. ``"array"``, ``"range"`` and ``"multirange"`` read their parts by
        `element` or `subtype`; ``"unknown"`` passes through.
    element : int
        OID of an array's element type, else 0.
    delimiter : str
        What separates the elements of an array *of* this type; of an array type: its elements.
    subtype : int
        OID of a range's bound, of a multirange's range or of a vector's element, else 0.
    """

    oid: int
    name: str
    family: str
    element: int = 0
    delimiter: str = ","
    subtype: int = 0


class TypeRegistry:
    """OID to :class:`PgType`: the built-in types and those that a program registered.

    Registries pickle with what was registered in them.
    """

    def __init__(self) -> None:
        self._by_oid: dict[int, PgType] = dict(_BUILTIN_BY_OID)

    def lookup(self, oid: int) -> PgType | None:
        """Give the type of an OID, or None."""
        return self._by_oid.get(oid)

    def lookup_name(self, name: str) -> PgType | None:
        """Give a type of pg_catalog by its name, or None.

        Array types answer to pg_type's own name, ``"_int4"``, and to ``"int4[]"``.
        """
        return _BUILTIN_BY_NAME.get(f"_{name[:-2]}" if name.endswith("[]") else name)

    def register(
        self,
        oid: int,
        name: str,
        *,
        like: str | int | None = None,
        element: str | int | None = None,
    ) -> PgType:
        """Tell what a user-defined type's OID is; see :func:`register_type`."""
        if not isinstance(oid, int) or not isinstance(name, str):
            raise OptionError(
                f"a type has an OID, an int, and a name, a str: not {oid!r}, {name!r}"
            )
        if not 0 < oid < 2**32:
            raise OptionError(f"type OID {oid}: an OID is between 1 and 4294967295")
        if oid in _BUILTIN_BY_OID:
            raise OptionError(f"type OID {oid} is built in: {_BUILTIN_BY_OID[oid].name}")
        if (like is None) == (element is None):
            raise OptionError(f"type {name}: give one of like= and element=")
        if like is not None:
            registered = replace(self._known(like), oid=oid, name=name)
        else:
            assert element is not None
            inner = self._known(element)
            registered = PgType(oid, name, "array", element=inner.oid, delimiter=inner.delimiter)
        self._by_oid[oid] = registered
        return registered

    def _known(self, which: str | int) -> PgType:
        if isinstance(which, int):
            found = self.lookup(which)
        else:
            found = self.lookup_name(which) or next(
                (known for known in self._by_oid.values() if known.name == which), None
            )
        if found is None:
            raise OptionError(f"no type {which!r} is known: register it first")
        return found


def _builtin_types() -> dict[int, PgType]:
    types: dict[int, PgType] = {}
    for oid, name, family, array, delimiter, subtype in BUILTIN:
        types[oid] = PgType(oid, name, family, delimiter=delimiter, subtype=subtype)
        if array:
            types[array] = PgType(array, f"_{name}", "array", element=oid, delimiter=delimiter)
    return types


_BUILTIN_BY_OID: Final = _builtin_types()
_BUILTIN_BY_NAME: Final = {known.name: known for known in _BUILTIN_BY_OID.values()}

#: The process-wide registry, which decoders use unless they are given another.
registry: Final = TypeRegistry()
_PROCESS_WIDE: Final = registry  # what a parameter named `registry` hides


def register_type(
    oid: int,
    name: str,
    *,
    like: str | int | None = None,
    element: str | int | None = None,
    registry: TypeRegistry | None = None,
) -> PgType:
    """Tell what a user-defined type's OID is.

    The stream does not tell what an enum, a composite type or an array of a user type is: without
    this their text form is a string and their binary form is bytes.

    Parameters
    ----------
    oid : int
        The OID, as ``select 'mood'::regtype::oid`` gives it on the publishing server.
    name : str
        The type's name.
    like : str or int, optional
        Name or OID of a known type that is written the same way: ``"text"`` for an enum, the base
        type for a domain, ``"int4range"`` for a range over integer.
    element : str or int, optional
        For an array type: name or OID of its element type, which must be known.
    registry : TypeRegistry, optional
        Where to register; the process-wide :data:`pgwire_codec.types.registry` by default.

    Returns
    -------
    PgType
        The type as registered.

    Raises
    ------
    OptionError
        If the OID is a built-in type's, or `like` or `element` is not known, or both or neither
        of them is given.

    Examples
    --------
    >>> mine = TypeRegistry()
    >>> register_type(16385, "mood", like="text", registry=mine).family
    'text'
    >>> register_type(16384, "_mood", element="mood", registry=mine).element
    16385
    """
    where = _PROCESS_WIDE if registry is None else registry
    return where.register(oid, name, like=like, element=element)


_DECIMAL: Final = re.compile(r"decimal(128|256)\(([0-9]{1,2}),\s*([0-9]{1,2})\)")


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """How PostgreSQL's types become Arrow's.

    Parameters
    ----------
    types : {"native", "text"}
        ``"text"`` makes every column a string: the text that the server writes.
    numeric : str
        What a numeric without precision, or of more than 38 digits, becomes: ``"string"``,
        ``"float64"``, ``"decimal128(p,s)"`` or ``"decimal256(p,s)"``.
    strings : {"copy", "view"}
        ``"view"`` makes strings a string_view over the messages' bytes: nothing is copied.
    target : {"arrow", "spark"}
        ``"spark"`` keeps to what Spark's Arrow reader takes: no unsigned integers, no time, no
        interval, no views, no decimal of more than 38 digits.

    Raises
    ------
    OptionError
        If an option has a value that is not listed here, or two contradict each other.
    """

    types: str = "native"
    numeric: str = "string"
    strings: str = "copy"
    target: str = "arrow"
    #: Arrow format of a numeric that is unbounded or too wide: "u", "g", "d:38,9", "d:76,9,256".
    numeric_format: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, allowed in (
            ("types", ("native", "text")),
            ("strings", ("copy", "view")),
            ("target", ("arrow", "spark")),
        ):
            if getattr(self, name) not in allowed:
                raise OptionError(f"{name}={getattr(self, name)!r}: one of {', '.join(allowed)}")
        if self.target == "spark" and self.strings == "view":
            raise OptionError("strings='view': Spark reads no string views; use strings='copy'")
        object.__setattr__(self, "numeric_format", self._numeric_format())

    def _numeric_format(self) -> str:
        if self.numeric == "string":
            return "u"
        if self.numeric == "float64":
            return "g"
        parts = _DECIMAL.fullmatch(self.numeric) if isinstance(self.numeric, str) else None
        if parts is None:
            raise OptionError(
                f"numeric={self.numeric!r}: one of string, float64, decimal128(p,s), "
                "decimal256(p,s)"
            )
        bits, precision, scale = (int(part) for part in parts.groups())
        widest = 38 if bits == 128 else 76
        if not (1 <= precision <= widest and scale <= precision):
            raise OptionError(
                f"numeric={self.numeric!r}: precision is 1 to {widest}, scale 0 to the precision"
            )
        if bits == 256 and self.target == "spark":
            raise OptionError(f"numeric={self.numeric!r}: Spark has at most 38 digits")
        return f"d:{precision},{scale}" + (",256" if bits == 256 else "")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How one column is read and what it becomes.

    Attributes
    ----------
    pg : PgType
        The type as the server has it; of a domain its base type.
    typmod : int
        The column's type modifier, -1 for none.
    format : str
        The column's type in the Arrow C data interface's notation: ``"l"``, ``"tsu:UTC"``,
        ``"d:15,2"``, ``"u"``. Of an unknown type ``"z"`` (``"vz"``) is provisional: the decoded
        array says ``"u"`` (``"vu"``) as long as no value came in binary form.
    child : ColumnType or None
        An array's element, a range's bound, a multirange's range or a vector's element.
    extension : str or None
        Name of the Arrow extension type, ``"arrow.uuid"``.
    numeric : bool
        Whether a string column is a numeric's: its Python value is a Decimal.
    """

    pg: PgType
    typmod: int
    format: str
    child: ColumnType | None = None
    extension: str | None = None
    numeric: bool = False


_NATIVE: Final = {
    "bool": "b",
    "int2": "s",
    "int4": "i",
    "int8": "l",
    "uint4": "I",
    "uint8": "L",
    "pg_lsn": "L",
    "float4": "f",
    "float8": "g",
    "bytea": "z",
    "uuid": "w:16",
    "date": "tdD",
    "time": "ttu",
    "timestamp": "tsu:",
    "timestamptz": "tsu:UTC",
    "interval": "tin",
    "array": "+l",
    "unknown": "z",
}
_SPARK: Final = _NATIVE | {
    "uint4": "l",
    "uint8": "l",
    "pg_lsn": "l",
    "uuid": "u",
    "time": "u",
    "interval": "u",
    "unknown": "u",
}


def column_type(
    type_oid: int,
    type_modifier: int,
    options: TypeOptions,
    *,
    user_types: Mapping[int, tuple[str, str]] = _NO_USER_TYPES,
    registry: TypeRegistry = registry,
) -> ColumnType:
    """Give the type that a relation's column is decoded as.

    Parameters
    ----------
    type_oid, type_modifier : int
        As the Relation message has them.
    options : TypeOptions
        The decoder's options.
    user_types : mapping of int to (str, str), optional
        OID to (namespace, name), from the stream's Type messages: that of a domain carries the
        name of its base type, in namespace ``""`` when that is built in.
    registry : TypeRegistry, optional
        Where OIDs are looked up first.

    Returns
    -------
    ColumnType
        Of an OID that nothing tells, one of family ``"unknown"``.
    """
    pg = registry.lookup(type_oid)
    if pg is None:
        namespace, name = user_types.get(type_oid, ("", str(type_oid)))
        base = registry.lookup_name(name) if namespace in ("", "pg_catalog") else None
        pg = base or PgType(type_oid, name, "unknown")
    return _column_type(pg, type_modifier, options, registry, _MAX_NESTING)


def _column_type(
    pg: PgType, typmod: int, options: TypeOptions, registry: TypeRegistry, nesting: int
) -> ColumnType:
    child = None
    if pg.element or pg.subtype:
        if not nesting:
            raise OptionError(f"type {pg.name}: registered as an element of itself")
        part = registry.lookup(pg.element or pg.subtype)
        assert part is not None, "a type is registered after its parts"
        # Elements are unescaped into memory of their own, so there is nothing to view.
        inner = options if options.strings == "copy" else replace(options, strings="copy")
        child = _column_type(part, typmod, inner, registry, nesting - 1)
    arrow = _format(pg, typmod, options)
    passed_through = arrow == "u" or pg.family == "unknown"
    return ColumnType(
        pg,
        typmod,
        f"v{arrow}" if options.strings == "view" and passed_through else arrow,
        child,
        extension="arrow.uuid" if arrow == "w:16" else None,
        numeric=pg.family == "numeric" and options.types == "native" and arrow == "u",
    )


def _format(pg: PgType, typmod: int, options: TypeOptions) -> str:
    if options.types == "text":
        return "u"
    if pg.family == "numeric":
        return _numeric_format(typmod) or options.numeric_format
    return (_SPARK if options.target == "spark" else _NATIVE).get(pg.family, "u")


def _numeric_format(typmod: int) -> str | None:
    """Give the decimal128 of a numeric(p,s), or None where there is no such thing.

    numerictypmodin packs precision and scale above the header's four bytes; the scale has
    11 bits and a sign (15 on), so numeric(3,-2) holds thousands and numeric(3,5) thousandths.
    """
    if typmod < 4:
        return None
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4) & 0x7FF ^ 0x400) - 0x400
    digits = max(precision - min(scale, 0), scale)
    return f"d:{digits},{max(scale, 0)}" if 1 <= digits <= 38 and precision else None
