"""The tables that publications publish, as pgoutput tells of them and as COPY reads them.

What pgoutput sends of a table is in ``src/backend/replication/logical/proto.c``
(``logicalrep_write_rel``, ``logicalrep_write_typ``) and in ``pgoutput.c``
(``send_relation_and_attrs``); which rows and columns an initial copy takes is in ``tablesync.c``
(``fetch_remote_table_info``, ``copy_table``). Both are followed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.options import quote_identifier
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.messages import Relation, RelationColumn, Type
from pgwire_codec.reference import encode_message

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_USER_TYPE: Final = 10_000  # FirstGenbkiObjectId: pgoutput tells of types from here on
#: How many columns of an index are its key; the others, INCLUDE's, came with PostgreSQL 11.
_KEY_COLUMNS: Final = "coalesce((to_jsonb(i)->>'indnkeyatts')::int, i.indnatts)"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as its publications publish it.

    Attributes
    ----------
    relation : Relation
        What pgoutput says of it.
    types : tuple of Type
        What pgoutput says of its columns' types, before the Relation.
    schema : str
        Its schema's name, which the Relation does not have for pg_catalog.
    is_partitioned : bool
        Whether it is published as the root of its partitions.
    row_filters : tuple of str
        SQL conditions, of which a row has to fulfil one; empty: every row is published.
    sendable : tuple of bool
        Of each column: whether its type has a binary form.
    has_generated : bool
        Whether a generated column is published (PostgreSQL 18 on).
    """

    relation: Relation
    types: tuple[Type, ...]
    schema: str
    is_partitioned: bool
    row_filters: tuple[str, ...]
    sendable: tuple[bool, ...]
    has_generated: bool

    @property
    def name(self) -> str:
        """The qualified name, quoted for SQL."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.relation.name)}"

    def description(self) -> list[bytes]:
        """Give the messages that pgoutput sends before the table's first change."""
        messages: list[Type | Relation] = [*self.types, self.relation]
        return [encode_message(message) for message in messages]

    def lock_command(self) -> str:
        """Give the LOCK command that keeps the table from being altered, truncated or dropped."""
        only = "" if self.is_partitioned else "ONLY "
        return f"LOCK TABLE {only}{self.name} IN ACCESS SHARE MODE"

    def copy_command(self, *, binary: bool) -> str:
        """Give the COPY command that reads the published rows and columns."""
        form = "binary" if binary else "text"
        names = [quote_identifier(column.name) for column in self.relation.columns]
        # COPY reads neither partitions nor generated columns, but a query's result.
        queried = self.is_partitioned or self.row_filters or self.has_generated
        plain = names and not queried
        if plain and (all(self.sendable) or not binary):
            return f"COPY {self.name} ({', '.join(names)}) TO STDOUT (FORMAT {form})"
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
        source = self.name if self.is_partitioned else f"ONLY {self.name}"
        where = " OR ".join(f"({condition})" for condition in self.row_filters)
        return (
            f"COPY (SELECT {', '.join(names)} FROM {source}{where and ' WHERE ' + where})"
            f" TO STDOUT (FORMAT {form})"
        )


@dataclass(slots=True)
class _Published:
    """What the publications say of one table."""

    columns: frozenset[int] | None  # numbers; None: all but generated ones
    row_filters: set[str | None]


def published_tables(cursor: Any, publications: Sequence[str]) -> list[PublishedTable]:
    """Give what the publications publish, the largest tables first.

    Parameters
    ----------
    cursor
        Of an ordinary connection; sees the catalogs as its transaction does.
    publications
        Names of publications that exist.

    Raises
    ------
    CaptureError
        When two of them publish other columns of the same table, which pgoutput refuses.
    """
    published = _read_publications(cursor, publications)
    oids = list(published)
    cursor.execute(
        "SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relreplident::text"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s::oid[]) ORDER BY c.relpages DESC, c.oid",
        (oids,),
    )
    classes = cursor.fetchall()
    columns = _read_columns(cursor, oids)
    user_types = {
        column.type_oid
        for each in columns.values()
        for _, column, _, _ in each
        if column.type_oid >= _FIRST_USER_TYPE
    }
    types = _read_types(cursor, sorted(user_types))
    tables = []
    for oid, schema, name, kind, identity in classes:
        chosen = [
            (replace(column, flags=1) if identity == "f" else column, sendable, is_generated)
            for number, column, is_generated, sendable in columns.get(oid, [])
            if _is_published(published[oid].columns, number, is_generated)
        ]
        relation = Relation(
            xid=None,
            oid=oid,
            namespace=_namespace(schema),
            name=name,
            replica_identity=identity,
            columns=tuple(column for column, _, _ in chosen),
        )
        filters = published[oid].row_filters
        tables.append(
            PublishedTable(
                relation=relation,
                types=tuple(types[c.type_oid] for c in relation.columns if c.type_oid in types),
                schema=schema,
                is_partitioned=kind == "p",
                # One publication that publishes every row is enough.
                row_filters=() if None in filters else tuple(sorted(map(str, filters))),
                sendable=tuple(sendable for _, sendable, _ in chosen),
                has_generated=any(is_generated for _, _, is_generated in chosen),
            )
        )
    return tables


def check_readable(cursor: Any, tables: Sequence[PublishedTable]) -> None:
    """Raise ``CaptureError`` when the cursor's role may not read all rows of one of the tables."""
    cursor.execute(
        "SELECT quote_ident(current_user), format('%%I.%%I', n.nspname, c.relname),"
        " quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE'),"
        " has_table_privilege(c.oid, 'SELECT'), row_security_active(c.oid)"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s::oid[]) ORDER BY n.nspname, c.relname",
        ([table.relation.oid for table in tables],),
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
    """Give OID and file of each table and partition, as the cursor's transaction sees them.

    What writes a table anew, TRUNCATE among it, gives it another file (``pg_class.relfilenode``).
    """
    cursor.execute(
        "WITH RECURSIVE tree(oid) AS (SELECT o FROM unnest(%s::oid[]) o UNION"
        " SELECT i.inhrelid FROM tree JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'"
        " JOIN pg_inherits i ON i.inhparent = c.oid)"
        " SELECT c.oid, c.relfilenode FROM tree JOIN pg_class c ON c.oid = tree.oid",
        ([table.relation.oid for table in tables],),
    )
    return set(cursor.fetchall())


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
                f"The publications {', '.join(publications)} publish different columns of table "
                f"{name}, which no server decodes. Give them the same column list, and the same"
                " publish_generated_columns."
            )
        known.row_filters.add(row_filter)
    for oid in _partitions_of_published(cursor, list(published)):
        del published[oid]
    return published


def _partitions_of_published(cursor: Any, oids: list[int]) -> list[int]:
    """Name the partitions whose changes come under the name of a table above them."""
    if cursor.connection.server_version < 130000:
        return []
    cursor.execute(
        "SELECT t.oid FROM unnest(%(oids)s::oid[]) t(oid) WHERE EXISTS (SELECT 1"
        " FROM pg_partition_ancestors(t.oid) a WHERE a <> t.oid AND a = ANY(%(oids)s::oid[]))",
        {"oids": oids},
    )
    return [oid for (oid,) in cursor.fetchall()]


def _read_columns(
    cursor: Any, oids: list[int]
) -> dict[int, list[tuple[int, RelationColumn, bool, bool]]]:
    """Give of each table its columns: number, description, whether generated, whether sendable."""
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
    columns: dict[int, list[tuple[int, RelationColumn, bool, bool]]] = {}
    for oid, number, name, type_oid, modifier, is_generated, sendable, is_key in cursor.fetchall():
        column = RelationColumn(
            flags=int(is_key), name=name, type_oid=type_oid, type_modifier=modifier
        )
        columns.setdefault(oid, []).append((number, column, is_generated, sendable))
    return columns


def _read_types(cursor: Any, oids: list[int]) -> dict[int, Type]:
    """Give what pgoutput says of types: of a domain, the name of its base type."""
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


def _is_published(columns: frozenset[int] | None, number: int, is_generated: bool) -> bool:
    return not is_generated if columns is None else number in columns


def _namespace(schema: str) -> str:
    return "" if schema == "pg_catalog" else schema
