"""The Arrow type that a column becomes, by its PostgreSQL type and a decoder's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pgwire_codec.errors import OptionError, check_choice
from pgwire_codec.types.registry import PgType, TypeRegistry, default_registry

_NO_USER_TYPES: Final[Mapping[int, tuple[str, str]]] = MappingProxyType({})
#: Arrays of ranges of … a stream cannot nest deeper than this without a registry that loops.
_MAX_NESTING: Final = 8
_FIRST_USER_OID: Final = 16384  # FirstNormalObjectId of PostgreSQL
_FORMS_DIFFER: Final = ("unknown", "money", "reg")


@dataclass(frozen=True)
class ArrowTypes:
    """Arrow types that the reader of decoded columns takes. Picklable.

    Attributes
    ----------
    reader : str
        Who takes them, for error messages: ``"Arrow"``, ``"Spark"``.
    formats : dict of str to str
        Arrow C data interface format of a family of types; a family without one is a string.
    has_string_views : bool
        Whether the reader takes string_view.
    decimal_digits : int
        The most digits that a decimal may have.
    """

    reader: str
    formats: dict[str, str]
    has_string_views: bool = True
    decimal_digits: int = 76

    def __hash__(self) -> int:
        return hash((self.reader, *self.formats.items()))


#: The closest Arrow type of each family, whoever reads it.
NATIVE: Final = ArrowTypes(
    "Arrow",
    {
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
    },
)


#: Arrow formats of an interval, by the option ``intervals``.
_INTERVALS: Final = {"month_day_nano": "tin", "string": "u", "microseconds": "tDu"}

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
    arrow_types : ArrowTypes
        What the reader of the columns takes, :data:`NATIVE` or ``pgwire_codec.spark``'s.
    intervals : {"month_day_nano", "string", "microseconds"}
        What an interval becomes: a month_day_nano_interval, if the reader takes one, the server's
        text, or a duration[us] with the parts added up.

    Raises
    ------
    OptionError
        If an option has a value that is not listed here, or two contradict each other.
    """

    types: str = "native"
    numeric: str = "string"
    strings: str = "copy"
    arrow_types: ArrowTypes = NATIVE
    intervals: str = "month_day_nano"
    #: Arrow format of a numeric that is unbounded or too wide: "u", "g", "d:38,9", "d:76,9,256".
    numeric_format: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("types", self.types, "native", "text")
        check_choice("strings", self.strings, "copy", "view")
        check_choice("intervals", self.intervals, *_INTERVALS)
        if not isinstance(self.arrow_types, ArrowTypes):
            raise OptionError(
                f"arrow_types must be ArrowTypes, not {type(self.arrow_types).__name__}"
            )
        if self.strings == "view" and not self.arrow_types.has_string_views:
            raise OptionError(
                f"`strings='view'`: {self.arrow_types.reader} cannot read string views",
                hint="Use `strings='copy'`.",
            )
        if self.intervals == "microseconds" and self.arrow_types.formats.get("interval") != "tin":
            raise OptionError(
                f'intervals must be "string" for {self.arrow_types.reader}, which has no type of '
                f"them, not {self.intervals!r}"
            )
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
        most = self.arrow_types.decimal_digits
        if precision > most or (bits == 256 and most < 76):
            raise OptionError(
                f"numeric={self.numeric!r}: {self.arrow_types.reader} has at most {most} digits"
            )
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


def column_type(
    type_oid: int,
    type_modifier: int,
    options: TypeOptions,
    *,
    user_types: Mapping[int, tuple[str, str]] = _NO_USER_TYPES,
    registry: TypeRegistry = default_registry,
) -> ColumnType:
    """Return the type that a relation's column is decoded as.

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
        Of an unknown OID, one of family ``"unknown"``.
    """
    pg = registry.lookup(type_oid)
    if pg is None:
        namespace, name = user_types.get(type_oid, ("", str(type_oid)))
        base = registry.lookup_name(name) if namespace in ("", "pg_catalog") else None
        pg = base or PgType(type_oid, name, "unknown")
    return _column_type(pg, type_modifier, options, registry, _MAX_NESTING)


def forms_agree(column: ColumnType) -> bool:
    """Return whether both forms of a column's values decode to the same.

    Those of unknown types do not. The text of money depends on lc_monetary, and that of the types
    of OIDs, such as regclass, has names of the catalog: neither is in the binary form.
    """
    if column.pg.family in _FORMS_DIFFER:
        return False
    return column.child is None or forms_agree(column.child)


def element_oid(column: ColumnType) -> int | None:
    """Return the element type that a binary array must declare, None if it may declare another.

    The array of a domain has the domain's own OID there, one of a user's type that of another
    server.
    """
    return column.pg.element if column.pg.oid < _FIRST_USER_OID else None


def _column_type(
    pg: PgType, typmod: int, options: TypeOptions, registry: TypeRegistry, nesting: int
) -> ColumnType:
    child = None
    if pg.typmod != -1:
        typmod = pg.typmod
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
    arrow = options.arrow_types.formats.get(pg.family, "u")
    return _INTERVALS[options.intervals] if arrow == "tin" else arrow


def _numeric_format(typmod: int) -> str | None:
    """Return the decimal128 of a numeric(p,s), or None if Arrow has no such type."""
    modifier = numeric_modifier(typmod)
    if modifier is None:
        return None
    precision, scale = modifier
    digits = max(precision - min(scale, 0), scale)
    return f"d:{digits},{max(scale, 0)}" if 1 <= digits <= 38 and precision else None


def numeric_modifier(typmod: int) -> tuple[int, int] | None:
    """Return precision and scale of a numeric(p,s), or None for one without.

    numerictypmodin packs them above the header's four bytes; the scale has 11 bits and a sign
    (15 on), so numeric(3,-2) holds thousands and numeric(3,5) thousandths.
    """
    if typmod < 4:
        return None
    scale = ((typmod - 4) & 0x7FF ^ 0x400) - 0x400
    return (typmod - 4) >> 16 & 0xFFFF, scale
