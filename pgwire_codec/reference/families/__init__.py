"""Codecs of the type families: one file a family, and one table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pgwire_codec.reference.families import (
    arrays,
    bits,
    datetime,
    floats,
    geometry,
    identifiers,
    integers,
    network,
    numeric,
    ranges,
    strings,
    textsearch,
    uuids,
)
from pgwire_codec.reference.families.family import Family
from pgwire_codec.types import ColumnType

#: Name of a family, as PgType has it, to its codec.
FAMILIES: Final[Mapping[str, Family]] = {
    **integers.FAMILIES,
    **floats.FAMILIES,
    **numeric.FAMILIES,
    **strings.FAMILIES,
    **datetime.FAMILIES,
    **uuids.FAMILIES,
    **bits.FAMILIES,
    **network.FAMILIES,
    **geometry.FAMILIES,
    **textsearch.FAMILIES,
    **identifiers.FAMILIES,
}
#: Name of a container's family to what makes its codec, of a column and the codec of its elements.
CONTAINERS: Final[Mapping[str, Callable[[ColumnType, Family], Family]]] = {
    **arrays.CONTAINERS,
    **ranges.CONTAINERS,
}


def family_of(column: ColumnType) -> Family:
    """Return the codec of a column's values; that of a container has its elements' codec."""
    container = CONTAINERS.get(column.pg.family)
    if container is None:
        return FAMILIES[column.pg.family]
    assert column.child is not None
    return container(column, family_of(column.child))
