"""A slot's messages through SQL, which leaves them in the slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.batch import Batch
from pgwire_codec.capture.catalog.publications import ensure_publications
from pgwire_codec.capture.catalog.slots import ensure_slot
from pgwire_codec.capture.connection.connect import check_wal_level, connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import explain
from pgwire_codec.capture.connection.session_settings import pinned_transaction
from pgwire_codec.capture.options import Origin, PluginOptions, Streaming, publication_names
from pgwire_codec.capture.positions import Progress
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_BYTES: Final = (1 << 31) - 1  # a batch counts them in 32 bits


def peek(
    source: Any,
    *,
    slot: str,
    publication: str | Sequence[str],
    binary: bool = False,
    streaming: Streaming = "off",
    two_phase: bool = False,
    messages: bool | None = None,
    origin: Origin | None = None,
    upto_lsn: int | None = None,
    upto_messages: int | None = None,
    slot_patience: float = 5.0,
) -> Batch:
    """Read a slot's messages by ``pg_logical_slot_peek_binary_changes`` and consume none.

    Parameters
    ----------
    source : str or psycopg2 connection
        A DSN, or an open connection, which keeps its settings and its open transaction.
    slot, publication, binary, streaming, two_phase, messages, origin, slot_patience
        As :class:`~pgwire_codec.capture.Capture`; slot and publication have to exist.
    upto_lsn, upto_messages : int, optional
        Stop after the transaction with which the position or the count is reached.

    Returns
    -------
    Batch
        All messages at once: the server and this process hold them in memory. ``lsn`` and ``xid``
        are as the function gives them: unlike a walsender it tells a Relation's LSN. ``time`` is
        NaT throughout.

    Raises
    ------
    CaptureError
        As :class:`~pgwire_codec.capture.Capture`.
    """
    options = PluginOptions(
        publication_names(publication), binary, streaming, two_phase, messages, origin
    )
    psycopg2 = load_psycopg2()
    connection = connect(source) if isinstance(source, str) else source
    try:
        with pinned_transaction(connection) as cursor:
            plugin_options = options.negotiate(connection.server_version)
            check_wal_level(cursor)
            ensure_publications(
                cursor, options.publications, False, may_be_empty=options.messages is True
            )
            confirmed = ensure_slot(
                cursor,
                slot,
                create=False,
                temporary=False,
                two_phase=two_phase,
                patience=slot_patience,
            ).confirmed_lsn
            arguments = [item for pair in plugin_options.items() for item in pair]
            cursor.execute(
                "SELECT lsn, xid::text::bigint, data"
                " FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, VARIADIC %s::text[])",
                (
                    slot,
                    None if upto_lsn is None else format_lsn(upto_lsn),
                    upto_messages,
                    arguments,
                ),
            )
            rows = cursor.fetchall()
    except psycopg2.Error as error:
        raise explain(error, slot) from error
    finally:
        if connection is not source:
            connection.close()
    data = [bytes(row[2]) for row in rows]
    lsn = np.array([parse_lsn(row[0]) for row in rows], dtype=np.uint64)
    if sum(map(len, data)) > _MAX_BYTES:
        raise CaptureError(
            f"The slot holds {sum(map(len, data)):,} bytes of messages, more than one batch can. "
            "Pass upto_messages or upto_lsn, or read it with Capture."
        )
    progress = Progress(confirmed)
    progress.messages(np.frombuffer(bytes(message[0] for message in data), np.uint8), lsn)
    return Batch(
        buffer=np.frombuffer(b"".join(data), np.uint8),
        offsets=np.cumsum([0, *map(len, data)], dtype=np.int32),
        lsn=lsn,
        time=np.full(len(rows), "NaT", dtype="datetime64[us]"),
        xid=np.array([row[1] for row in rows], dtype=np.uint32),
        first=0,
        confirm_lsn=progress.required,
    )
