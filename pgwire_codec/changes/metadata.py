"""Names of the metadata columns, which follow a table's columns in a batch of changes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import takewhile
from typing import Final

#: The metadata column that identifies a table, whatever its name was. Only Spark has it.
RELATION_OID: Final = "_relation_oid"

#: The metadata columns of changes in their order, with their formats in the Arrow C data interface.
#: ``_before``, ``_invalid`` and ``_relation_oid`` depend on options. ``_unchanged`` and
#: ``_invalid`` are lists of strings, and the fields of ``_before`` are columns of the table.
METADATA_FORMATS: Final = {
    "_op": "u",
    "_xid": "l",
    "_lsn": "l",
    "_commit_lsn": "l",
    "_commit_time": "tsu:UTC",
    "_seq": "l",
    "_origin": "u",
    "_unchanged": "+l",
    "_before": "+s",
    "_invalid": "+l",
    RELATION_OID: "l",
}

#: Their names.
METADATA_COLUMNS: Final = tuple(METADATA_FORMATS)


def free_name(name: str, taken: Container[str]) -> str:
    """Return the name of a metadata column beside columns that have the names ``taken``.

    The name gets further underscores until no other column has it.
    """
    while name in taken:
        name = f"_{name}"
    return name


def metadata_names(columns: Sequence[str]) -> dict[str, str]:
    """Return the metadata columns among some columns: the actual names, by the usual names.

    Of several names that differ in underscores only, the last column is the metadata column: the
    table's columns precede it.
    """
    places = {name: place for place, name in enumerate(columns)}
    found = {}
    for name in METADATA_COLUMNS:
        longer = (f"{'_' * count}{name}" for count in range(len(places)))
        if possible := list(takewhile(places.__contains__, longer)):
            found[name] = max(possible, key=places.__getitem__)
    return found
