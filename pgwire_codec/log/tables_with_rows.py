"""Relations of a log that are tables of their own, and not only partitions of published roots.

A server that publishes a partition as its root sends the Relation of the partition, too, before the
first change, which names the root. An empty table is in the log only if a snapshot describes it.
"""

from __future__ import annotations

from collections.abc import Collection

from pgwire_codec.log.reader import Log


class TablesWithRows:
    """Finds the relations that a log has changes of, or describes in its snapshot.

    Changes that do not decode can be those of any relation. Changes that were pruned are not known.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._described: set[int] | None = None  # in a snapshot that is complete

    def among(self, oids: Collection[int]) -> set[int]:
        """Return those of some relations, by OID, as of the last refresh of the log."""
        wanted = set(oids)
        if not wanted:
            return wanted
        found = wanted & self._in_snapshot()
        for changed in self._log.plan(relation_oid=wanted - found).changed:
            found |= wanted if changed is None else wanted & changed
        return found

    def _in_snapshot(self) -> set[int]:
        if self._described is not None:
            return self._described
        described: set[int] = set()
        for number in range(len(self._log)):
            segment = self._log.segment(number)
            if not segment.header.snapshot:
                self._described = described
                break
            described.update(version.relation.oid for version in segment.versions)
        return described
