"""PostgreSQL's types by OID: the built-in ones, and those that a program registers.

Built-in OIDs are the same in every server. User-defined types get theirs when they are created:
the stream's `Type` messages declare some of them, and :func:`register_type` the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pgwire_codec.errors import OptionError
from pgwire_codec.types.builtin import BUILTIN


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

    Attributes
    ----------
    registrations : int
        How many types were registered. When it changes, what was looked up before may have changed.
    """

    def __init__(self) -> None:
        self.registrations = 0
        self._by_oid: dict[int, PgType] = dict(_BUILTIN_BY_OID)

    def lookup(self, oid: int) -> PgType | None:
        """Return the type of an OID, or None."""
        return self._by_oid.get(oid)

    def lookup_name(self, name: str) -> PgType | None:
        """Return a type of pg_catalog by its name, or None.

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
        """Register a user-defined type; see :func:`register_type`."""
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
        self.registrations += 1
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
default_registry: Final = TypeRegistry()


def register_type(
    oid: int,
    name: str,
    *,
    like: str | int | None = None,
    element: str | int | None = None,
    registry: TypeRegistry | None = None,
) -> PgType:
    """Register a user-defined type under its OID.

    The stream does not describe enums, composite types and arrays of user types. Unless they are
    registered, their text form is decoded as a string and their binary form as bytes.

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
        Where to register; the process-wide :data:`pgwire_codec.types.default_registry` by default.

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
    where = default_registry if registry is None else registry
    return where.register(oid, name, like=like, element=element)
