"""Published tables, as pgoutput describes them and as COPY reads them.

The messages follow ``src/backend/replication/logical/proto.c`` (``logicalrep_write_rel``,
``logicalrep_write_typ``) and ``pgoutput.c`` (``send_relation_and_attrs``). The rows and columns of
an initial copy follow ``tablesync.c`` (``fetch_remote_table_info``, ``copy_table``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.catalog.user_types import read_user_types, with_parts
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.messages import Relation, RelationColumn, Type
from pgwire_codec.protocol.quoting import parse_qualified_name, quote_identifier
from pgwire_codec.reference import encode_message

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pgwire_codec.types import UserType

_FIRST_USER_TYPE: Final = 10_000  # FirstGenbkiObjectId: pgoutput sends a Type from here on
#: Number of an index's key columns; the others, INCLUDE's, came with PostgreSQL 11.
_KEY_COLUMNS: Final = "coalesce((to_jsonb(i)->>'indnkeyatts')::int, i.indnatts)"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as its publications publish it.

    Attributes
    ----------
    relation : Relation
        Message that pgoutput sends for it.
    types : tuple of Type
        Messages that pgoutput sends for its columns' types, before the Relation.
    schema : str
        Its schema's name, which the Relation lacks for pg_catalog.
    is_partitioned : bool
        Whether it is published as the root of its partitions.
    row_filters : tuple of str
        SQL conditions, of which a row has to meet one; empty: every row is published.
    sendable : tuple of bool
        For each column, whether its type has a binary form.
    user_types : tuple of UserType
        Facts about its columns' types, and their parts, that are not built in.
    """

    relation: Relation
    types: tuple[Type, ...]
    schema: str
    is_partitioned: bool
    row_filters: tuple[str, ...]
    sendable: tuple[bool, ...]
    user_types: tuple[UserType, ...]

    @property
    def name(self) -> str:
        """Qualified name, quoted for SQL."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.relation.name)}"

    def description(self) -> list[bytes]:
        """Return the messages that pgoutput sends before the table's first change."""
        messages: list[Type | Relation] = [*self.types, self.relation]
        return [encode_message(message) for message in messages]

    def lock_command(self) -> str:
        """Return the LOCK command that prevents the table's alteration, truncation and removal."""
        only = "" if self.is_partitioned else "ONLY "
        return f"LOCK TABLE {only}{self.name} IN ACCESS SHARE MODE"

    def query(self, source: str, conditions: Sequence[str] = (), *, binary: bool) -> str:
        """Return the SELECT that reads the published rows and columns.

        Parameters
        ----------
        source : str
            Item of the FROM clause: the table, or a partition of it.
        conditions : sequence of str
            SQL conditions that a row has to meet, beside the row filters.
        binary : bool
            Whether values are read in their binary form.
        """
        names = [quote_identifier(column.name) for column in self.relation.columns]
        if binary:
            # format() calls the type's output function, as pgoutput does; a cast to text strips
            # the padding of char(n), and IS NULL is true of a row of nulls.
            names = [
                name
                if sendable
                else f"CASE WHEN pg_catalog.num_nulls({name}) = 0"
                f" THEN pg_catalog.format('%s', {name}) END"
                for name, sendable in zip(names, self.sendable, strict=True)
            ]
        published = " OR ".join(f"({row_filter})" for row_filter in self.row_filters)
        where = " AND ".join(f"({each})" for each in (*conditions, published) if each)
        return f"SELECT {', '.join(names)} FROM {source}{where and ' WHERE ' + where}"


@dataclass(slots=True)
class _Published:
    """Columns and rows of one table that the publications publish."""

    columns: frozenset[int] | None  # numbers; None: all but generated ones
    row_filters: set[str | None]

    def includes(self, number: int, is_generated: bool) -> bool:
        """Return whether a column is published."""
        return not is_generated if self.columns is None else number in self.columns


@dataclass(frozen=True, slots=True)
class _Column:
    """A column in the catalog."""

    number: int
    description: RelationColumn
    is_generated: bool
    is_sendable: bool


def published_tables(
    cursor: Any,
    publications: Sequence[str],
    also: Mapping[int, Collection[str]] | None = None,
) -> list[PublishedTable]:
    """Return the tables that the publications publish, the largest first.

    Parameters
    ----------
    cursor
        Of an ordinary connection; its transaction determines the state of the catalogs.
    publications
        Names of publications that exist.
    also
        By OID of a table: names of columns that it has, too, published or not.

    Raises
    ------
    CaptureError
        When two of them publish different columns of the same table, which pgoutput refuses.
    """
    return _tables(cursor, _read_publications(cursor, publications), also)


def named_tables(
    cursor: Any,
    names: Collection[str],
    also: Mapping[int, Collection[str]] | None = None,
) -> list[PublishedTable]:
    """Return existing tables with all rows and all columns that are not generated.

    ``names`` are ``schema.table``, or bare names of tables of pg_catalog. See
    :func:`published_tables`, also for ``also``.
    """
    parsed = [parts for parts in map(parse_qualified_name, names) if parts is not None]
    cursor.execute(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) AS named(schema, name) ON c.relname = named.name"
        " AND n.nspname = coalesce(nullif(named.schema, ''), 'pg_catalog')"
        " WHERE c.relkind IN ('r', 'p')",
        ([schema for schema, _ in parsed], [name for _, name in parsed]),
    )
    return _tables(cursor, {oid: _Published(None, {None}) for (oid,) in cursor.fetchall()}, also)


def _tables(
    cursor: Any, published: Mapping[int, _Published], also: Mapping[int, Collection[str]] | None
) -> list[PublishedTable]:
    oids = list(published)
    also = also or {}
    cursor.execute(
        "SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relreplident::text"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s::oid[]) ORDER BY c.relpages DESC, c.oid",
        (oids,),
    )
    classes = cursor.fetchall()
    columns = _read_columns(cursor, oids)
    type_oids = {c.description.type_oid for each in columns.values() for c in each}
    types = _read_types(cursor, sorted(oid for oid in type_oids if oid >= _FIRST_USER_TYPE))
    user_types = read_user_types(cursor, type_oids)
    return [
        _published_table(
            row,
            columns.get(row[0], []),
            published[row[0]],
            also.get(row[0], ()),
            types,
            user_types,
        )
        for row in classes
    ]


def _published_table(
    row: tuple[int, str, str, str, str],
    columns: Sequence[_Column],
    published: _Published,
    also: Collection[str],
    types: Mapping[int, Type],
    user_types: dict[int, UserType],
) -> PublishedTable:
    """Return the table of a row of pg_class: OID, schema, name, kind, replica identity."""
    oid, schema, name, kind, identity = row
    chosen = [
        c
        for c in columns
        if published.includes(c.number, c.is_generated) or c.description.name in also
    ]
    descriptions = tuple(c.description for c in chosen)
    if identity == "f":
        descriptions = tuple(replace(each, flags=1) for each in descriptions)
    filters = published.row_filters
    return PublishedTable(
        relation=Relation(
            xid=None,
            oid=oid,
            namespace=_namespace(schema),
            name=name,
            replica_identity=identity,
            columns=descriptions,
        ),
        types=tuple(types[each.type_oid] for each in descriptions if each.type_oid in types),
        schema=schema,
        is_partitioned=kind == "p",
        # One publication that publishes every row is enough.
        row_filters=() if None in filters else tuple(sorted(map(str, filters))),
        sendable=tuple(c.is_sendable for c in chosen),
        user_types=with_parts((each.type_oid for each in descriptions), user_types),
    )


def partitions_of(cursor: Any, oids: Collection[int]) -> set[int]:
    """Return the OIDs of all partitions of some tables, including those of partitions."""
    cursor.execute(
        "WITH RECURSIVE tree(oid) AS (SELECT i.inhrelid FROM pg_inherits i"
        " JOIN pg_class c ON c.oid = i.inhparent AND c.relkind = 'p'"
        " WHERE i.inhparent = ANY(%s::oid[]) UNION SELECT i.inhrelid FROM tree"
        " JOIN pg_inherits i ON i.inhparent = tree.oid) SELECT oid FROM tree",
        (list(oids),),
    )
    return {oid for (oid,) in cursor.fetchall()}


def check_readable(cursor: Any, oids: Sequence[int]) -> None:
    """Raise ``CaptureError`` when the cursor's role may not read all rows of one of the tables."""
    cursor.execute(
        "SELECT quote_ident(current_user), format('%%I.%%I', n.nspname, c.relname),"
        " quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE'),"
        " has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid)"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s::oid[]) ORDER BY n.nspname, c.relname",
        (list(oids),),
    )
    rows = cursor.fetchall()
    schemas = sorted({schema for _, _, schema, may_use, _, _ in rows if not may_use})
    unread = [name for _, name, _, _, may_select, _ in rows if not may_select]
    hidden = [name for _, name, _, _, _, is_hidden in rows if is_hidden]
    if not (schemas or unread or hidden):
        return
    role = rows[0][0]
    commands = []
    if schemas:
        commands.append(f"GRANT USAGE ON SCHEMA {', '.join(schemas)} TO {role};")
    if unread:
        commands.append(f"GRANT SELECT ON {', '.join(unread)} TO {role};")
    if hidden:  # by a policy: the stream has every row
        commands.append(f"ALTER ROLE {role} BYPASSRLS;")
    names = [
        f"{name} (row-level security)" if name in hidden else name
        for _, name, schema, *_ in rows
        if schema in schemas or name in {*unread, *hidden}
    ]
    raise CaptureError(
        f"role {role} may not read all rows of {', '.join(names)}, as a snapshot has to",
        hint=f"Run as the tables' owner or a superuser: {' '.join(commands)}",
    )


def files_of(cursor: Any, tables: Sequence[PublishedTable]) -> set[tuple[int, int]]:
    """Return OID and file of each table and partition, as the cursor's transaction sees them.

    A command that rewrites a table, such as TRUNCATE, gives it a new file
    (``pg_class.relfilenode``).
    """
    cursor.execute(
        "WITH RECURSIVE tree(oid) AS (SELECT o FROM unnest(%s::oid[]) o UNION"
        " SELECT i.inhrelid FROM tree JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'"
        " JOIN pg_inherits i ON i.inhparent = c.oid)"
        " SELECT c.oid, c.relfilenode FROM tree JOIN pg_class c ON c.oid = tree.oid",
        ([table.relation.oid for table in tables],),
    )
    return set(cursor.fetchall())


def check_unchanged(
    catalog: Any,
    snapshot: Any,
    tables: Sequence[PublishedTable],
    current: Sequence[PublishedTable],
) -> None:
    """Raise ``CaptureError`` if tables changed between a snapshot and their locks.

    ``catalog`` and ``snapshot`` are cursors, of the current state and of the snapshot; ``tables``
    are as of before the snapshot.
    """
    if set(current) != set(tables) or files_of(catalog, tables) != files_of(snapshot, tables):
        raise CaptureError(
            "the published tables changed while their snapshot was being taken",
            is_transient=True,
        )


def _read_publications(cursor: Any, publications: Sequence[str]) -> dict[int, _Published]:
    # Column lists and row filters came with PostgreSQL 15.
    details = (
        "g.attrs::int2[]::int4[], pg_get_expr(g.qual, g.relid)"
        if cursor.connection.server_version >= 150000
        else "NULL::int4[], NULL::text"
    )
    cursor.execute(
        f"SELECT g.relid, g.relid::regclass::text, {details} FROM pg_publication p,"
        " LATERAL pg_get_publication_tables(p.pubname) g WHERE p.pubname = ANY(%s)",
        (list(publications),),
    )
    published: dict[int, _Published] = {}
    for oid, name, numbers, row_filter in cursor.fetchall():
        columns = None if numbers is None else frozenset(numbers)
        known = published.setdefault(oid, _Published(columns, set()))
        if known.columns != columns:
            raise CaptureError(
                f"publications {', '.join(publications)} publish different columns of table "
                f"{name}, which no server decodes",
                hint="Give them the same column list, and the same publish_generated_columns.",
            )
        known.row_filters.add(row_filter)
    for oid in _partitions_of_published(cursor, list(published)):
        del published[oid]
    return published


def _partitions_of_published(cursor: Any, oids: list[int]) -> list[int]:
    """Return the partitions whose changes are sent under the name of a table above them."""
    if cursor.connection.server_version < 130000:
        return []
    cursor.execute(
        "SELECT t.oid FROM unnest(%(oids)s::oid[]) t(oid) WHERE EXISTS (SELECT 1"
        " FROM pg_partition_ancestors(t.oid) a WHERE a <> t.oid AND a = ANY(%(oids)s::oid[]))",
        {"oids": oids},
    )
    return [oid for (oid,) in cursor.fetchall()]


def _read_columns(cursor: Any, oids: list[int]) -> dict[int, list[_Column]]:
    """Return the columns of each table, in order."""
    # Generated columns came with PostgreSQL 12: as JSON the column of the catalog may be missing.
    cursor.execute(
        "SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod,"
        " coalesce(to_jsonb(a)->>'attgenerated', '') <> '', t.typsend::oid <> 0,"
        " coalesce(a.attnum = ANY(k.numbers), false)"
        " FROM pg_attribute a"
        " JOIN pg_type t ON t.oid = a.atttypid"
        " JOIN pg_class c ON c.oid = a.attrelid"
        " LEFT JOIN LATERAL ("
        # The index that identifies rows, its key columns: RelationGetIdentityKeyBitmap.
        "  SELECT (i.indkey::int2[])[0:" + _KEY_COLUMNS + " - 1] AS numbers"
        " FROM pg_index i"
        "  WHERE i.indrelid = c.oid AND i.indisvalid AND i.indisunique AND i.indimmediate"
        "  AND i.indpred IS NULL"
        "  AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END"
        " ) k ON true"
        " WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped"
        " ORDER BY a.attrelid, a.attnum",
        (oids,),
    )
    columns: dict[int, list[_Column]] = {}
    for oid, number, name, type_oid, modifier, is_generated, sendable, is_key in cursor.fetchall():
        description = RelationColumn(
            flags=int(is_key), name=name, type_oid=type_oid, type_modifier=modifier
        )
        columns.setdefault(oid, []).append(_Column(number, description, is_generated, sendable))
    return columns


def _read_types(cursor: Any, oids: list[int]) -> dict[int, Type]:
    """Return the Type messages of types; a domain's has the name of its base type."""
    cursor.execute(
        "WITH RECURSIVE based(oid, current) AS ("
        " SELECT o, o FROM unnest(%s::oid[]) o UNION ALL"
        " SELECT b.oid, t.typbasetype FROM based b JOIN pg_type t ON t.oid = b.current"
        " WHERE t.typtype = 'd')"
        " SELECT b.oid, n.nspname, t.typname FROM based b JOIN pg_type t ON t.oid = b.current"
        " JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typtype <> 'd'",
        (oids,),
    )
    return {
        oid: Type(xid=None, oid=oid, namespace=_namespace(schema), name=name)
        for oid, schema, name in cursor.fetchall()
    }


def _namespace(schema: str) -> str:
    return "" if schema == "pg_catalog" else schema
