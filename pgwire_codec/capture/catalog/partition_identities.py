"""Replica identities of partitions whose changes are sent under the name of a table above them.

A partition sends the old tuples of its own replica identity, in the columns of that table. Only the
catalogs show that this identity lacks columns of the table's key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

_FULL: Final = "f"
_SHOWN: Final = 3  # partitions in a text

#: Names of the columns that identify a row by an identity other than FULL and NOTHING.
_KEY: Final = (
    "(SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i,"
    " unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place), pg_attribute a"
    " WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL"
    " AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END"
    " AND k.place <= i.indnkeyatts AND a.attrelid = c.oid AND a.attnum = k.number)"
)


@dataclass(frozen=True, slots=True)
class _Identity:
    """Replica identity of a table: its kind in pg_class, and the columns of its key."""

    oid: int
    name: str
    kind: str
    key: frozenset[str]
    index: str | None  # that is marked as the identity

    @property
    def is_full(self) -> bool:
        return self.kind == _FULL

    def __str__(self) -> str:
        if self.is_full:
            return "all columns"
        return f"({', '.join(sorted(self.key))})" if self.key else "no columns"


@dataclass(frozen=True, slots=True)
class PartitionIdentity:
    """A partition whose old tuples may lack columns of the key of its root.

    Attributes
    ----------
    text : str
        Description of both.
    remedy : tuple of str
        SQL that gives it the root's replica identity.
    """

    text: str
    remedy: tuple[str, ...]


def lesser_identities(cursor: Any, publications: Sequence[str]) -> Iterator[PartitionIdentity]:
    """Yield the partitions whose replica identity lacks columns of their root's.

    Only publications with updates or deletes count. An identity with more columns is not found:
    its old tuples have the root's key.
    """
    if cursor.connection.server_version < 130000:  # no partition is sent under another name
        return
    cursor.execute(
        "SELECT DISTINCT g.relid FROM pg_publication p,"
        " LATERAL pg_get_publication_tables(p.pubname) g"
        " JOIN pg_class c ON c.oid = g.relid AND c.relkind = 'p'"
        " WHERE p.pubname = ANY(%s) AND (pubupdate OR pubdelete) ORDER BY g.relid",
        (list(publications),),
    )
    roots = [oid for (oid,) in cursor.fetchall()]
    identities = _identities(cursor, roots)
    cursor.execute(
        "SELECT root, t.relid::oid FROM unnest(%s::oid[]) root, LATERAL pg_partition_tree(root) t"
        " JOIN pg_class c ON c.oid = t.relid AND c.relkind = 'r' ORDER BY root, t.relid::text",
        (roots,),
    )
    pairs = cursor.fetchall()
    leaves = _identities(cursor, [leaf for _, leaf in pairs])
    for root_oid, leaf_oid in pairs:
        root, leaf = identities[root_oid], leaves[leaf_oid]
        if not _includes(leaf, root):
            yield PartitionIdentity(
                f"partition {leaf.name} sends {leaf} of its old rows, and {root.name}, under "
                f"whose name it is published, identifies rows by {root}: changes of its rows "
                "cannot be applied by that key",
                tuple(_commands(cursor, leaf, root)),
            )


def lesser_text(lesser: Sequence[PartitionIdentity]) -> str:
    """Return the text on some partitions of :func:`lesser_identities`."""
    more = len(lesser) - _SHOWN
    texts = [each.text for each in lesser[:_SHOWN]]
    return "; ".join([*texts, *([f"and {more:,} more"] if more > 0 else [])])


def partition_notes(cursor: Any, publications: Sequence[str]) -> list[str]:
    """Return the note of a capture on partitions of its publications, or none."""
    if lesser := list(lesser_identities(cursor, publications)):
        return [f"{lesser_text(lesser)}. `pgwire-codec check` has the SQL that mends it."]
    return []


def _includes(leaf: _Identity, root: _Identity) -> bool:
    """Return whether a leaf's old tuples are enough to find the row by the root's identity."""
    if leaf.is_full or not leaf.key:
        return True  # without any, the server refuses updates: that is another finding
    return bool(root.key) and not root.is_full and root.key <= leaf.key


def _identities(cursor: Any, oids: Sequence[int]) -> dict[int, _Identity]:
    cursor.execute(
        "SELECT c.oid, format('%%I.%%I', n.nspname, c.relname), c.relreplident::text,"
        f" coalesce({_KEY}, '{{}}'), (SELECT i.indexrelid::regclass::text FROM pg_index i"
        "  WHERE i.indrelid = c.oid AND i.indisreplident)"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s::oid[])",
        (list(oids),),
    )
    return {
        oid: _Identity(oid, name, kind, frozenset(key), index)
        for oid, name, kind, key, index in cursor.fetchall()
    }


def _commands(cursor: Any, leaf: _Identity, root: _Identity) -> Iterator[str]:
    """Yield the SQL that gives a leaf the root's identity, and the root one if it has none."""
    if root.is_full or not root.key:
        if not root.is_full:
            yield f"ALTER TABLE {root.name} REPLICA IDENTITY FULL; -- or add a primary key"
        yield f"ALTER TABLE {leaf.name} REPLICA IDENTITY FULL;"
    elif root.kind == "d":
        yield f"ALTER TABLE {leaf.name} REPLICA IDENTITY DEFAULT;"
    else:
        yield from _index_commands(cursor, leaf, root)


def _index_commands(cursor: Any, leaf: _Identity, root: _Identity) -> Iterator[str]:
    """Yield the SQL that makes a leaf's part of the root's index its identity."""
    cursor.execute(
        "SELECT quote_ident(c.relname) FROM pg_partition_tree(%s::regclass) t"
        " JOIN pg_index i ON i.indexrelid = t.relid AND i.indrelid = %s"
        " JOIN pg_class c ON c.oid = t.relid",
        (root.index, leaf.oid),
    )
    for (index,) in cursor.fetchall():
        yield f"ALTER TABLE {leaf.name} REPLICA IDENTITY USING INDEX {index};"
