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
KEY_COLUMNS: Final = (
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
    roots = _roots(cursor, publications)
    identities = _identities(cursor, roots)
    cursor.execute(
        "WITH RECURSIVE tree(root, oid) AS (SELECT o, o FROM unnest(%s::oid[]) o UNION ALL"
        " SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)"
        " SELECT tree.root, c.oid FROM tree JOIN pg_class c ON c.oid = tree.oid"
        " WHERE c.relkind = 'r' ORDER BY tree.root, c.oid::regclass::text",
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


def _roots(cursor: Any, publications: Sequence[str]) -> list[int]:
    """Return the OIDs of the tables under whose names changes of partitions are sent.

    The server's functions would wait for a transaction that has locked one of the tables.
    """
    by_schema = ""
    if cursor.connection.server_version >= 150000:
        by_schema = (
            " OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid"
            " AND n.pnnspid = c.relnamespace)"
        )
    cursor.execute(
        "WITH published(oid) AS (SELECT DISTINCT c.oid FROM pg_publication p"
        " JOIN pg_class c ON c.relkind = 'p', LATERAL (SELECT EXISTS (SELECT"
        "  FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)) named(it)"
        " WHERE p.pubname = ANY(%s) AND p.pubviaroot AND (p.pubupdate OR p.pubdelete)"
        # Of a publication for all tables, PostgreSQL 19 lists those that it omits.
        f" AND CASE WHEN p.puballtables THEN NOT named.it ELSE named.it{by_schema} END)"
        " SELECT oid FROM published WHERE NOT EXISTS (SELECT FROM published other"
        "  JOIN pg_partition_ancestors(published.oid) a ON a = other.oid"
        "  WHERE other.oid <> published.oid) ORDER BY oid",
        (list(publications),),
    )
    return [oid for (oid,) in cursor.fetchall()]


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
        f" coalesce({KEY_COLUMNS}, '{{}}')"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s::oid[])",
        (list(oids),),
    )
    return {
        oid: _Identity(oid, name, kind, frozenset(key))
        for oid, name, kind, key in cursor.fetchall()
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
        "WITH RECURSIVE tree(oid) AS (SELECT indexrelid FROM pg_index WHERE indrelid = %s"
        "  AND indisreplident UNION ALL"
        " SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)"
        " SELECT quote_ident(c.relname) FROM tree JOIN pg_index i ON i.indexrelid = tree.oid"
        " JOIN pg_class c ON c.oid = tree.oid WHERE i.indrelid = %s",
        (root.oid, leaf.oid),
    )
    for (index,) in cursor.fetchall():
        yield f"ALTER TABLE {leaf.name} REPLICA IDENTITY USING INDEX {index};"
