"""From an open replication connection to a running stream: checks, settings, options, start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgwire_codec.capture.catalog.publications import ensure_publications
from pgwire_codec.capture.catalog.slots import ensure_slot
from pgwire_codec.capture.connection.connect import (
    check_wal_level,
    connect_walsender,
    load_psycopg2,
)
from pgwire_codec.capture.connection.error_hints import explain
from pgwire_codec.capture.connection.session_settings import pin
from pgwire_codec.capture.options import quote_identifier, quote_literal
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgwire_codec.capture.catalog.publications import CreatePublication
    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.options import PluginOptions


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller of a capture asked for."""

    slot: str
    options: PluginOptions
    create_slot: bool
    create_publication: CreatePublication
    temporary: bool
    start_lsn: int
    slot_patience: float
    #: Options of START_REPLICATION as an earlier session gave them: its stream is asked for again.
    repeats: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a server is, and how pgoutput is to be asked there.

    Attributes
    ----------
    system_identifier : str
        The cluster's, as ``IDENTIFY_SYSTEM`` tells it.
    timeline : int
        Of its WAL.
    wal_end_lsn : int
        How far its WAL was flushed.
    database : str
        Name of the database.
    server_version : int
        As ``server_version_num``: 180004 is 18.4.
    plugin_options : dict of str to str
        Of START_REPLICATION.
    """

    system_identifier: str
    timeline: int
    wal_end_lsn: int
    database: str
    server_version: int
    plugin_options: dict[str, str]


@dataclass(frozen=True, slots=True)
class Session:
    """What was agreed with the server."""

    identity: Identity
    wal_sender_timeout: float  # seconds
    confirmed_lsn: int
    slot_is_new: bool
    notes: list[str]


def identify(dsn: str, options: PluginOptions, interrupt: Interrupt | None = None) -> Identity:
    """Ask a server who it is, over a connection of its own.

    Raises ``CaptureError``, and ``Interrupted`` when ``interrupt`` is set.
    """
    psycopg2 = load_psycopg2()
    with closing(connect_walsender(dsn, interrupt)) as connection:
        try:
            return _identify(connection, options)
        except psycopg2.Error as error:
            raise explain(error, "") from error


def _identify(connection: Any, options: PluginOptions) -> Identity:
    cursor = connection.cursor()
    cursor.execute("IDENTIFY_SYSTEM")
    system_identifier, timeline, wal_end, database = cursor.fetchone()
    version = connection.server_version
    return Identity(
        system_identifier,
        timeline,
        parse_lsn(wal_end),
        database,
        version,
        options.negotiate(version),
    )


def start_replication(connection: Any, wanted: Wanted) -> Session:
    """Check everything, create what was asked for, and start the stream.

    Raises ``CaptureError``, or ``psycopg2.Error`` where the server refuses what the checks did not
    foresee.
    """
    cursor = connection.cursor()
    pin(cursor)
    identity = _identify(connection, wanted.options)
    check_wal_level(cursor)
    if wanted.repeats is None:
        plugin_options: Mapping[str, str] = identity.plugin_options
        # Before the slot: changes older than a publication cannot be decoded with it.
        ensure_publications(
            cursor,
            wanted.options.publications,
            wanted.create_publication,
            may_be_empty=wanted.options.messages is True,
        )
    else:
        plugin_options = wanted.repeats  # the publications were there at that time
    slot = ensure_slot(
        cursor,
        wanted.slot,
        create=wanted.create_slot,
        temporary=wanted.temporary,
        two_phase=wanted.options.two_phase,
        patience=wanted.slot_patience,
    )
    notes = _two_phase_notes(cursor, wanted, slot.two_phase)
    cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'")
    timeout = cursor.fetchone()[0] / 1000 or float("inf")  # 0 turns it off
    options = ", ".join(
        f"{quote_identifier(name)} {quote_literal(value)}" for name, value in plugin_options.items()
    )
    cursor.start_replication_expert(
        f"START_REPLICATION SLOT {quote_identifier(wanted.slot)} LOGICAL"
        f" {format_lsn(wanted.start_lsn)} ({options})"
    )
    return Session(
        identity=identity,
        wal_sender_timeout=timeout,
        confirmed_lsn=slot.confirmed_lsn,
        slot_is_new=slot.is_new,
        notes=notes,
    )


def _two_phase_notes(cursor: Any, wanted: Wanted, slot_has_it: bool) -> list[str]:
    if not wanted.options.two_phase:
        if not slot_has_it:
            return []
        return [
            f'Slot "{wanted.slot}" was created with two_phase: prepared transactions come at '
            "PREPARE although `two_phase` is off."
        ]
    cursor.execute("SELECT current_setting('max_prepared_transactions')::int")
    if cursor.fetchone()[0] > 0:
        return []
    return [
        "`two_phase` is on, but the server has max_prepared_transactions = 0: nobody can prepare a "
        "transaction. Run ALTER SYSTEM SET max_prepared_transactions = 10; and restart the server "
        "to change that."
    ]
