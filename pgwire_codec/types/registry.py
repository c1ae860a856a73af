"""PostgreSQL's types by OID: the built-in ones, and those that a program registers.

Built-in OIDs are the same in every server. User-defined types get theirs when they are created:
the stream's `Type` messages declare some of them, and :func:`register_type` the others. A log has
the facts about its types that the capture has read from the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from pgwire_codec.errors import OptionError
from pgwire_codec.types.builtin import BUILTIN
from pgwire_codec.types.user_types import UserType

#: A domain of an array of domains of … that is deeper than this is not a type of any server.
_MAX_NESTING: Final = 16


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
    typmod : int
        Type modifier of a domain's values, -1 for none: a column of a domain has none itself.
    """

    oid: int
    name: str
    family: str
    element: int = 0
    delimiter: str = ","
    subtype: int = 0
    typmod: int = -1


class TypeRegistry:
    """OID to :class:`PgType`: the built-in types and those that a program registered.

    Registries pickle with what was registered in them.

    Parameters
    ----------
    types : iterable of UserType, optional
        Types of a database, which are found if neither registry has another type of their OID.
    parent : TypeRegistry, optional
        Registry whose types are found, too.
    """

    def __init__(
        self, types: Iterable[UserType] = (), *, parent: TypeRegistry | None = None
    ) -> None:
        self._registrations = 0
        self._registered: dict[int, PgType] = {}
        self._types = {each.oid: each for each in types}
        self._parent = parent

    @property
    def registrations(self) -> int:
        """How many types were registered. When it changes, earlier look-ups may be out of date."""
        before = 0 if self._parent is None else self._parent.registrations
        return before + self._registrations

    def lookup(self, oid: int) -> PgType | None:
        """Return the type of an OID, or None."""
        return self._lookup(oid, _MAX_NESTING)

    def _lookup(self, oid: int, nesting: int) -> PgType | None:
        found = _BUILTIN_BY_OID.get(oid) or self._registered.get(oid)
        if found is None and self._parent is not None:
            found = self._parent.lookup(oid)
        if found is None and oid in self._types and nesting:
            return self._type_of(self._types[oid], nesting - 1)
        return found

    def _type_of(self, user: UserType, nesting: int) -> PgType | None:
        """Return a type of the database; None if it is not known how its values are written."""
        if user.kind == "enum" or not user.has_binary_form:
            return PgType(user.oid, user.name, "text")
        part = self._lookup(user.part, nesting)
        if part is None:
            return None
        if user.kind == "domain":
            return part if user.typmod == -1 else replace(part, typmod=user.typmod)
        if user.kind == "base":
            return replace(part, oid=user.oid, name=user.name)
        if user.kind == "array":
            delimiter = user.delimiter
            return PgType(user.oid, user.name, "array", element=user.part, delimiter=delimiter)
        return PgType(user.oid, user.name, user.kind, subtype=user.part)

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
        self._registered[oid] = registered
        self._registrations += 1
        return registered

    def _known(self, which: str | int) -> PgType:
        if isinstance(which, int):
            found = self.lookup(which)
        else:
            found = self.lookup_name(which) or next(
                (known for known in self._registered.values() if known.name == which), None
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


@lru_cache(maxsize=64)
def registry_with(types: tuple[UserType, ...], parent: TypeRegistry) -> TypeRegistry:
    """Return a registry that has these types, too: the same one for the same arguments.

    Decoders with the same registry share their plans.
    """
    return TypeRegistry(types, parent=parent) if types else parent


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
