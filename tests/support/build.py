"""Messages to feed to a decoder, in a few words, and the messages of captures with their context.

Values of a tuple: a str is sent in text form, bytes in binary form, None is NULL and ``...`` an
unchanged TOAST value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from types import EllipsisType
from typing import Any

import pgwire_codec as pgc
from pgwire_codec.types import TypeRegistry
from tests.support.corpus import Capture, captures

Value = str | bytes | None | EllipsisType

_BUILT_IN = TypeRegistry()


def row(*values: Value) -> pgc.TupleData:
    """A tuple as it goes over the wire."""
    kinds = bytearray()
    sent: list[bytes | None] = []
    for value in values:
        if value is None or value is ...:
            kinds += b"n" if value is None else b"u"
            sent.append(None)
        elif isinstance(value, str):
            kinds += b"t"
            sent.append(value.encode())
        else:
            kinds += b"b"
            sent.append(value)
    return pgc.TupleData(bytes(kinds), tuple(sent))


def column(
    name: str, kind: str | int = "text", *, key: bool = False, typmod: int = -1
) -> pgc.RelationColumn:
    """A column of a Relation; ``kind`` is a built-in type's name, or an OID."""
    if isinstance(kind, str):
        known = _BUILT_IN.lookup_name(kind)
        assert known is not None, kind
        kind = known.oid
    return pgc.RelationColumn(int(key), name, kind, typmod)


def relation(
    oid: int,
    *columns: pgc.RelationColumn,
    name: str = "t",
    namespace: str = "public",
    identity: str = "d",
    xid: int | None = None,
) -> pgc.Relation:
    return pgc.Relation(xid, oid, namespace, name, identity, columns)


#: The table that most tests change: a key, a value, a long value.
T = relation(1, column("id", "int4", key=True), column("v"), column("note"))


def insert(oid: int, *values: Value, xid: int | None = None) -> pgc.Insert:
    return pgc.Insert(xid, oid, row(*values))


def update(
    oid: int,
    new: pgc.TupleData,
    *,
    key: pgc.TupleData | None = None,
    old: pgc.TupleData | None = None,
    xid: int | None = None,
) -> pgc.Update:
    return pgc.Update(xid, oid, key, old, new)


def delete(
    oid: int,
    *,
    key: pgc.TupleData | None = None,
    old: pgc.TupleData | None = None,
    xid: int | None = None,
) -> pgc.Delete:
    return pgc.Delete(xid, oid, key, old)


def truncate(*oids: int, xid: int | None = None) -> pgc.Truncate:
    return pgc.Truncate(xid, 0, oids)


def begin(xid: int = 7, lsn: int = 100, time: int = 0) -> pgc.Begin:
    return pgc.Begin(lsn, time, xid)


def commit(lsn: int = 100, time: int = 0) -> pgc.Commit:
    return pgc.Commit(0, lsn, lsn + 10, time)


def transaction(*inside: Any, xid: int = 7, lsn: int = 100, time: int = 0) -> list[Any]:
    """A plain transaction: Begin, what is in it, Commit."""
    return [begin(xid, lsn, time), *inside, commit(lsn, time)]


def streamed(*inside: Any, xid: int = 7, first: bool = True) -> list[Any]:
    """A stream block; what is in it must carry an xid."""
    return [pgc.StreamStart(xid, first), *inside, pgc.StreamStop()]


def wire(messages: Iterable[Any]) -> list[bytes]:
    """The bytes of messages; bytes stay as they are."""
    return [each if isinstance(each, bytes) else pgc.encode_message(each) for each in messages]


def decode(messages: Iterable[Any], *, lsn: object = None, **options: Any) -> pgc.Changes:
    """Return the changes that a new decoder returns for the messages."""
    return pgc.Decoder(**options).decode(wire(messages), lsn)


def only(changes: pgc.Changes) -> pgc.ChangeBatch:
    """The one batch that there must be."""
    (batch,) = changes.batches
    return batch


def batch(*inside: Any, relation: pgc.Relation = T, **options: Any) -> pgc.ChangeBatch:
    """The one batch of a transaction that makes these changes to a table."""
    return only(decode(transaction(relation, *inside), **options))


def walk(capture: Capture) -> Iterator[tuple[bytes, bool]]:
    """The messages of a capture, each with whether it is inside a stream block."""
    streaming = False
    for data in capture.messages:
        yield data, streaming
        if data[:1] == b"S":
            streaming = True
        elif data[:1] not in b"RYOMIUDT":
            streaming = False


@cache
def shapes() -> tuple[tuple[bytes, bool], ...]:
    """The shortest message of each shape (kind, streamed or not, what is in it) that 18 sent."""
    found: dict[tuple[object, ...], bytes] = {}
    for capture in captures(major=18):
        for data, streaming in walk(capture):
            if len(data) > 400:
                continue
            message = pgc.decode_message(data, streaming=streaming)
            shape = (type(message), streaming, *_content(message))
            if shape not in found or len(data) < len(found[shape]):
                found[shape] = data
    return tuple((data, bool(shape[1])) for shape, data in found.items())


def _content(message: Any) -> tuple[object, ...]:
    """Features that distinguish messages of one kind."""
    tuples = [getattr(message, name, None) for name in ("key", "old", "new")]
    kinds = tuple(None if each is None else frozenset(each.kinds) for each in tuples)
    identity = getattr(message, "replica_identity", None)
    lists = [getattr(message, name, None) for name in ("columns", "relation_oids", "content")]
    filled = tuple(None if each is None else min(len(each), 2) for each in lists)
    return (*kinds, identity, *filled, getattr(message, "abort_lsn", None) is None)
