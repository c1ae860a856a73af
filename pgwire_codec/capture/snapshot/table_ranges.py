"""Division of tables into ranges of pages, which are copied independently.

PostgreSQL documentation, "System Columns" (ctid). A range is read by a TID Range Scan, which came
with PostgreSQL 14; on an older server a table is one range.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgwire_codec.capture.catalog.published_tables import PublishedTable
    from pgwire_codec.log.snapshot_record import PlannedRange

_FIRST_WITH_RANGES: Final = 140000
#: Bytes of a range, with its part of the TOAST table: about a second of copying.
_RANGE_BYTES: Final = 64 << 20
_LEAST_PAGES: Final = 10  # that the planner assumes of a table without statistics


@dataclass(frozen=True, slots=True)
class TableRange:
    """Pages of a table or a partition.

    Attributes
    ----------
    number : int
        Place of the range among those of a snapshot.
    table : PublishedTable
        Table under whose name the rows are published.
    planned : PlannedRange
        Pages and estimates.
    """

    number: int
    table: PublishedTable
    planned: PlannedRange

    def copy_command(self, *, binary: bool, skip: int = 0) -> str:
        """Return the COPY command that reads the rows after the first ``skip`` rows."""
        form = "binary" if binary else "text"
        offset = f" OFFSET {skip}" if skip else ""
        return f"COPY ({self.query(binary=binary)}{offset}) TO STDOUT (FORMAT {form})"

    def query(self, *, binary: bool) -> str:
        """Return the SELECT that reads the rows."""
        first, end = self.planned.first_page, self.planned.end_page
        conditions = []
        if first:
            conditions.append(f"ctid >= '({first},0)'::pg_catalog.tid")
        if end is not None:
            conditions.append(f"ctid < '({end},0)'::pg_catalog.tid")
        return self.table.query(self.planned.source, conditions, binary=binary)


@dataclass(frozen=True, slots=True)
class _File:
    """A table or partition with rows of its own, under the snapshot.

    ``density`` is the number of rows of a page, if there are statistics.
    """

    name: str
    is_heap: bool
    is_readable: bool
    pages: int
    bytes: int
    density: float | None


def table_ranges(cursor: Any, tables: Sequence[PublishedTable]) -> list[TableRange]:
    """Return the ranges of the tables, in the order of the tables.

    Parameters
    ----------
    cursor
        Of a transaction that uses the snapshot, and has locked the tables.
    tables : sequence of PublishedTable
    """
    files = _files(cursor, [table.relation.oid for table in tables])
    planned = (
        (table, range_)
        for table in tables
        for range_ in _ranges(cursor, table, files[table.relation.oid])
    )
    return [TableRange(number, *each) for number, each in enumerate(planned)]


def _ranges(cursor: Any, table: PublishedTable, files: Sequence[_File]) -> Iterator[PlannedRange]:
    """Yield the ranges of one table."""
    from pgwire_codec.log.snapshot_record import PlannedRange

    oid = table.relation.oid
    if not all(file.is_readable for file in files):  # the role may read them through the root only
        rows = sum(_density(cursor, file) * file.pages for file in files if file.is_readable)
        size = sum(file.bytes for file in files)
        yield PlannedRange(oid, table.name, 0, None, size, rows, has_order=False)
        return
    for file in files:
        density = _density(cursor, file)
        bounds = _bounds(file, cursor.connection.server_version)
        for first, end in bounds:
            pages = (file.pages if end is None else end) - first
            yield PlannedRange(
                relation_oid=oid,
                source=f"ONLY {file.name}",
                first_page=first,
                end_page=end,
                bytes=file.bytes * pages // max(file.pages, 1),
                rows=density * pages,
                has_order=file.is_heap,
            )


def _bounds(file: _File, server_version: int) -> list[tuple[int, int | None]]:
    """Return first page and end of each range of a file; the last one has no end."""
    count = min(-(-file.bytes // _RANGE_BYTES), file.pages)
    if count < 2 or not file.is_heap or server_version < _FIRST_WITH_RANGES:
        return [(0, None)]
    firsts = [file.pages * each // count for each in range(count)]
    return list(zip(firsts, [*firsts[1:], None], strict=True))


def _files(cursor: Any, oids: Sequence[int]) -> dict[int, list[_File]]:
    """Return the files of each table: its own, or those of its partitions."""
    # Table access methods came with PostgreSQL 12.
    cursor.execute(
        "WITH RECURSIVE tree(root, oid) AS (SELECT o, o FROM unnest(%s::oid[]) o UNION ALL"
        " SELECT tree.root, i.inhrelid FROM tree"
        " JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'"
        " JOIN pg_inherits i ON i.inhparent = c.oid"
        " WHERE NOT coalesce((to_jsonb(i)->>'inhdetachpending')::boolean, false)),"
        " file AS (SELECT tree.root, c.*,"
        "  c.relkind = 'r' AND coalesce(a.amname, 'heap') = 'heap' AS is_heap"
        "  FROM tree JOIN pg_class c ON c.oid = tree.oid LEFT JOIN pg_am a ON a.oid = c.relam"
        "  WHERE c.relkind <> 'p')"
        " SELECT f.root, format('%%I.%%I', n.nspname, f.relname), f.is_heap,"
        " f.root = f.oid OR has_schema_privilege(n.oid, 'USAGE')"
        "  AND has_table_privilege(f.oid, 'SELECT') AND NOT row_security_active(f.oid),"
        " CASE WHEN f.is_heap THEN pg_relation_size(f.oid)"
        "  / current_setting('block_size')::bigint ELSE 0 END,"
        " CASE WHEN f.is_heap THEN pg_table_size(f.oid) ELSE 0 END,"
        " CASE WHEN f.relpages > 0 AND f.reltuples >= 0 THEN f.reltuples / f.relpages END"
        " FROM file f JOIN pg_namespace n ON n.oid = f.relnamespace ORDER BY f.relpages DESC",
        (list(oids),),
    )
    files: dict[int, list[_File]] = defaultdict(list)
    for root, *fields in cursor.fetchall():
        files[root].append(_File(*fields))
    return files


def _density(cursor: Any, file: _File) -> float:
    """Return the estimated number of rows of a page: the planner's, in lack of statistics."""
    if file.density is not None:
        return file.density
    if not file.pages:
        return 0.0
    cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM ONLY {file.name}")
    [[plan]] = cursor.fetchone()
    rows: float = plan["Plan"]["Plan Rows"]
    return rows / max(file.pages, _LEAST_PAGES)
