"""Columns of a table that cannot be compared, each with the reason."""

from __future__ import annotations

from collections.abc import Collection

#: Reasons, as they follow the name of a column.
MASKED = "it has a mask"
NOT_ON_SERVER = "the server does not have it"
NOT_IN_TARGET = "the target does not have it"


def uncompared_columns(
    logged: Collection[str],
    server: Collection[str],
    target: Collection[str] | None,
    masked: Collection[str],
) -> dict[str, str]:
    """Return the columns that a table has according to the log, and that cannot be compared.

    A column that only the server has is new, and no change has it yet. One that only the target has
    was dropped, or is not one of the table's. ``target`` is None without a target.
    """
    found = {}
    for name in dict.fromkeys([*logged, *server]):
        if name in masked:
            found[name] = MASKED
        elif name not in server:
            found[name] = NOT_ON_SERVER
        elif target is not None and name not in target and name in logged:
            found[name] = NOT_IN_TARGET
    return found
