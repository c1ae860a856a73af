"""Start of a slot's stream on an open replication connection: checks, settings, options."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgwire_codec.capture.catalog.failover import failover_notes
from pgwire_codec.capture.catalog.partition_identities import partition_notes
from pgwire_codec.capture.catalog.publications import (
    ensure_publications,
    younger_publications,
    younger_text,
)
from pgwire_codec.capture.catalog.slots import ensure_slot
from pgwire_codec.capture.connection.connect import (
    check_wal_level,
    connect_walsender,
    load_psycopg2,
)
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.connection.session_settings import pin
from pgwire_codec.capture.timelines import read_ancestors
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.protocol.quoting import quote_identifier, quote_literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgwire_codec.capture.catalog.publications import CreatePublication
    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.options import PluginOptions
    from pgwire_codec.log import LogSource


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A slot, the options of its stream, and what to create if it does not exist.

    Attributes
    ----------
    slot : str
    options : PluginOptions
    slot_timeout : float
        Seconds to wait for a slot that another connection still holds.
    create_slot, temporary, failover : bool
    create_publication : False, "all tables" or list of str
    start_lsn : int
    plugin_options : mapping of str to str, optional
        Options of START_REPLICATION that an earlier session had, to request its stream again.
    """

    slot: str
    options: PluginOptions
    slot_timeout: float
    create_slot: bool = False
    create_publication: CreatePublication = False
    temporary: bool = False
    failover: bool = False
    start_lsn: int = 0
    plugin_options: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StartedStream:
    """State of a stream that has been started."""

    source: LogSource
    wal_end_lsn: int  # end of the server's flushed WAL
    wal_sender_timeout: float  # seconds
    confirmed_lsn: int
    slot_is_new: bool
    notes: list[str]


def identify(
    dsn: str, slot: str, options: PluginOptions, interrupt: Interrupt | None = None
) -> LogSource:
    """Return a server's identity as the source of a slot, over a connection of its own.

    Raises ``CaptureError``, and ``Interrupted`` when ``interrupt`` is set.
    """
    psycopg2 = load_psycopg2()
    with closing(connect_walsender(dsn, interrupt)) as connection:
        try:
            return _identify(connection, slot, options)[0]
        except psycopg2.Error as error:
            raise capture_error(error, slot) from error
        finally:
            if interrupt is not None:
                interrupt.release(connection)


def _identify(connection: Any, slot: str, options: PluginOptions) -> tuple[LogSource, int]:
    """Return a slot's source, with the plugin options that the server supports, and its WAL end."""
    from pgwire_codec.log import LogSource

    cursor = connection.cursor()
    cursor.execute("IDENTIFY_SYSTEM")
    system_identifier, timeline, wal_end, database = cursor.fetchone()
    version = connection.server_version
    source = LogSource(
        system_identifier,
        timeline,
        database,
        slot,
        version,
        options.negotiate(version),
        read_ancestors(cursor, timeline),
    )
    return source, parse_lsn(wal_end)


def start_replication(connection: Any, catalog: Any, request: StreamRequest) -> StartedStream:
    """Check the request, create what is missing, and start the stream.

    ``catalog`` is a cursor of an ordinary connection, for the publications. A walsender keeps what
    its session has looked up in its caches, and then decodes older changes by it: a publication
    that did not exist yet is not missed, though its tables are.

    Raises ``CaptureError``, or ``psycopg2.Error`` when the server refuses something that the
    checks did not cover.
    """
    cursor = connection.cursor()
    pin(cursor)
    source, wal_end_lsn = _identify(connection, request.slot, request.options)
    check_wal_level(cursor)
    if request.plugin_options is None:
        # Before the slot: changes older than a publication cannot be decoded with it.
        ensure_publications(
            catalog,
            request.options.publications,
            request.create_publication,
            may_be_empty=request.options.messages is True,
        )
    slot = ensure_slot(
        cursor,
        request.slot,
        create=request.create_slot,
        temporary=request.temporary,
        two_phase=request.options.two_phase,
        failover=request.failover,
        timeout=request.slot_timeout,
    )
    notes = _two_phase_notes(cursor, request, slot.two_phase)
    publications = request.options.publications
    notes += partition_notes(catalog, publications)
    if not slot.is_new:
        younger = younger_publications(catalog, publications, slot.name)
        notes += [younger_text(name, slot.name) for name in younger]
    notes += failover_notes(
        cursor, slot.name, is_failover=slot.failover, requested=request.failover
    )
    cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'")
    timeout = cursor.fetchone()[0] / 1000 or float("inf")  # 0 turns it off
    cursor.start_replication_expert(
        _start_command(request, request.plugin_options or source.plugin_options)
    )
    return StartedStream(
        source=source,
        wal_end_lsn=wal_end_lsn,
        wal_sender_timeout=timeout,
        confirmed_lsn=slot.confirmed_lsn,
        slot_is_new=slot.is_new,
        notes=notes,
    )


def _start_command(request: StreamRequest, plugin_options: Mapping[str, str]) -> str:
    options = ", ".join(
        f"{quote_identifier(name)} {quote_literal(value)}" for name, value in plugin_options.items()
    )
    return (
        f"START_REPLICATION SLOT {quote_identifier(request.slot)} LOGICAL"
        f" {format_lsn(request.start_lsn)} ({options})"
    )


def _two_phase_notes(cursor: Any, request: StreamRequest, slot_has_it: bool) -> list[str]:
    if not request.options.two_phase:
        if not slot_has_it:
            return []
        return [
            f'replication slot "{request.slot}" was created with two_phase: prepared transactions '
            "are sent at PREPARE although `two_phase` is off"
        ]
    cursor.execute("SELECT current_setting('max_prepared_transactions')::int")
    if cursor.fetchone()[0] > 0:
        return []
    return [
        "`two_phase` is on, but the server has max_prepared_transactions = 0: no transaction can "
        "be prepared. To change that, run ALTER SYSTEM SET max_prepared_transactions = 10; and "
        "restart the server."
    ]
