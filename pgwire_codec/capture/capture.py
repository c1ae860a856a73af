"""A replication connection as an iterator of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.capture.connection.connect import connect_walsender, current_lsn, load_psycopg2
from pgwire_codec.capture.connection.error_hints import explain, explain_code
from pgwire_codec.capture.connection.replication_connection import CopyBoth, StreamEnded
from pgwire_codec.capture.options import (
    Origin,
    PluginOptions,
    Streaming,
    publication_names,
)
from pgwire_codec.capture.receiver import Limits, Receiver
from pgwire_codec.capture.start_replication import Identity, Wanted, start_replication
from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from pgwire_codec.capture.batch import Batch
    from pgwire_codec.capture.catalog.publications import CreatePublication
    from pgwire_codec.capture.connection.interrupt import Interrupt

_LONGEST_STATUS_INTERVAL: Final = 10.0  # seconds


class Capture:
    """A live stream of pgoutput messages from one replication slot.

    A context manager: entering connects, checks, and starts the stream; leaving closes it. Session
    settings that values depend on are pinned (see :mod:`pgwire_codec.capture.connection.session_settings`), and the
    highest protocol version of the server is used.

    Parameters
    ----------
    dsn : str
        libpq connection string or URI of the database to capture from.
    slot : str
        Name of the replication slot.
    publication : str or sequence of str
        Names of the publications.
    create_slot : bool
        Create the slot when it does not exist. Waits for transactions that are writing to end.
    create_publication : False, "all tables" or list of str
        Create the publication when it does not exist, for these tables (named as in SQL).
    temporary : bool
        Create a slot that the server drops when the capture closes.
    binary, streaming, two_phase, messages, origin
        As :class:`~pgwire_codec.capture.PluginOptions`.
    start_lsn : int
        Where to start; 0, or anything before it, is what was last confirmed.
    slot_patience : float
        Seconds to wait for a slot that another connection still holds.
    receive_timeout : float
        Seconds of silence, an unanswered request for a sign of life among them, after which the
        connection counts as lost.
    auto_advance : bool
        Whether the slot advances on its own over WAL that holds nothing for it, once all that was
        received is confirmed. False: only :meth:`confirm` advances it; see :attr:`confirmable_lsn`.

    interrupt : Interrupt, optional
        Ends entering from another thread, whatever the server is waited for, as for the creation
        of a slot: :class:`Interrupted` or ``CaptureError`` is raised.

    Attributes
    ----------
    identity : Identity
        Who the server is; set on entering, as are all below.
    plugin_options : dict of str to str
        What was agreed with the server.
    server_version : int
        As ``server_version_num``: 180004 is 18.4.
    wal_sender_timeout : float
        Seconds; ``inf`` where the server has it off.
    slot_is_new : bool
        Whether the slot was created on entering.
    notes : list of str
        What is worth knowing and is no error.

    Notes
    -----
    No thread runs behind it. While a batch is with the consumer nothing is read and nothing
    answered, and the server drops a connection that is silent for ``wal_sender_timeout`` (a minute
    unless configured). A status goes out just before a batch is handed over, so that a consumer
    may take that long for one batch; one that takes longer calls :meth:`keepalive` meanwhile.

    Delivery is at least once: what was not confirmed comes again with the next capture, and a
    streamed transaction comes again from its start.

    PostgreSQL documentation, "Streaming Replication Protocol" and "Logical Streaming Replication
    Protocol".
    """

    identity: Identity
    plugin_options: dict[str, str]
    server_version: int
    wal_sender_timeout: float
    slot_is_new: bool
    notes: list[str]

    def __init__(
        self,
        dsn: str,
        *,
        slot: str,
        publication: str | Sequence[str],
        create_slot: bool = False,
        create_publication: CreatePublication = False,
        temporary: bool = False,
        binary: bool = False,
        streaming: Streaming = "off",
        two_phase: bool = False,
        messages: bool | None = None,
        origin: Origin | None = None,
        start_lsn: int = 0,
        slot_patience: float = 5.0,
        receive_timeout: float = 60.0,
        auto_advance: bool = True,
        interrupt: Interrupt | None = None,
    ) -> None:
        self._set_up(
            dsn,
            Wanted(
                slot=slot,
                options=PluginOptions(
                    publication_names(publication), binary, streaming, two_phase, messages, origin
                ),
                create_slot=create_slot or temporary,
                create_publication=create_publication,
                temporary=temporary,
                start_lsn=start_lsn,
                slot_patience=slot_patience,
            ),
            receive_timeout,
            auto_advance,
            interrupt,
        )

    @classmethod
    def of(
        cls,
        dsn: str,
        wanted: Wanted,
        *,
        receive_timeout: float,
        interrupt: Interrupt | None,
    ) -> Capture:
        """Return a capture that only :meth:`confirm` advances, for the package's own use."""
        capture = cls.__new__(cls)
        capture._set_up(dsn, wanted, receive_timeout, False, interrupt)
        return capture

    def _set_up(
        self,
        dsn: str,
        wanted: Wanted,
        receive_timeout: float,
        auto_advance: bool,
        interrupt: Interrupt | None,
    ) -> None:
        self._dsn = dsn
        self._slot = wanted.slot
        self._receive_timeout = receive_timeout
        self._auto_advance = auto_advance
        self._interrupt = interrupt
        self._wanted = wanted
        self._stream: CopyBoth | None = None

    def __enter__(self) -> Capture:
        psycopg2 = load_psycopg2()
        connection = connect_walsender(self._dsn, self._interrupt)
        try:
            self._begin(connection)
            self.keepalive()
        except BaseException as error:
            self.close()
            connection.close()
            if isinstance(error, psycopg2.Error):
                raise explain(error, self._slot) from error
            raise
        finally:
            if self._interrupt is not None:
                self._interrupt.release(connection)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; again does nothing. What was not confirmed will be sent again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @property
    def confirmed_lsn(self) -> int:
        """What the server was told it may forget."""
        return self._receiver.progress.confirmed

    @property
    def received_lsn(self) -> int:
        """The highest position that the server has told."""
        return self._receiver.progress.received

    @property
    def confirmable_lsn(self) -> int:
        """What may be confirmed once every batch that was delivered is durable.

        It is beyond the last transaction when the server has said that it has sent all up to
        there.
        """
        return self._receiver.confirmable

    @property
    def reply_wanted(self) -> bool:
        """Whether the server has asked for a status since the last :meth:`confirm`.

        One that shuts down asks, and waits until all of its WAL is confirmed.
        """
        return self._receiver.reply_wanted

    def has_passed(self, lsn: int) -> bool:
        """Whether every transaction that ends up to ``lsn`` was received, and none is cut."""
        return self._receiver.progress.has_passed(lsn)

    def batches(
        self,
        *,
        max_messages: int = 50_000,
        max_bytes: int = 16 << 20,
        max_seconds: float = 1.0,
        until_lsn: int | None = None,
        idle_seconds: float | None = None,
    ) -> Iterator[Batch]:
        """Yield the messages as they arrive, in batches that are never empty.

        Parameters
        ----------
        max_messages, max_bytes : int
            A batch ends once it has this many messages, or at least this many bytes of them. It
            may end anywhere, also inside a transaction.
        max_seconds : float
            A batch ends this long after its first message, at the latest.
        until_lsn : int, optional
            End once every transaction that ends up to here was received, and the one that is
            being received then is complete; a streamed one may still run. See
            :meth:`current_lsn`.
        idle_seconds : float, optional
            End when no message arrived for so long. With neither of the two: never.

        Raises
        ------
        CaptureError
            When the server ends the stream; what had arrived is yielded before. When it sends a
            frame that is not of the streaming replication protocol. Messages are not decoded.
        """
        limits = Limits(max_messages, max_bytes, max_seconds, until_lsn, idle_seconds)
        self._open_stream()
        return self._batches(limits)

    def read(
        self,
        *,
        max_messages: int = 50_000,
        max_bytes: int = 16 << 20,
        max_seconds: float = 1.0,
        until_lsn: int | None = None,
    ) -> Batch:
        """Give the next batch, after ``max_seconds`` of nothing an empty one.

        Parameters and errors as of :meth:`batches`. With ``until_lsn`` a batch ends there, and
        what comes after it stays; :meth:`has_passed` says whether it does.
        """
        limits = Limits(max_messages, max_bytes, max_seconds, until_lsn, max_seconds)
        self._open_stream()
        try:
            return self._receiver.read(limits)
        except StreamEnded as end:
            raise explain_code(end.sqlstate, end.message, self._slot) from end

    def confirm(self, lsn: int) -> None:
        """Tell the server that everything that ends up to ``lsn`` is durable.

        It will not send that again, and may remove it. Going back has no effect.

        Parameters
        ----------
        lsn : int
            Usually :attr:`Batch.confirm_lsn`.

        Raises
        ------
        CaptureError
            When it is beyond what was delivered.
        """
        self._open_stream()
        try:
            self._receiver.confirm(lsn)
        except StreamEnded as end:
            raise explain_code(end.sqlstate, end.message, self._slot) from end

    def keepalive(self) -> None:
        """Tell the server that the consumer lives, and what is confirmed; takes microseconds.

        Raises ``CaptureError`` when the server has ended the stream.
        """
        self._open_stream()
        try:
            self._receiver.send_status()
        except StreamEnded as end:
            raise explain_code(end.sqlstate, end.message, self._slot) from end

    def current_lsn(self) -> int:
        """Ask the server how far its WAL is flushed, over a connection of its own.

        A transaction that was committed before the call ends at or before the answer, unless it
        was committed with ``synchronous_commit = off``.
        """
        return current_lsn(self._dsn)

    def _begin(self, connection: Any) -> None:
        session = start_replication(connection, self._wanted)
        self.identity = session.identity
        self.server_version = session.identity.server_version
        self.plugin_options = session.identity.plugin_options
        self.wal_sender_timeout = session.wal_sender_timeout
        self.slot_is_new = session.slot_is_new
        self.notes = session.notes
        self._stream = CopyBoth(connection)
        self._receiver = Receiver(
            self._stream,
            session.confirmed_lsn,
            status_interval=min(_LONGEST_STATUS_INTERVAL, session.wal_sender_timeout / 4),
            receive_timeout=self._receive_timeout,
            auto_advance=self._auto_advance,
        )
        # Who starts there has all that is before it.
        self._receiver.delivered = max(session.confirmed_lsn, self._wanted.start_lsn)

    def _batches(self, limits: Limits) -> Iterator[Batch]:
        try:
            yield from self._receiver.batches(limits)
        except StreamEnded as end:
            raise explain_code(end.sqlstate, end.message, self._slot) from end

    def _open_stream(self) -> CopyBoth:
        if self._stream is None:
            raise CaptureError("The capture is not open. Use it as a context manager.")
        return self._stream
