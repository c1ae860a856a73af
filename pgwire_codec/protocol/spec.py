"""Wire format as data: the fields of each message, in order, with the version they came in.

Source: PostgreSQL's documentation, "Logical Replication Message Formats" and "Streaming
Replication Protocol", and ``src/backend/replication/logical/proto.c``. These
facts are nowhere else in the package: the reference codec reads and writes by these tables, the
message classes are tested against them, and the protocol pages are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PROTOCOL_VERSIONS = (1, 2, 3, 4)


class Wire(Enum):
    """How a field is written. Integers are big-endian."""

    INT8 = "Int8"
    BOOL = "Int8, 0 or 1"
    CHAR = "Byte1"
    INT16 = "Int16"
    INT32 = "Int32"
    UINT32 = "Int32, unsigned"  # OIDs, transaction IDs, epochs
    UINT64 = "Int64, unsigned"  # LSNs
    INT64 = "Int64"  # times: microseconds since 2000-01-01 00:00:00 UTC
    STRING = "String"  # NUL-terminated, in client_encoding
    COUNT16 = "Int16, count of the list that follows"
    COUNT32 = "Int32, count of the list that follows"
    BYTES = "Byten"  # as many as the count said
    REST = "Byten, to the end"
    OIDS = "Int32 each"
    COLUMNS = "columns"
    TUPLE = "TupleData"


class Presence(Enum):
    """When a field is there at all."""

    ALWAYS = "always"
    STREAMED = "inside Stream Start ... Stream Stop"
    MARKED = "when its marker byte is there"
    REMAINING = "when bytes remain"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    ``marker`` is the byte that announces the field. ``alternative_to`` names the field in whose
    stead this one may come, ``together_with`` the one without which it never comes. ``of`` names
    the field that a count belongs to; counts are not kept in the message classes. ``choices`` are
    the letters a CHAR can be.
    """

    name: str
    wire: Wire
    doc: str
    presence: Presence = Presence.ALWAYS
    since: int = 1
    marker: bytes = b""
    alternative_to: str = ""
    together_with: str = ""
    of: str = ""
    choices: bytes = b""


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """One message: its class's name, its tag byte, the first protocol version that has it."""

    name: str
    tag: bytes
    since: int
    fields: tuple[Field, ...]


def _streamed_xid() -> Field:
    return Field(
        "xid",
        Wire.UINT32,
        "The (sub)transaction that made the change; only in streamed transactions.",
        Presence.STREAMED,
        since=2,
    )


def _flags() -> Field:
    return Field("flags", Wire.INT8, "Flags; currently unused.")


def _lsn(name: str, doc: str) -> Field:
    return Field(name, Wire.UINT64, doc)


def _time(name: str, doc: str) -> Field:
    return Field(name, Wire.INT64, f"{doc}, in microseconds since 2000-01-01 UTC.")


def _xid() -> Field:
    return Field("xid", Wire.UINT32, "The transaction's ID.")


def _gid() -> Field:
    return Field("gid", Wire.STRING, "The user-defined name of the prepared transaction.")


def _relation_oid() -> Field:
    return Field("relation_oid", Wire.UINT32, "OID of the relation, as in its Relation message.")


def _old_tuple(presence: Presence) -> Field:
    doc = "The old tuple, under REPLICA IDENTITY FULL."
    return Field("old", Wire.TUPLE, doc, presence, marker=b"O", alternative_to="key")


#: A column of a Relation message.
RELATION_COLUMN = (
    Field("flags", Wire.INT8, "1 marks a column of the replica identity (the key)."),
    Field("name", Wire.STRING, "The column's name."),
    Field("type_oid", Wire.UINT32, "OID of the column's type."),
    Field("type_modifier", Wire.INT32, "The column's atttypmod; -1 for none."),
)

#: Letters of a Relation's replica identity, relreplident.
REPLICA_IDENTITIES = {"d": "default", "n": "nothing", "f": "full", "i": "index"}

#: Kinds of a column of a TupleData. After ``t`` and ``b`` come an Int32 length and the bytes.
TUPLE_KINDS = {
    b"n": "NULL, or not part of the key in a key tuple",
    b"u": "unchanged TOAST value, not sent",
    b"t": "text form",
    b"b": "binary form",
}

#: Fields that Commit and Stream Commit have in common.
_COMMIT = (
    _lsn("commit_lsn", "LSN of the commit record."),
    _lsn("end_lsn", "End LSN of the transaction."),
    _time("commit_time", "Commit time"),
)

#: Fields that Begin Prepare, Prepare and Stream Prepare have in common.
_PREPARE = (
    _lsn("prepare_lsn", "LSN of the prepare."),
    _lsn("end_lsn", "End LSN of the prepared transaction."),
    _time("prepare_time", "Prepare time"),
    _xid(),
    _gid(),
)

MESSAGES = (
    MessageSpec(
        "Begin",
        b"B",
        1,
        (
            _lsn("final_lsn", "LSN of the transaction's commit record (Commit's commit LSN)."),
            _time("commit_time", "Commit time"),
            _xid(),
        ),
    ),
    MessageSpec(
        "Message",
        b"M",
        1,
        (
            _streamed_xid(),
            Field("flags", Wire.INT8, "1: transactional; 0: not."),
            _lsn("lsn", "LSN of the logical decoding message."),
            Field("prefix", Wire.STRING, "The message's prefix."),
            Field("content_length", Wire.COUNT32, "Length of the content.", of="content"),
            Field("content", Wire.BYTES, "The content."),
        ),
    ),
    MessageSpec(
        "Commit",
        b"C",
        1,
        (_flags(), *_COMMIT),
    ),
    MessageSpec(
        "Origin",
        b"O",
        1,
        (
            _lsn("lsn", "LSN of the commit on the origin server; 0 in a streamed transaction."),
            Field("name", Wire.STRING, "The origin's name."),
        ),
    ),
    MessageSpec(
        "Relation",
        b"R",
        1,
        (
            _streamed_xid(),
            Field("oid", Wire.UINT32, "The relation's OID."),
            Field("namespace", Wire.STRING, "The schema's name; empty for pg_catalog."),
            Field("name", Wire.STRING, "The relation's name."),
            Field(
                "replica_identity",
                Wire.CHAR,
                "relreplident: d default, n nothing, f full, i index.",
                choices="".join(REPLICA_IDENTITIES).encode(),
            ),
            Field("n_columns", Wire.COUNT16, "Number of columns.", of="columns"),
            Field("columns", Wire.COLUMNS, "The columns that are published."),
        ),
    ),
    MessageSpec(
        "Type",
        b"Y",
        1,
        (
            _streamed_xid(),
            Field("oid", Wire.UINT32, "The type's OID."),
            Field("namespace", Wire.STRING, "Schema of the type; of a domain's base type."),
            Field("name", Wire.STRING, "Name of the type; of a domain's base type."),
        ),
    ),
    MessageSpec(
        "Insert",
        b"I",
        1,
        (
            _streamed_xid(),
            _relation_oid(),
            Field("new", Wire.TUPLE, "The new tuple.", marker=b"N"),
        ),
    ),
    MessageSpec(
        "Update",
        b"U",
        1,
        (
            _streamed_xid(),
            _relation_oid(),
            Field("key", Wire.TUPLE, "The old key, if it changed.", Presence.MARKED, marker=b"K"),
            _old_tuple(Presence.MARKED),
            Field("new", Wire.TUPLE, "The new tuple.", marker=b"N"),
        ),
    ),
    MessageSpec(
        "Delete",
        b"D",
        1,
        (
            _streamed_xid(),
            _relation_oid(),
            Field("key", Wire.TUPLE, "The old key.", Presence.MARKED, marker=b"K"),
            _old_tuple(Presence.ALWAYS),
        ),
    ),
    MessageSpec(
        "Truncate",
        b"T",
        1,
        (
            _streamed_xid(),
            Field("n_relations", Wire.COUNT32, "Number of relations.", of="relation_oids"),
            Field("options", Wire.INT8, "1: CASCADE; 2: RESTART IDENTITY."),
            Field("relation_oids", Wire.OIDS, "The relations, by OID."),
        ),
    ),
    MessageSpec(
        "StreamStart",
        b"S",
        2,
        (
            _xid(),
            Field("first_segment", Wire.BOOL, "1 for the transaction's first stream block."),
        ),
    ),
    MessageSpec("StreamStop", b"E", 2, ()),
    MessageSpec(
        "StreamCommit",
        b"c",
        2,
        (_xid(), _flags(), *_COMMIT),
    ),
    MessageSpec(
        "StreamAbort",
        b"A",
        2,
        (
            _xid(),
            Field("subxid", Wire.UINT32, "The subtransaction; the same as xid for all of it."),
            Field(
                "abort_lsn",
                Wire.UINT64,
                "LSN of the abort; only with streaming=parallel.",
                Presence.REMAINING,
                since=4,
            ),
            Field(
                "abort_time",
                Wire.INT64,
                "Abort time, in microseconds since 2000-01-01 UTC; only with streaming=parallel.",
                Presence.REMAINING,
                since=4,
                together_with="abort_lsn",
            ),
        ),
    ),
    MessageSpec(
        "BeginPrepare",
        b"b",
        3,
        _PREPARE,
    ),
    MessageSpec(
        "Prepare",
        b"P",
        3,
        (_flags(), *_PREPARE),
    ),
    MessageSpec(
        "CommitPrepared",
        b"K",
        3,
        (
            _flags(),
            _lsn("commit_lsn", "LSN of the commit of the prepared transaction."),
            _lsn("end_lsn", "End LSN of the commit of the prepared transaction."),
            _time("commit_time", "Commit time"),
            _xid(),
            _gid(),
        ),
    ),
    MessageSpec(
        "RollbackPrepared",
        b"r",
        3,
        (
            _flags(),
            _lsn("prepare_end_lsn", "End LSN of the prepared transaction."),
            _lsn("rollback_end_lsn", "End LSN of the rollback of the prepared transaction."),
            _time("prepare_time", "Prepare time"),
            _time("rollback_time", "Rollback time"),
            _xid(),
            _gid(),
        ),
    ),
    MessageSpec(
        "StreamPrepare",
        b"p",
        3,
        (_flags(), *_PREPARE),
    ),
)

#: The frames of the streaming replication protocol that carry the messages, and their answers.
FRAMES = (
    MessageSpec(
        "XLogData",
        b"w",
        1,
        (
            _lsn("wal_start", "LSN of the data; 0 for Relation and Type messages."),
            _lsn("wal_end", "The server's end of WAL."),
            _time("send_time", "The server's clock when it sent"),
            Field("data", Wire.REST, "One message."),
        ),
    ),
    MessageSpec(
        "PrimaryKeepalive",
        b"k",
        1,
        (
            _lsn("wal_end", "The server's end of WAL."),
            _time("send_time", "The server's clock when it sent"),
            Field("reply_requested", Wire.BOOL, "1: answer at once, or be disconnected."),
        ),
    ),
    MessageSpec(
        "StandbyStatusUpdate",
        b"r",
        1,
        (
            _lsn("written_lsn", "The last WAL byte + 1 received and written."),
            _lsn("flushed_lsn", "The last WAL byte + 1 made durable: what the slot may forget."),
            _lsn("applied_lsn", "The last WAL byte + 1 applied."),
            _time("send_time", "The client's clock when it sent"),
            Field("reply_requested", Wire.BOOL, "1: the server should answer at once."),
        ),
    ),
    MessageSpec(
        "HotStandbyFeedback",
        b"h",
        1,
        (
            _time("send_time", "The client's clock when it sent"),
            Field("xmin", Wire.UINT32, "The standby's global xmin; 0 for none."),
            Field("xmin_epoch", Wire.UINT32, "Epoch of xmin."),
            Field("catalog_xmin", Wire.UINT32, "The lowest catalog_xmin of its slots."),
            Field("catalog_xmin_epoch", Wire.UINT32, "Epoch of catalog_xmin."),
        ),
    ),
)
