"""Golden values of all families."""

from typing import Final

from tests.families import (
    test_arrays,
    test_bits,
    test_datetime,
    test_floats,
    test_geometry,
    test_identifiers,
    test_integers,
    test_network,
    test_numeric,
    test_ranges,
    test_strings,
    test_textsearch,
    test_uuids,
)
from tests.support.families import FamilyTests

FAMILIES: Final[tuple[type[FamilyTests], ...]] = (
    test_integers.TestIntegers,
    test_floats.TestFloats,
    test_numeric.TestNumeric,
    test_strings.TestStrings,
    test_datetime.TestDateTime,
    test_uuids.TestUuids,
    test_bits.TestBits,
    test_arrays.TestArrays,
    test_ranges.TestRanges,
    test_network.TestNetwork,
    test_geometry.TestGeometry,
    test_textsearch.TestTextSearch,
    test_identifiers.TestIdentifiers,
)
#: Type, text form, binary form in hex.
GOLDEN: Final[list[tuple[str, str, str]]] = [
    value for family in FAMILIES for value in family.golden
]
