"""Names of the metadata columns, which follow a table's columns in a batch of changes."""

from __future__ import annotations

from collections.abc import Container, Sequence
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

    They follow the table's columns, and ``_op`` is the first of them. So a column that precedes the
    last one of that name, whatever underscores it has in front, is the table's.
    """
    found: dict[str, str] = {}
    for name in reversed(columns):
        usual = f"_{name.lstrip('_')}" if name.startswith("_") else name
        if usual in METADATA_FORMATS:
            found.setdefault(usual, name)
        if usual == "_op":
            break
    return {name: found[name] for name in METADATA_FORMATS if name in found}
