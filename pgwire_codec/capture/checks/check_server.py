"""check_server: everything that a capture would fail of, found before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec.capture.catalog.publications import younger_publications, younger_text
from pgwire_codec.capture.catalog.slots import check_intact, check_kind, read_slot
from pgwire_codec.capture.checks import server, tables
from pgwire_codec.capture.checks.failover import check_failover
from pgwire_codec.capture.checks.finding import Finding, of_error, warning
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.quoting import quote_literal

#: Findings without which a replication connection opens, unless something else prevents it.
_PREVENTING: Final = frozenset({"wal_level", "role", "walsenders", "standby"})


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """Result of :func:`check_server`.

    Attributes
    ----------
    server_version : int
        As ``server_version_num``: 180001 is 18.1.
    findings : tuple of Finding
        Errors first.
    """

    server_version: int
    findings: tuple[Finding, ...]

    @property
    def is_ready(self) -> bool:
        """True if no finding is an error."""
        return all(each.level != "error" for each in self.findings)


def check_server(
    dsn: str,
    *,
    publication: str | Sequence[str] = (),
    slot: str | None = None,
    snapshot: bool = True,
) -> ServerCheck:
    """Check that a server is ready for a capture, without changing anything.

    It looks at the version, the settings of the WAL and of slots, free slots and walsenders, the
    role's rights, standbys and failover slots, the publications and the replica identities of
    their tables, transactions that delay a new slot, settings that change the form of values, and
    at the connection: a pooler in between, no encryption.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI, with the role that is to capture.
    publication : str or sequence of str
        Publications that exist. By default, all tables of the database are checked, as those of a
        publication ``FOR ALL TABLES`` that is still to be created.
    slot : str, optional
        Slot to use, which need not exist.
    snapshot : bool
        Whether the tables have to be readable, for a snapshot.

    Raises
    ------
    CaptureError
        When no connection to the server opens, or it does not answer.
    """
    names = (publication,) if isinstance(publication, str) else tuple(publication)
    psycopg2 = load_psycopg2()
    with closing(connect(dsn)) as connection, connection.cursor() as cursor:
        try:
            findings = list(_findings(cursor, names, slot, snapshot))
        except psycopg2.Error as error:
            raise capture_error(error, slot or "") from error
        if not _PREVENTING & {each.code for each in findings}:
            findings += server.check_replication(dsn)
        findings.sort(key=lambda each: each.level != "error")
        return ServerCheck(connection.server_version, tuple(findings))


def _findings(
    cursor: Any, publications: Sequence[str], slot: str | None, snapshot: bool
) -> Iterator[Finding]:
    checks: list[Callable[[Any], Iterator[Finding]]] = [
        server.check_version,
        server.check_settings,
        server.check_role,
        server.check_transactions,
        server.check_values,
        server.check_encryption,
    ]
    for check in checks:
        yield from check(cursor)
    yield from server.check_limits(cursor, slot)
    yield from server.check_other_slots(cursor, slot)
    yield from check_failover(cursor, slot)
    if slot is not None:
        yield from _check_slot(cursor, slot, publications)
    wrong = list(tables.check_publications(cursor, publications))
    yield from wrong
    if not any(each.level == "error" for each in wrong):
        yield from tables.check_tables(cursor, publications, snapshot=snapshot)


def _check_slot(cursor: Any, name: str, publications: Sequence[str]) -> Iterator[Finding]:
    row = read_slot(cursor, name)
    if row is None:
        return
    try:
        check_kind(cursor, name, row)
        check_intact(name, row)
    except CaptureError as raised:
        yield of_error("slot", raised)
        return
    if row["active"]:
        yield warning(
            "slot",
            f'replication slot "{name}" is in use by process {row["active_pid"]}',
            "Stop that consumer before another one begins.",
        )
    for publication in younger_publications(cursor, publications, name):
        yield warning(
            "publication_age",
            younger_text(publication, name),
            "If the publication is new, create the slot after it: SELECT "
            f"pg_drop_replication_slot({quote_literal(name)});",
        )
