"""Messages of a slot read through SQL, which leaves them in the slot."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec.capture.batch import MessageBatch
from pgwire_codec.capture.catalog.publications import require_publications
from pgwire_codec.capture.catalog.slots import existing_slot
from pgwire_codec.capture.connection.connect import check_wal_level, connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.connection.notices import NoticeListener, missing_publication
from pgwire_codec.capture.connection.session_settings import pinned_transaction
from pgwire_codec.capture.options import SLOT_TIMEOUT, PluginOptions
from pgwire_codec.capture.positions import Positions
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from pgwire_codec.capture.options import PluginKeywords

_MAX_BYTES: Final = (1 << 31) - 1  # a batch's offsets have 32 bits


def peek(
    source: Any,
    *,
    slot: str,
    options: PluginOptions | None = None,
    upto_lsn: int | None = None,
    upto_messages: int | None = None,
    slot_timeout: float = SLOT_TIMEOUT,
    **keywords: Unpack[PluginKeywords],
) -> MessageBatch:
    """Read a slot's messages by ``pg_logical_slot_peek_binary_changes`` and consume none.

    Parameters
    ----------
    source : str or psycopg2 connection
        A DSN, or an open connection, which keeps its settings and its open transaction.
    slot, options, slot_timeout, **keywords
        As for :class:`~pgwire_codec.capture.Capture`; slot and publication have to exist.
    upto_lsn, upto_messages : int, optional
        Stop after the transaction with which the LSN or the number is reached.

    Returns
    -------
    MessageBatch
        All messages at once: the server and this process hold them in memory. ``lsn`` and ``xid``
        are as the function returns them: unlike a walsender it reports a Relation's LSN. ``time``
        is NaT throughout.

    Raises
    ------
    CaptureError
        As for :class:`~pgwire_codec.capture.Capture`; also when a publication does not exist at one
        of the changes.
    """
    wanted = PluginOptions.of(options, keywords)
    psycopg2 = load_psycopg2()
    connection = connect(source) if isinstance(source, str) else source
    try:
        with pinned_transaction(connection) as cursor:
            plugin_options = wanted.negotiate(connection.server_version)
            confirmed_lsn = _check(cursor, slot, wanted, slot_timeout)
            with closing(NoticeListener(connection, forwards=True)) as listener:
                cursor.execute(
                    "SELECT lsn, xid::text::bigint, data"
                    " FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, VARIADIC %s::text[])",
                    (
                        slot,
                        None if upto_lsn is None else format_lsn(upto_lsn),
                        upto_messages,
                        [item for pair in plugin_options.items() for item in pair],
                    ),
                )
                rows = cursor.fetchall()
            for notice, _ in listener.take():
                if notice.skips_publication():
                    raise missing_publication(notice, wanted.publications, confirmed_lsn, slot)
    except psycopg2.Error as error:
        raise capture_error(error, slot) from error
    finally:
        if connection is not source:
            connection.close()
    return _batch(rows, confirmed_lsn)


def _check(cursor: Any, slot: str, options: PluginOptions, slot_timeout: float) -> int:
    """Check settings, publications and slot; return the slot's confirmed LSN."""
    check_wal_level(cursor)
    publications = options.publications
    require_publications(cursor, publications, may_be_empty=options.messages is True)
    return existing_slot(cursor, slot, slot_timeout).confirmed_lsn


def _batch(rows: Sequence[tuple[str, int, memoryview]], confirmed_lsn: int) -> MessageBatch:
    data = [bytes(row[2]) for row in rows]
    lsn = np.array([parse_lsn(row[0]) for row in rows], dtype=np.uint64)
    if sum(map(len, data)) > _MAX_BYTES:
        raise CaptureError(
            f"the slot has {sum(map(len, data)):,} bytes of messages, more than fit into one batch",
            hint="Pass upto_messages or upto_lsn, or read the slot with Capture.",
        )
    positions = Positions(confirmed_lsn)
    positions.add_messages(np.frombuffer(bytes(message[0] for message in data), np.uint8), lsn)
    return MessageBatch(
        buffer=np.frombuffer(b"".join(data), np.uint8),
        offsets=np.cumsum([0, *map(len, data)], dtype=np.int32),
        lsn=lsn,
        time=np.full(len(rows), "NaT", dtype="datetime64[us]"),
        xid=np.array([row[1] for row in rows], dtype=np.uint32),
        first=0,
        confirm_lsn=positions.required,
    )
