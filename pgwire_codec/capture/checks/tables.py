"""Checks of publications, and of the tables that they publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec.capture.catalog.partition_identities import lesser_identities, lesser_text
from pgwire_codec.capture.catalog.publications import require_publications
from pgwire_codec.capture.catalog.published_tables import check_readable, published_tables
from pgwire_codec.capture.checks.finding import Finding, error, listed, of_error, warning
from pgwire_codec.capture.checks.refused_changes import check_refused
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.quoting import quote_identifier

_LARGE_BYTES: Final = 1 << 30
_OPERATIONS: Final = {
    "pubinsert": "insert",
    "pubupdate": "update",
    "pubdelete": "delete",
    "pubtruncate": "truncate",
}


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that has rows: for a partitioned one, each of its partitions."""

    name: str
    identity: str  # pg_class.relreplident
    has_index: bool  # that identifies rows
    has_primary_key: bool
    size: int  # bytes

    @property
    def has_identity(self) -> bool:
        return self.identity == "f" or self.has_index


def check_publications(cursor: Any, publications: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each publication that is missing, or omits something."""
    for name in publications:
        try:
            require_publications(cursor, [name], may_be_empty=False)
        except CaptureError as raised:
            yield of_error("publication", raised)
            continue
        cursor.execute("SELECT to_jsonb(p) FROM pg_publication p WHERE pubname = %s", (name,))
        (row,) = cursor.fetchone()
        omitted = [each for column, each in _OPERATIONS.items() if not row[column]]
        if omitted:
            everything = ", ".join(_OPERATIONS.values())
            yield warning(
                "operations",
                f'publication "{name}" does not publish {", ".join(omitted)}: what was captured '
                "differs from the tables",
                f"ALTER PUBLICATION {quote_identifier(name)} SET (publish = '{everything}');",
            )
    if len(publications) > 1:
        try:
            published_tables(cursor, publications)
        except CaptureError as raised:
            yield of_error("column_lists", raised)


def check_tables(cursor: Any, publications: Sequence[str], *, snapshot: bool) -> Iterator[Finding]:
    """Yield findings for the tables of some publications, or for all tables without any."""
    if publications:
        changing = _changing(cursor, publications)
        published = [each.relation.oid for each in published_tables(cursor, publications)]
    else:
        cursor.execute(
            "SELECT c.oid FROM pg_class c WHERE c.relkind = 'r' AND c.relpersistence = 'p'"
            " AND pg_relation_is_publishable(c.oid)"
        )
        published = changing = [oid for (oid,) in cursor.fetchall()]
        yield from _check_unlogged(cursor)
    yield from _check_identities(_tables(cursor, changing))
    yield from check_refused(cursor, publications)
    yield from _check_partitions(cursor, publications)
    if snapshot:
        try:
            check_readable(cursor, published)
        except CaptureError as raised:
            yield of_error("privileges", raised)


def _changing(cursor: Any, publications: Sequence[str]) -> list[int]:
    """Return the OIDs of the tables whose updates or deletes are published."""
    cursor.execute(
        "SELECT DISTINCT g.relid FROM pg_publication p,"
        " LATERAL pg_get_publication_tables(p.pubname) g"
        " WHERE p.pubname = ANY(%s) AND (pubupdate OR pubdelete)",
        (list(publications),),
    )
    return [oid for (oid,) in cursor.fetchall()]


def _tables(cursor: Any, oids: list[int]) -> list[_Table]:
    """Return tables and, of partitioned ones, their partitions."""
    cursor.execute(
        "WITH RECURSIVE tree(oid) AS (SELECT o FROM unnest(%s::oid[]) o UNION"
        " SELECT i.inhrelid FROM tree JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'"
        " JOIN pg_inherits i ON i.inhparent = c.oid)"
        " SELECT format('%%I.%%I', n.nspname, c.relname), c.relreplident::text,"
        " EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid"
        "  AND i.indimmediate AND CASE c.relreplident WHEN 'd' THEN i.indisprimary"
        "  WHEN 'i' THEN i.indisreplident ELSE false END),"
        " EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary"
        "  AND i.indimmediate),"
        " c.relpages::bigint * current_setting('block_size')::bigint"
        " FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE c.relkind = 'r' ORDER BY n.nspname, c.relname",
        (oids,),
    )
    return [_Table(*row) for row in cursor.fetchall()]


def _check_identities(tables: list[_Table]) -> Iterator[Finding]:
    if nothing := [each for each in tables if each.identity == "n"]:
        yield warning(
            "identity_nothing",
            f"{listed(each.name for each in nothing)} have REPLICA IDENTITY NOTHING: their inserts "
            "are captured, and the server refuses UPDATE and DELETE once they are published",
            *(f"{_identity_command(each)} -- unless it is only inserted into" for each in nothing),
        )
    missing = [each for each in tables if not (each.has_identity or each.identity == "n")]
    if missing:
        yield error(
            "replica_identity",
            f"UPDATE and DELETE fail on {listed(each.name for each in missing)} once published, "
            "for lack of a replica identity",
            *(_identity_command(each) for each in missing),
        )
    large = [each for each in tables if each.identity == "f" and each.size >= _LARGE_BYTES]
    if large:
        yield warning(
            "identity_full",
            f"{listed(f'{each.name} ({each.size >> 20:,} MB)' for each in large)} have REPLICA "
            "IDENTITY FULL: each update and delete writes the whole old row to the WAL",
            *(
                f"ALTER TABLE {each.name} REPLICA IDENTITY DEFAULT;"
                if each.has_primary_key
                else f"Add a primary key to {each.name}."
                for each in large
            ),
        )


def _check_partitions(cursor: Any, publications: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for partitions that send less than their root's key."""
    if lesser := list(lesser_identities(cursor, publications)):
        yield warning(
            "partition_identity",
            lesser_text(lesser),
            *dict.fromkeys(command for each in lesser for command in each.remedy),
        )


def _identity_command(table: _Table) -> str:
    if table.has_primary_key:
        return f"ALTER TABLE {table.name} REPLICA IDENTITY DEFAULT;"
    return f"ALTER TABLE {table.name} REPLICA IDENTITY FULL; -- or add a primary key"


def _check_unlogged(cursor: Any) -> Iterator[Finding]:
    cursor.execute(
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND c.relpersistence = 'u'"
        " ORDER BY n.nspname, c.relname"
    )
    if names := [name for (name,) in cursor.fetchall()]:
        yield warning(
            "unlogged",
            f"{listed(names)} are unlogged, and no publication has their changes",
            *(f"ALTER TABLE {name} SET LOGGED;" for name in names),
        )
