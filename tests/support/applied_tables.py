"""Apply decoded changes to tables in memory, as a subscriber would, to compare with the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pgwire_codec import ChangeBatch, Relation


@dataclass
class Table:
    """Rows as column name to value. A row has the columns of the Relation it was last sent under:
    what an ALTER TABLE did to it is not in the stream."""

    relation: Relation
    rows: list[dict[str, Any]] = field(default_factory=list)

    def find(self, identity: dict[str, Any]) -> int:
        for number, row in enumerate(self.rows):
            if all(row.get(name) == value for name, value in identity.items()):
                return number
        raise AssertionError(f"{self.relation.name} has no row {identity}")


def apply(batches: Iterable[ChangeBatch], tables: dict[int, Table]) -> None:
    """Apply the changes to the tables, by OID, in commit order."""
    changes = []
    for batch in batches:
        for row in batch.to_arrow().to_pylist():
            changes.append(((row["_commit_lsn"], row["_seq"]), batch.relation, row))
    for _, relation, row in sorted(changes, key=lambda change: change[0]):
        table = tables.setdefault(relation.oid, Table(relation))
        table.relation = relation
        _apply(table, row)


def _apply(table: Table, row: dict[str, Any]) -> None:
    new = {column.name: row[column.name] for column in table.relation.columns}
    if row["_op"] == "T":
        table.rows.clear()
        return
    if row["_op"] == "I":
        table.rows.append(new)
        return
    key = [column.name for column in table.relation.columns if column.flags & 1]
    place = table.find({name: (row["_before"] or new)[name] for name in key})
    old = table.rows.pop(place)
    if row["_op"] == "U":
        unchanged = row["_unchanged"] or []
        new.update({name: old[name] for name in unchanged})
        table.rows.append(new)
