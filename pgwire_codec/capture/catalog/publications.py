"""Publications: check and create."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pgwire_codec.errors import CaptureError, OptionError
from pgwire_codec.protocol.quoting import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

#: False: it must exist. "all tables" or names of tables: create it for these if it does not.
CreatePublication: TypeAlias = "bool | str | Sequence[str]"

ALL_TABLES: Final = "all tables"


@dataclass(frozen=True, slots=True)
class _Publication:
    """An existing publication; ``all_tables`` may omit some, with EXCEPT."""

    name: str
    all_tables: bool
    all_sequences: bool

    def add_command(self, tables: str) -> str:
        """Return the SQL that adds these tables to the publication."""
        head = f"ALTER PUBLICATION {quote_identifier(self.name)}"
        if self.all_sequences:  # the server adds no single table to it
            return f"{head} SET ALL TABLES, ALL SEQUENCES;"
        return f"{head} ADD TABLE {tables};"


def ensure_publications(
    cursor: Any, names: Sequence[str], create: CreatePublication, *, may_be_empty: bool
) -> None:
    """Check that every publication exists and publishes something; create it on request.

    Parameters
    ----------
    cursor
        Of a connection in autocommit mode.
    names
        Names of the publications.
    create
        Tables for which to create the publication if it does not exist; an existing one has to
        publish them.
    may_be_empty
        Accept a publication without a table, as for logical messages alone.

    Raises
    ------
    CaptureError
        When a publication or a table is missing, or a publication publishes nothing.
    OptionError
        When several publications are to be created at once.
    """
    if create is True or (isinstance(create, str) and create != ALL_TABLES):
        raise OptionError(
            f"`create_publication` must be False, {ALL_TABLES!r} or a list of tables, "
            f"not {create!r}"
        )
    if create and len(names) != 1:
        raise OptionError("`create_publication` needs exactly one publication name")
    tables = [] if isinstance(create, (bool, str)) else _resolve(cursor, create)
    existing = _existing(cursor, names)
    for name in names:
        if name in existing:
            if create:
                _check_publishes(cursor, existing[name], create, tables)
            if not (existing[name].all_tables or may_be_empty):
                _check_not_empty(cursor, existing[name])
        elif create:
            _create(cursor, name, tables)
        else:
            raise _missing(cursor, name, ", or pass `create_publication`")


def require_publications(cursor: Any, names: Sequence[str], *, may_be_empty: bool) -> None:
    """Raise ``CaptureError`` unless every publication exists and publishes something.

    Parameters as for :func:`ensure_publications`.
    """
    existing = _existing(cursor, names)
    for name in names:
        if name not in existing:
            raise _missing(cursor, name, "")
        if not (existing[name].all_tables or may_be_empty):
            _check_not_empty(cursor, existing[name])


def publication_exists(cursor: Any, name: str) -> bool:
    """Return whether a publication of that name exists."""
    return name in _existing(cursor, [name])


def _existing(cursor: Any, names: Sequence[str]) -> dict[str, _Publication]:
    # Publications of sequences came with PostgreSQL 19: as JSON the column may be missing.
    cursor.execute(
        "SELECT pubname, puballtables, coalesce((to_jsonb(p)->>'puballsequences')::boolean, false)"
        " FROM pg_publication p WHERE pubname = ANY(%s)",
        (list(names),),
    )
    return {name: _Publication(name, *kinds) for name, *kinds in cursor.fetchall()}


def _missing(cursor: Any, name: str, alternative: str) -> CaptureError:
    cursor.execute("SELECT current_database()")
    return CaptureError(
        f'publication "{name}" does not exist in database "{cursor.fetchone()[0]}"',
        hint=f"Run CREATE PUBLICATION {quote_identifier(name)} FOR ALL TABLES; (or FOR TABLE ...)"
        f"{alternative}.",
    )


def younger_publications(cursor: Any, names: Sequence[str], slot: str) -> list[str]:
    """Return the publications that may not exist yet at the first changes that a slot sends.

    Their rows are of transactions that a change of the slot may precede. An altered publication
    has a new row, too. A slot that was created beside an older one, or beside that of a standby
    with feedback, has the catalogs' horizon of that one: then nothing is known, and the list is
    empty.
    """
    cursor.execute(
        "SELECT p.pubname FROM pg_publication p, pg_replication_slots s"
        " WHERE p.pubname = ANY(%s) AND s.slot_name = %s"
        # A row that is older than 2 billion transactions has a negative age.
        " AND age(p.xmin) BETWEEN 0 AND age(s.catalog_xmin)"
        " AND NOT EXISTS (SELECT FROM pg_replication_slots o"
        "  WHERE o.slot_name <> s.slot_name AND (o.catalog_xmin = s.catalog_xmin"
        "   OR o.slot_type = 'physical' AND coalesce(o.xmin, o.catalog_xmin) IS NOT NULL))"
        " ORDER BY p.pubname",
        (list(names), slot),
    )
    return [name for (name,) in cursor.fetchall()]


def younger_text(publication: str, slot: str) -> str:
    """Return the text on one of :func:`younger_publications`."""
    return (
        f'publication "{publication}" was created or altered after changes that replication slot '
        f'"{slot}" may still send: if it did not exist at one of them, the capture ends there with '
        "an error"
    )


def _resolve(cursor: Any, tables: Sequence[str]) -> list[str]:
    """Return the qualified, quoted names of tables that are named as in SQL."""
    cursor.execute(
        "SELECT t.given, quote_ident(n.nspname) || '.' || quote_ident(c.relname)"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS t(given, i)"
        " LEFT JOIN pg_class c ON c.oid = to_regclass(t.given)"
        " LEFT JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY t.i",
        (list(tables),),
    )
    found = cursor.fetchall()
    missing = [given for given, name in found if name is None]
    if missing:
        raise CaptureError(
            f"tables to publish do not exist: {', '.join(missing)}",
            hint="Create them first, or write their names with the schema and, if they have "
            "capitals, in double quotes.",
        )
    return [name for _, name in found]


def _create(cursor: Any, name: str, tables: Sequence[str]) -> None:
    target = f"TABLE {', '.join(tables)}" if tables else "ALL TABLES"
    cursor.execute(f"CREATE PUBLICATION {quote_identifier(name)} FOR {target}")


def _check_publishes(
    cursor: Any, publication: _Publication, create: CreatePublication, tables: Sequence[str]
) -> None:
    """Raise ``CaptureError`` when an existing publication does not publish these tables."""
    name = publication.name
    if publication.all_tables:
        _check_omits_none(cursor, name, tables)
        return
    if create == ALL_TABLES:
        raise CaptureError(
            f'publication "{name}" exists, but not for all tables',
            hint=f"Run DROP PUBLICATION {quote_identifier(name)}; to have it created again, or use "
            "another name.",
        )
    # A partitioned table is in one list under its own name, in the other as its partitions.
    cursor.execute(
        "SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid"
        " WHERE p.pubname = %(name)s UNION"
        " SELECT format('%%I.%%I', schemaname, tablename)::regclass FROM pg_publication_tables"
        " WHERE pubname = %(name)s",
        {"name": name},
    )
    published = [oid for (oid,) in cursor.fetchall()]
    cursor.execute(
        "SELECT t FROM unnest(%s::text[]) t WHERE t::regclass::oid <> ALL(%s::oid[])",
        (list(tables), published),
    )
    missing = ", ".join(table for (table,) in cursor.fetchall())
    if missing:
        raise CaptureError(
            f'publication "{name}" exists, but does not publish {missing}',
            hint=f"Run {publication.add_command(missing)}",
        )


def _check_omits_none(cursor: Any, name: str, tables: Sequence[str]) -> None:
    """Raise when a publication for all tables EXCEPT some (PostgreSQL 19 and later) omits one."""
    if cursor.connection.server_version < 190000:
        return
    # Partitions are omitted with the table above them.
    cursor.execute(
        "SELECT t FROM unnest(%s::text[]) t WHERE EXISTS (SELECT 1 FROM pg_publication_rel r"
        " JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %s AND r.prexcept"
        " AND (r.prrelid = t::regclass"
        " OR r.prrelid IN (SELECT * FROM pg_partition_ancestors(t::regclass))))",
        (list(tables), name),
    )
    omitted = ", ".join(table for (table,) in cursor.fetchall())
    if omitted:
        raise CaptureError(
            f'publication "{name}" exists, but omits {omitted}',
            hint=f"Run ALTER PUBLICATION {quote_identifier(name)} SET ALL TABLES; (with EXCEPT "
            "(TABLE ...) for others that it is to omit).",
        )


def _check_not_empty(cursor: Any, publication: _Publication) -> None:
    """Raise ``CaptureError`` when a publication has neither table nor schema."""
    by_schema = ""
    if cursor.connection.server_version >= 150000:
        by_schema = (
            " UNION ALL SELECT 1 FROM pg_publication_namespace n"
            " JOIN pg_publication p ON p.oid = n.pnpubid WHERE p.pubname = %(name)s"
        )
    cursor.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_publication_rel r"
        " JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %(name)s" + by_schema + ")",
        {"name": publication.name},
    )
    if not cursor.fetchone()[0]:
        only = ", only sequences, which pgoutput does not send" if publication.all_sequences else ""
        raise CaptureError(
            f'publication "{publication.name}" publishes no table{only}',
            hint=f"Run {publication.add_command('...')} Pass `messages=True` to capture logical "
            "messages alone.",
        )
