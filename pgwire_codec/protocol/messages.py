"""Messages of the protocol: one frozen dataclass each, with its fields in wire order.

The fields are those of :mod:`pgwire_codec.protocol.spec`, which documents each, less the counts.
LSNs are ints (:func:`pgwire_codec.format_lsn` writes one as text). Times are ints, too:
microseconds since 2000-01-01 00:00:00 UTC, as on the wire. ``xid`` is None if a message carries it
only inside a stream block, and was not in one.

Source: PostgreSQL's documentation, "Logical Replication Message Formats" and "Streaming
Replication Protocol".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TupleData:
    """The columns of a tuple.

    ``kinds`` has one byte a column: ``n`` NULL (in a key tuple: not part of the key), ``u``
    unchanged TOAST, ``t`` text, ``b`` binary. ``values`` has the bytes for ``t`` and ``b``, None
    for the others; ``b""`` is an empty value, not NULL.
    """

    kinds: bytes
    values: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a Relation: ``flags`` is 1 for a column of the replica identity."""

    flags: int
    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction that is committed begins; ``final_lsn`` is its Commit's ``commit_lsn``."""

    final_lsn: int
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Message:
    """A logical decoding message (``pg_logical_emit_message``); ``flags`` 1: transactional."""

    xid: int | None
    flags: int
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction that the last Begin began is complete."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction came to the publisher from this replication origin."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as published: its columns' names and types. Comes before its first change."""

    xid: int | None
    oid: int
    namespace: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """A type that is not built in; for a domain, ``namespace`` and ``name`` are its base type's."""

    xid: int | None
    oid: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A row is new."""

    xid: int | None
    relation_oid: int
    new: TupleData


@dataclass(frozen=True, slots=True)
class Update:
    """A row changed; ``key`` or ``old`` is its old identity, where the server sent one."""

    xid: int | None
    relation_oid: int
    key: TupleData | None
    old: TupleData | None
    new: TupleData


@dataclass(frozen=True, slots=True)
class Delete:
    """A row is gone; either ``key`` or ``old`` identifies it."""

    xid: int | None
    relation_oid: int
    key: TupleData | None
    old: TupleData | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """The relations are emptied; ``options``: 1 CASCADE, 2 RESTART IDENTITY."""

    xid: int | None
    options: int
    relation_oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A block of a transaction in progress begins."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The block of a transaction in progress ends."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A streamed transaction is committed."""

    xid: int
    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A streamed transaction (``subxid == xid``) or a part of it is rolled back.

    ``abort_lsn`` and ``abort_time`` come with ``streaming=parallel`` only.
    """

    xid: int
    subxid: int
    abort_lsn: int | None
    abort_time: int | None


@dataclass(frozen=True, slots=True)
class BeginPrepare:
    """A transaction that is prepared (``PREPARE TRANSACTION``) begins."""

    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """The transaction that the last BeginPrepare began is complete, and prepared."""

    flags: int
    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """A prepared transaction is committed."""

    flags: int
    commit_lsn: int
    end_lsn: int
    commit_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """A prepared transaction is rolled back."""

    flags: int
    prepare_end_lsn: int
    rollback_end_lsn: int
    prepare_time: int
    rollback_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamPrepare:
    """A streamed transaction is prepared."""

    flags: int
    prepare_lsn: int
    end_lsn: int
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class XLogData:
    """Server to client: one message, in ``data``."""

    wal_start: int
    wal_end: int
    send_time: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PrimaryKeepalive:
    """Server to client: still here."""

    wal_end: int
    send_time: int
    reply_requested: bool


@dataclass(frozen=True, slots=True)
class StandbyStatusUpdate:
    """Client to server: how far it has written, made durable and applied."""

    written_lsn: int
    flushed_lsn: int
    applied_lsn: int
    send_time: int
    reply_requested: bool


@dataclass(frozen=True, slots=True)
class HotStandbyFeedback:
    """Client to server: which rows it still needs."""

    send_time: int
    xmin: int
    xmin_epoch: int
    catalog_xmin: int
    catalog_xmin_epoch: int


LogicalMessage = (
    Begin
    | Message
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | CommitPrepared
    | RollbackPrepared
    | StreamPrepare
)

Frame = XLogData | PrimaryKeepalive | StandbyStatusUpdate | HotStandbyFeedback
