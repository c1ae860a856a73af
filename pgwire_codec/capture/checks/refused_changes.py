"""Tables whose UPDATE and DELETE the server refuses because of how they are published.

The rules are those of ``RelationBuildPublicationDesc`` in PostgreSQL's ``relcache.c``. Tables
without any replica identity are another finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec.capture.catalog.partition_identities import KEY_COLUMNS
from pgwire_codec.capture.checks.finding import Finding, error, listed
from pgwire_codec.protocol.quoting import quote_identifier

_OPTION: Final = "publish_generated_columns = stored"

_PUBLISHED: Final = (
    "SELECT p.oid, p.pubname::text, g.relid, coalesce(to_jsonb(p)->>'pubgencols', 'n')"
    " FROM pg_publication p, LATERAL pg_get_publication_tables(p.pubname) g"
    " WHERE p.pubname = ANY(%s) AND (p.pubupdate OR p.pubdelete)"
)
_ALL_TABLES: Final = (
    "SELECT NULL::oid, NULL::text, c.oid, 'n' FROM pg_class c WHERE c.relkind = 'r'"
    " AND c.relpersistence = 'p' AND pg_relation_is_publishable(c.oid) AND %s = '{}'"
)
_ENTRY: Final = (
    " FROM pg_publication_rel r WHERE r.prpubid = t.publication AND r.prrelid = t.published_as"
)
_LIST: Final = (
    "(SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a"
    " WHERE a.attrelid = t.published_as AND a.attnum = ANY((SELECT r.prattrs::int2[]"
    + _ENTRY
    + ")::int2[]))"
)
#: The numbers of the columns are only in the condition's tree: dependencies include the list's.
_FILTERED: Final = (
    "(SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a"
    " WHERE a.attrelid = t.published_as AND a.attnum IN (SELECT v[1]::int"
    " FROM regexp_matches((SELECT r.prqual::text" + _ENTRY + "), ':varattno (-?[0-9]+)', 'g') v))"
)
_FILTER: Final = "(SELECT pg_get_expr(r.prqual, r.prrelid)" + _ENTRY + ")"


@dataclass(frozen=True, slots=True)
class PublishedLeaf:
    """A table with rows, as one publication publishes it.

    Attributes
    ----------
    publication : str or None
        None for a publication for all tables that is still to be created.
    published_as : str
        Table of the publication: itself, or a partitioned one above it.
    name : str
    identity : str
        ``pg_class.relreplident``.
    key : tuple of str
        Columns of the index that is the replica identity.
    primary_key : tuple of str
    generated : dict of str to str
        Generated columns, with ``s`` (stored) or ``v`` (virtual).
    publishes_generated : bool
    columns : tuple of str or None
        Column list of the publication.
    filtered : tuple of str
        Columns of the publication's WHERE condition.
    condition : str or None
    """

    publication: str | None
    published_as: str
    name: str
    identity: str
    key: tuple[str, ...]
    primary_key: tuple[str, ...]
    generated: dict[str, str]
    publishes_generated: bool
    columns: tuple[str, ...] | None
    filtered: tuple[str, ...]
    condition: str | None

    @property
    def is_full(self) -> bool:
        return self.identity == "f"

    def missing_in_list(self) -> set[str]:
        """Return the columns that the column list has to have, and has not."""
        return set() if self.columns is None or self.is_full else {*self.key} - {*self.columns}

    def is_list_refused(self) -> bool:
        """Return whether the column list does not cover the replica identity."""
        return (self.columns is not None and self.is_full) or bool(self.missing_in_list())

    def foreign_in_filter(self) -> set[str]:
        """Return the columns of the condition that the replica identity has not."""
        return set() if self.is_full or not self.key else {*self.filtered} - {*self.key}

    def unpublished_generated(self) -> list[str]:
        """Return the generated columns of the replica identity that are not published."""
        columns = self.generated if self.is_full else {*self.key} & {*self.generated}
        if self.columns is not None and not self.is_full:
            return []
        return sorted(
            name for name in columns if self.generated[name] == "v" or not self.publishes_generated
        )


def check_refused(cursor: Any, publications: Sequence[str]) -> Iterator[Finding]:
    """Yield findings for the tables of some publications, or for all tables without any."""
    leaves = _read(cursor, publications)
    yield from refusals(leaves, cursor.connection.server_version)


def refusals(leaves: Sequence[PublishedLeaf], server_version: int) -> Iterator[Finding]:
    """Yield a finding for each reason of the server's."""
    if lists := [leaf for leaf in leaves if leaf.is_list_refused()]:
        yield error(
            "column_list_identity",
            f"UPDATE and DELETE fail on {_names(lists)}: the column list of the publication lacks "
            "columns of the replica identity, and REPLICA IDENTITY FULL allows no column list",
            *dict.fromkeys(map(_list_command, lists)),
        )
    if filters := [leaf for leaf in leaves if leaf.foreign_in_filter()]:
        yield error(
            "row_filter_identity",
            f"UPDATE and DELETE fail on {_names(filters)}: the WHERE condition of the publication "
            "has columns that are not in the replica identity",
            *dict.fromkeys(map(_filter_command, filters)),
        )
    # Earlier servers accept them, and do not send these columns.
    generated = [
        leaf for leaf in leaves if server_version >= 180000 and leaf.unpublished_generated()
    ]
    if generated:
        columns = listed(
            f"{leaf.name} ({', '.join(leaf.unpublished_generated())})" for leaf in generated
        )
        yield error(
            "generated_identity",
            f"UPDATE and DELETE fail on {columns} once published: the replica identity has "
            "generated columns that are not published",
            *dict.fromkeys(map(_generated_command, generated)),
        )


def _names(leaves: Sequence[PublishedLeaf]) -> str:
    return listed(dict.fromkeys(leaf.name for leaf in leaves))


def _list_command(leaf: PublishedLeaf) -> str:
    assert leaf.columns is not None
    if leaf.is_full:
        if leaf.primary_key and {*leaf.primary_key} <= {*leaf.columns}:
            return f"ALTER TABLE {leaf.name} REPLICA IDENTITY DEFAULT;"
        return _entry_command(leaf, None)
    return _entry_command(leaf, (*leaf.columns, *sorted(leaf.missing_in_list())))


def _entry_command(leaf: PublishedLeaf, columns: tuple[str, ...] | None) -> str:
    """Return the SQL that publishes a table with other columns."""
    assert leaf.publication is not None, "only a publication has column lists"
    alter = f"ALTER PUBLICATION {quote_identifier(leaf.publication)}"
    names = "" if columns is None else f" ({', '.join(map(quote_identifier, columns))})"
    where = "" if leaf.condition is None else f" WHERE ({leaf.condition})"
    table = leaf.published_as
    return f"BEGIN; {alter} DROP TABLE {table}; {alter} ADD TABLE {table}{names}{where}; COMMIT;"


def _filter_command(leaf: PublishedLeaf) -> str:
    if leaf.columns is None and not leaf.generated:
        return f"ALTER TABLE {leaf.name} REPLICA IDENTITY FULL;"
    columns = ", ".join(map(quote_identifier, (*leaf.key, *sorted(leaf.foreign_in_filter()))))
    return (
        f"Publish {leaf.name} without WHERE, or make a unique index on its columns {columns}, "
        "which have to be NOT NULL, the replica identity."
    )


def _generated_command(leaf: PublishedLeaf) -> str:
    is_virtual = any(leaf.generated[name] == "v" for name in leaf.unpublished_generated())
    if leaf.publication is not None and not is_virtual:
        return f"ALTER PUBLICATION {quote_identifier(leaf.publication)} SET ({_OPTION});"
    alternative = "" if is_virtual else f" -- or create the publication WITH ({_OPTION})"
    if leaf.primary_key and leaf.identity != "d" and not {*leaf.primary_key} & {*leaf.generated}:
        return f"ALTER TABLE {leaf.name} REPLICA IDENTITY DEFAULT;{alternative}"
    return (
        f"Make a primary key, or a unique index, of {leaf.name} without generated columns its "
        f"replica identity.{alternative}"
    )


def _read(cursor: Any, publications: Sequence[str]) -> list[PublishedLeaf]:
    # Column lists and row filters came with PostgreSQL 15.
    details = (
        f"{_LIST}, coalesce({_FILTERED}, '{{}}'), {_FILTER}"
        if cursor.connection.server_version >= 150000
        else "NULL::text[], '{}'::text[], NULL::text"
    )
    cursor.execute(
        "WITH RECURSIVE tree(publication, pubname, published_as, generated, oid) AS ("
        "SELECT f.a, f.b, f.c, f.d, f.c FROM ("
        + (_PUBLISHED if publications else _ALL_TABLES)
        + ") f(a, b, c, d) UNION SELECT t.publication, t.pubname, t.published_as, t.generated,"
        " i.inhrelid FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind = 'p'"
        " JOIN pg_inherits i ON i.inhparent = c.oid)"
        " SELECT t.pubname, format('%%I.%%I', m.nspname, d.relname),"
        " format('%%I.%%I', n.nspname, c.relname), c.relreplident::text,"
        f" coalesce({KEY_COLUMNS}, '{{}}'),"
        " coalesce((SELECT array_agg(a.attname::text) FROM pg_index i, pg_attribute a"
        "  WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND a.attrelid = c.oid"
        "  AND a.attnum = ANY(i.indkey::int2[])), '{}'),"
        # Generated columns came with PostgreSQL 12.
        " coalesce((SELECT jsonb_object_agg(a.attname, to_jsonb(a)->>'attgenerated')"
        "  FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        "  AND coalesce(to_jsonb(a)->>'attgenerated', '') <> ''), '{}'),"
        f" t.generated = 's', {details}"
        " FROM tree t JOIN pg_class c ON c.oid = t.oid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_class d ON d.oid = t.published_as JOIN pg_namespace m ON m.oid = d.relnamespace"
        " WHERE c.relkind = 'r' ORDER BY n.nspname, c.relname, t.pubname",
        (list(publications),),
    )
    return [
        PublishedLeaf(
            publication, published_as, name, identity, tuple(key), tuple(primary_key), generated,
            publishes_generated, None if columns is None else tuple(columns), tuple(filtered),
            condition,
        )
        for (
            publication, published_as, name, identity, key, primary_key, generated,
            publishes_generated, columns, filtered, condition,
        ) in cursor.fetchall()
    ]  # fmt: skip
