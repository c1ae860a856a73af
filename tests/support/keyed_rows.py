"""A table that changes are applied to in commit order, as by a subscriber."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_Key = tuple[Any, ...]


@dataclass(slots=True)
class AppliedTable:
    """Rows by key after the changes, and the number of changes of each kind."""

    key: tuple[str, ...]
    rows: dict[_Key, dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys("IUDT", 0))

    def apply(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Apply changes with the metadata columns of ``ChangeBatch.to_arrow``, in any order."""
        for change in sorted(changes, key=lambda each: (each["_commit_lsn"], each["_seq"])):
            self._apply(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        operation = change["_op"]
        self.counts[operation] += 1
        if operation == "T":
            self.rows.clear()
            return
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        # Without an old tuple the key did not change.
        before = change["_before"] or row
        old = {} if operation == "I" else self.rows.pop(tuple(before[name] for name in self.key))
        if operation != "D":
            row |= {name: old[name] for name in change["_unchanged"] or ()}
            self.rows[tuple(row[name] for name in self.key)] = row


def differences(
    applied: AppliedTable, server: Iterable[Mapping[str, Any]]
) -> list[tuple[_Key, Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """Return the rows that differ: key, decoded row, the server's row."""
    theirs = {tuple(row[name] for name in applied.key): row for row in server}
    return [
        (key, applied.rows.get(key), theirs.get(key))
        for key in applied.rows.keys() | theirs.keys()
        if applied.rows.get(key) != theirs.get(key)
    ]
