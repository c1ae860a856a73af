"""Relations of a log that are tables of their own, and not only partitions of published roots.

A server that publishes a partition as its root sends the Relation of the partition, too, before the
first change, which names the root. An empty table is in the log only if a snapshot describes it.
"""

from __future__ import annotations

from collections.abc import Collection

from pgwire_codec.log.reader import Log


def relations_with_rows(log: Log, oids: Collection[int]) -> set[int]:
    """Return those of some relations that a log has changes of, or describes in its snapshot.

    Changes that do not decode can be those of any relation, and changes that were pruned are not
    known.
    """
    wanted, found = set(oids), set[int]()
    for number in range(len(log)):
        if not wanted - found:
            return found
        segment = log.segment(number)
        if not segment.header.snapshot:
            break
        found |= wanted & {version.relation.oid for version in segment.versions}
    for changed in log.plan(relation_oid=wanted - found).changed if wanted - found else ():
        found |= wanted if changed is None else wanted & changed
    return found
