"""StreamRecord: the applied part of a stream, in the commits of an Iceberg table.

A snapshot has it in its summary. That alone does not last: Iceberg's maintenance writes new
snapshots and lets older ones expire. So the table's properties have it, too, and both become valid
in one commit: rows are written into a *staged* snapshot (``write.wap.enabled``), which no reader
sees, and one Iceberg transaction makes it the current snapshot and sets the properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec.errors import TableError
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.spark.sinks.target import Applied, Batch

#: Property of tables whose writers can stage snapshots.
STAGING: Final = {"write.wap.enabled": "true"}

_STAGED_AS: Final = "wap.id"

_MAIN: Final = "main"

_ATTEMPTS: Final = 4

#: Errors of Iceberg after which nothing is lost if a batch is merged again: another writer has
#: committed, or the answer of the catalog was lost.
_CONFLICTS: Final = re.compile(
    r"org\.apache\.iceberg\.exceptions\."
    # Not those of columns with the name of one of Iceberg's.
    r"(ValidationException(?!: Table column names)|CommitFailedException"
    r"|CommitStateUnknownException)"
)


class Conflict(Exception):
    """Another writer has committed meanwhile."""


def is_conflict(error: Exception) -> bool:
    """Return whether an error is a conflict with another writer, or may be one."""
    return isinstance(error, Conflict) or _CONFLICTS.search(str(error)) is not None


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """Names under which a table has the applied part of a stream."""

    app_id: str

    def of(self, batch: Batch) -> dict[str, str]:
        """Return the properties of a snapshot after a batch."""
        found = {self._lsn: format_lsn(batch.commit_lsn)}
        if batch.commit_time is not None:
            found[f"{self.app_id}.commit_time"] = batch.commit_time.isoformat()
        if batch.relation is not None:
            found[self._relation] = str(batch.relation)
        return found

    def of_new_table(self, batch: Batch) -> dict[str, str]:
        """Return the properties of a table that begins with a batch."""
        return self.of(batch) | {self._sequence: "0"}

    def read(self, table: Any) -> Applied:
        """Return the applied part of the stream that a table has.

        The newest snapshot with a record decides, so that a table that was rolled back gets the
        later changes again. If that snapshot is expired, the table's properties decide.

        Raises ``TableError`` if the table was rolled back and its record is expired.
        """
        snapshot = table.currentSnapshot()
        if snapshot is None:
            return Applied()
        sequence = snapshot.sequenceNumber()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get(self._lsn) is not None:
                return self._applied(summary)
            parent = snapshot.parentId()
            if parent is None:
                return Applied()
            snapshot = table.snapshot(parent)
        properties = table.properties()
        if properties.get(self._lsn) is None:
            return Applied()
        if sequence < int(properties.get(self._sequence)):
            raise TableError(
                f"{table.name()} was rolled back to a snapshot without a commit LSN, of which the "
                "earlier snapshots are expired: it is unknown which changes it has",
                hint="Roll it forward again. Or remove it, and have it written again.",
            )
        return self._applied(properties)

    def publish(
        self, table: Any, staged: Any, batch: Batch, before: Applied, properties: Mapping[str, str]
    ) -> None:
        """Make a staged snapshot the current one, and record its batch in the table's properties.

        Raises ``Conflict`` if the table has other rows than those that the snapshot is based on,
        or does not have the applied part ``before``.
        """
        recorded = {
            **properties,
            **self.of(batch),
            self._sequence: str(staged.sequenceNumber()),
        }
        for attempts in reversed(range(_ATTEMPTS)):
            table.refresh()
            transaction = table.newTransaction()
            current = transaction.table().currentSnapshot()
            if current is not None and current.snapshotId() == staged.snapshotId():
                return  # the answer to the attempt before was lost
            if (current and current.snapshotId()) != staged.parentId():
                raise Conflict(f"{table.name()} has another snapshot")
            if self.read(transaction.table()) != before:
                raise Conflict(f"{table.name()} has other changes")
            references = transaction.manageSnapshots()
            move = references.createBranch if current is None else references.replaceBranch
            move(_MAIN, staged.snapshotId()).commit()
            update = transaction.updateProperties()
            for name in (self._relation, f"{self.app_id}.commit_time"):
                if name not in recorded:
                    update.remove(name)
            for name, value in recorded.items():
                update.set(name, value)
            update.commit()
            try:
                transaction.commitTransaction()
            except Exception as error:
                if not attempts or not is_conflict(error):
                    raise
            else:
                return

    def _applied(self, properties: Any) -> Applied:
        relation = properties.get(self._relation)
        return Applied(
            parse_lsn(properties.get(self._lsn)), None if relation is None else int(relation)
        )

    @property
    def _lsn(self) -> str:
        return f"{self.app_id}.commit_lsn"

    @property
    def _relation(self) -> str:
        return f"{self.app_id}.relation_oid"

    @property
    def _sequence(self) -> str:
        return f"{self.app_id}.sequence_number"


def staged_snapshot(table: Any, name: str) -> Any:
    """Return the snapshot that was staged under a name."""
    table.refresh()
    snapshots = table.snapshots()
    for place in reversed(range(snapshots.size())):
        snapshot = snapshots.get(place)
        if snapshot.summary().get(_STAGED_AS) == name:
            return snapshot
    raise Conflict(f"{table.name()} has no snapshot {name}")  # expired at once, by another process
