"""A replication slot's stream as an iterator of batches."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.connection.connect import (
    connect,
    connect_walsender,
    current_lsn,
    load_psycopg2,
)
from pgwire_codec.capture.connection.error_hints import capture_error, capture_error_of_code
from pgwire_codec.capture.connection.notices import (
    NoticeListener,
    ServerNotices,
    missing_publication,
)
from pgwire_codec.capture.connection.replication_connection import (
    PublicationSkipped,
    ReplicationConnection,
    ReplicationEnded,
)
from pgwire_codec.capture.options import (
    RECEIVE_TIMEOUT,
    SLOT_TIMEOUT,
    BatchLimits,
    PluginOptions,
)
from pgwire_codec.capture.receiver import Receiver
from pgwire_codec.capture.start_replication import StreamRequest, start_replication
from pgwire_codec.errors import CaptureError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.capture.catalog.publications import CreatePublication
    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.options import PluginKeywords
    from pgwire_codec.log import LogSource

_LONGEST_STATUS_INTERVAL: Final = 10.0  # seconds


class Capture:
    """A live stream of pgoutput messages from one replication slot.

    A context manager: entering connects, checks, and starts the stream; leaving closes it. The
    session settings that the text of values depends on are pinned, and the server's highest
    protocol version is used.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI of the database to capture from.
    slot : str
        Name of the replication slot.
    options : PluginOptions, optional
        Options of pgoutput. Its fields can also be passed as keyword arguments, and
        ``publication`` has to be passed in one of the two ways.
    create_slot : bool
        Create the slot if it does not exist. That waits for the end of every transaction that has
        written.
    create_publication : False, "all tables" or list of str
        Create the publication if it does not exist, for these tables (named as in SQL).
    temporary : bool
        Create a slot that the server drops when the capture closes.
    failover : bool
        Create a slot that standbys synchronize, so that it survives a failover. PostgreSQL 17 and
        later. An existing slot that is not one is a remark in ``notes``.
    start_lsn : int
        LSN to start at; 0, or anything before the last confirmed LSN, starts there.
    slot_timeout : float
        Seconds to wait for a slot that another connection still holds.
    receive_timeout : float
        Seconds of the server's silence, including an unanswered request for a reply, after which
        the connection counts as lost.
    auto_advance : bool
        Whether the slot advances on its own over WAL without changes for it, once all that was
        received is confirmed. False: only :meth:`confirm` advances it; see :attr:`confirmable_lsn`.
    interrupt : Interrupt, optional
        Ends entering from another thread, whatever it waits for, as for the creation of a slot:
        :class:`Interrupted` or ``CaptureError`` is raised.
    notices : ServerNotices, optional
        Receives the server's notices; by default an object of this capture's own.
    **keywords
        Fields of :class:`PluginOptions`; they go over those of ``options``.

    Attributes
    ----------
    source : pgwire_codec.log.LogSource
        Identity of server and slot, and pgoutput's options; set on entering, as are all below.
    wal_end_lsn : int
        End of the server's flushed WAL on entering.
    wal_sender_timeout : float
        Seconds; ``inf`` if the server has turned it off.
    slot_is_new : bool
        Whether the slot was created on entering.
    notes : list of str
        Remarks that are not errors.
    notices : ServerNotices
        Notices and warnings that the server sends while the stream is read.

    Examples
    --------
    >>> with Capture("dbname=shop", slot="s", publication="p", streaming="on") as capture:
    ...     for batch in capture.batches(until_lsn=capture.current_lsn()):
    ...         capture.confirm(batch.confirm_lsn)

    Notes
    -----
    A capture has no background thread. While the consumer handles a batch, nothing is read and
    nothing is answered, and the server drops a connection that is silent for
    ``wal_sender_timeout`` (a minute by default). A status is sent before a batch is returned, at
    most once in a second, so that a consumer may take almost that long for one batch. A slower one
    calls :meth:`keepalive` meanwhile.

    Delivery is at least once: the next capture receives again whatever was not confirmed, and a
    streamed transaction from its start.

    PostgreSQL documentation, "Streaming Replication Protocol" and "Logical Streaming Replication
    Protocol".
    """

    source: LogSource
    wal_end_lsn: int
    wal_sender_timeout: float
    slot_is_new: bool
    notes: list[str]

    def __init__(
        self,
        dsn: str,
        *,
        slot: str,
        options: PluginOptions | None = None,
        create_slot: bool = False,
        create_publication: CreatePublication = False,
        temporary: bool = False,
        failover: bool = False,
        start_lsn: int = 0,
        slot_timeout: float = SLOT_TIMEOUT,
        receive_timeout: float = RECEIVE_TIMEOUT,
        auto_advance: bool = True,
        interrupt: Interrupt | None = None,
        notices: ServerNotices | None = None,
        **keywords: Unpack[PluginKeywords],
    ) -> None:
        if temporary and failover:
            raise OptionError("a `temporary` slot cannot be a `failover` slot")
        self._dsn = dsn
        self._request = StreamRequest(
            slot=slot,
            options=PluginOptions.of(options, keywords),
            create_slot=create_slot or temporary,
            create_publication=create_publication,
            temporary=temporary,
            failover=failover,
            start_lsn=start_lsn,
            slot_timeout=slot_timeout,
        )
        self._receive_timeout = receive_timeout
        self._auto_advance = auto_advance
        self._interrupt = interrupt
        self.notices = notices or ServerNotices()
        self._connection: ReplicationConnection | None = None

    def repeat(self, plugin_options: Mapping[str, str]) -> Capture:
        """Request the stream of an earlier session again; call it before entering.

        Parameters
        ----------
        plugin_options : mapping of str to str
            Options that START_REPLICATION had at that time. They are used as they are, and the
            publications are not checked.
        """
        self._request = replace(self._request, plugin_options=plugin_options)
        return self

    def __enter__(self) -> Capture:
        psycopg2 = load_psycopg2()
        connection = connect_walsender(self._dsn, self._interrupt)
        try:
            self._start(connection)
            self.keepalive()
        except BaseException as error:
            self.close()
            connection.close()
            if isinstance(error, psycopg2.Error):
                raise capture_error(error, self._request.slot) from error
            raise
        finally:
            if self._interrupt is not None:
                self._interrupt.release(connection)
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def confirmed_lsn(self) -> int:
        """LSN that has been confirmed to the server, which may discard WAL up to it."""
        return self._receiver.positions.confirmed

    @property
    def received_lsn(self) -> int:
        """Highest LSN that the server has reported."""
        return self._receiver.positions.received

    @property
    def confirmable_lsn(self) -> int:
        """LSN that may be confirmed once every delivered batch is durable.

        It is beyond the last transaction if the server has reported that it has sent everything up
        to there.
        """
        return self._receiver.confirmable

    @property
    def reply_requested(self) -> bool:
        """True if the server has requested a status since the last :meth:`confirm`.

        A server that shuts down requests one, and waits until all of its WAL is confirmed.
        """
        return self._receiver.reply_requested

    def has_passed(self, lsn: int) -> bool:
        """Return whether every transaction that ends up to ``lsn`` was received in full."""
        return self._receiver.positions.has_passed(lsn)

    def batches(
        self,
        *,
        max_messages: int = BatchLimits.max_messages,
        max_bytes: int = BatchLimits.max_bytes,
        max_seconds: float = BatchLimits.max_seconds,
        until_lsn: int | None = None,
        idle_seconds: float | None = None,
    ) -> Iterator[MessageBatch]:
        """Yield the messages as they arrive, in batches that are never empty.

        Parameters
        ----------
        max_messages, max_bytes : int
            A batch ends once it has this many messages, or at least this many bytes of them. It
            may end anywhere, also inside a transaction.
        max_seconds : float
            A batch ends this long after its first message, at the latest.
        until_lsn : int, optional
            End once every transaction that ends up to here was received, and the transaction that
            is being received at that moment is complete. A streamed one may still be open. See
            :meth:`current_lsn`.
        idle_seconds : float, optional
            End when no message has arrived for this long. With neither of the two, never end.

        Raises
        ------
        CaptureError
            When the server ends the stream, after the messages that had arrived were yielded; when
            it goes on without a publication that does not exist (PostgreSQL 18 and later), after
            the messages before that were yielded; when it sends a frame that is not of the
            streaming replication protocol. Messages are not decoded.
        """
        limits = BatchLimits(max_messages, max_bytes, max_seconds, until_lsn, idle_seconds)
        self._require_open()
        return self._batches(limits)

    def read(
        self,
        *,
        max_messages: int = BatchLimits.max_messages,
        max_bytes: int = BatchLimits.max_bytes,
        max_seconds: float = BatchLimits.max_seconds,
        until_lsn: int | None = None,
        until_commit: bool = False,
    ) -> MessageBatch:
        """Return the next batch, or an empty one if none arrives for ``max_seconds``.

        Parameters and errors as for :meth:`batches`. With ``until_lsn`` a batch ends there, and
        later messages are left unread; :meth:`has_passed` returns whether it was reached. With
        ``until_commit`` it ends with the first transaction that ends, too.
        """
        limits = BatchLimits(
            max_messages, max_bytes, max_seconds, until_lsn, max_seconds, until_commit
        )
        self._require_open()
        with self._explained():
            return self._receiver.read(limits)

    def confirm(self, lsn: int) -> None:
        """Report to the server that everything that ends up to ``lsn`` is durable.

        The server will not send that again, and may discard it. Going back has no effect.

        Parameters
        ----------
        lsn : int
            Usually :attr:`MessageBatch.confirm_lsn`.

        Raises
        ------
        CaptureError
            When it is beyond the delivered messages.
        """
        self._require_open()
        with self._explained():
            self._receiver.confirm(lsn)

    def wake(self) -> None:
        """Make :meth:`read` return early in the thread that waits in it, or calls it next."""
        if self._connection is not None:
            self._connection.wake()

    def keepalive(self) -> None:
        """Send a status, so that the server keeps the connection; takes microseconds.

        Raises ``CaptureError`` when the server has ended the stream.
        """
        self._require_open()
        with self._explained():
            self._receiver.send_status()

    def current_lsn(self) -> int:
        """Return the LSN up to which the server has flushed its WAL, over another connection.

        A transaction that was committed before the call ends at or before it, unless it was
        committed with ``synchronous_commit = off``.
        """
        return current_lsn(self._dsn)

    def _start(self, connection: Any) -> None:
        listener = NoticeListener(connection)
        catalog = connect(self._dsn, self._interrupt)
        try:
            started = start_replication(connection, catalog.cursor(), self._request)
        finally:
            if self._interrupt is not None:
                self._interrupt.release(catalog)
            catalog.close()
        self.source = started.source
        self.wal_end_lsn = started.wal_end_lsn
        self.wal_sender_timeout = started.wal_sender_timeout
        self.slot_is_new = started.slot_is_new
        self.notes = started.notes
        self._connection = ReplicationConnection(connection, listener, self.notices)
        self._receiver = Receiver(
            self._connection,
            started.confirmed_lsn,
            status_interval=min(_LONGEST_STATUS_INTERVAL, started.wal_sender_timeout / 4),
            receive_timeout=self._receive_timeout,
            auto_advance=self._auto_advance,
        )
        # A consumer that starts at a later LSN has all that is before it.
        self._receiver.delivered = max(started.confirmed_lsn, self._request.start_lsn)

    def _batches(self, limits: BatchLimits) -> Iterator[MessageBatch]:
        with self._explained():
            yield from self._receiver.batches(limits)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise ``CaptureError`` in place of ``ReplicationEnded``."""
        try:
            yield
        except PublicationSkipped as end:
            names, slot = self._request.options.publications, self._request.slot
            raise missing_publication(end.notice, names, self.confirmable_lsn, slot) from end
        except ReplicationEnded as end:
            raise capture_error_of_code(end.sqlstate, end.message, self._request.slot) from end

    def _require_open(self) -> None:
        if self._connection is None:
            raise CaptureError(
                "the capture is not open", hint="Use the capture as a context manager."
            )
