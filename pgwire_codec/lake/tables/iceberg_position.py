"""The position in Iceberg tables: in the summaries of snapshots, and in the table's properties.

The summary of each snapshot of this package has it. That alone does not last: Iceberg's maintenance
writes new snapshots and lets older ones expire. So the table's properties have it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgwire_codec.errors import TableError
from pgwire_codec.lake.position import Position
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn


class PositionProperties:
    """Properties of snapshots and tables that have the position in a stream."""

    def __init__(self, app_id: str) -> None:
        self._lsn = f"{app_id}.commit_lsn"
        self._relation = f"{app_id}.relation_oid"
        self._sequence = f"{app_id}.sequence_number"
        self._identity = f"{app_id}.commit_id"
        self._counts = f"{app_id}.rows"

    def of_snapshot(self, position: Position, identity: str) -> dict[str, str]:
        """Return the properties of a snapshot, which has an identity to be recognized by."""
        return self._of(position) | {self._identity: identity}

    def of_table(self, position: Position, sequence: int) -> dict[str, str]:
        """Return the properties of a table whose last position has the sequence number."""
        return self._of(position) | {self._sequence: str(sequence)}

    def count(self, name: str) -> str:
        """Return the property of a snapshot that has a number of rows."""
        return f"{self._counts}.{name}"

    def read(self, name: str, metadata: Any) -> Position:
        """Return the position of a table.

        The newest snapshot with one decides, so that a table that was rolled back gets the later
        changes again. If that snapshot is expired, the table's properties decide.

        Raises ``TableError`` if the table was rolled back and its position is expired.
        """
        snapshot, properties = metadata.currentSnapshot(), metadata.properties()
        if snapshot is None or properties.get(self._lsn) is None:
            return Position()
        sequence = snapshot.sequenceNumber()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get(self._lsn) is not None:
                return self._position(summary)
            parent = snapshot.parentId()
            if parent is None:
                return Position()
            snapshot = metadata.snapshot(parent)
        if sequence < int(properties.get(self._sequence)):
            raise TableError(
                f"{name} was rolled back to a snapshot without a commit LSN, of which the earlier "
                "snapshots are expired: it is unknown which changes it has",
                hint="Roll it forward again. Or remove it, and have it written again.",
            )
        return self._position(properties)

    def is_in(self, metadata: Any, identity: str, before: int | None) -> bool:
        """Return whether a snapshot with an identity was added after another snapshot."""
        snapshot = metadata.currentSnapshot()
        while snapshot is not None and snapshot.snapshotId() != before:
            if snapshot.summary().get(self._identity) == identity:
                return True
            parent = snapshot.parentId()
            snapshot = None if parent is None else metadata.snapshot(parent)
        return False

    def _of(self, position: Position) -> dict[str, str]:
        properties = {}
        if position.commit_lsn is not None:
            properties[self._lsn] = format_lsn(position.commit_lsn)
        if position.relation is not None:
            properties[self._relation] = str(position.relation)
        return properties

    def _position(self, properties: Mapping[str, str]) -> Position:
        relation = properties.get(self._relation)
        return Position(
            parse_lsn(properties[self._lsn]), None if relation is None else int(relation)
        )
