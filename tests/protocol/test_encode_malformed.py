"""Messages that encode_message refuses: it never writes bytes that decode as something else."""

from __future__ import annotations

from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import TupleData

EMPTY = TupleData(b"", ())


def tuple_of(kinds: Any, values: Any) -> pgc.Insert:
    return pgc.Insert(None, 1, TupleData(kinds, values))


def relation_of(columns: Any) -> pgc.Relation:
    return pgc.Relation(None, 1, "public", "t", "d", columns)


BAD = {
    # Strings.
    "NUL in a name": (pgc.Origin(0, "a\0b"), "Origin.name cannot hold a NUL"),
    "NUL at a name's end": (pgc.Origin(0, "a\0"), "Origin.name cannot hold a NUL"),
    "NUL in a column's name": (
        relation_of((pgc.RelationColumn(0, "\0", 23, -1),)),
        r"Relation.columns\[0\].name cannot hold a NUL",
    ),
    "surrogate in a name": (pgc.Origin(0, "\ud800"), "Origin.name cannot be written as UTF-8"),
    "bytes for a name": (pgc.Origin(0, b"a"), "Origin.name must be a str, not bytes"),
    "str for content": (pgc.Message(None, 0, 0, "", "a"), "Message.content must be"),
    "tuple for content": (pgc.Message(None, 0, 0, "", (1,)), "Message.content must be bytes"),
    "str for data": (pgc.XLogData(0, 0, 0, "E"), "XLogData.data must be bytes, not str"),
    # Numbers.
    "xid of -1": (pgc.Begin(0, 0, -1), "Begin.xid does not fit UInt32: -1"),
    "xid of 2**32": (pgc.Begin(0, 0, 2**32), "Begin.xid does not fit UInt32"),
    "LSN of -1": (pgc.Begin(-1, 0, 0), "Begin.final_lsn does not fit UInt64: -1"),
    "LSN of 2**64": (pgc.Begin(2**64, 0, 0), "Begin.final_lsn does not fit UInt64"),
    "time of 2**63": (pgc.Begin(0, 2**63, 0), "Begin.commit_time does not fit Int64"),
    "flags of 256": (pgc.Commit(256, 0, 0, 0), "Commit.flags does not fit"),
    "flags of -1": (pgc.Commit(-1, 0, 0, 0), "Commit.flags does not fit"),
    "type modifier of 2**31": (
        relation_of((pgc.RelationColumn(0, "a", 23, 2**31),)),
        r"Relation.columns\[0\].type_modifier does not fit Int32",
    ),
    "OID of -1 in a truncate": (pgc.Truncate(None, 0, (1, -1)), "Truncate.relation_oids does not"),
    "xid of 1.0": (pgc.Begin(0, 0, 1.0), "Begin.xid must be an int, not float"),
    "xid of '1'": (pgc.Begin(0, 0, "1"), "Begin.xid must be an int, not str"),
    "1 for True": (pgc.StreamStart(1, 1), "StreamStart.first_segment must be a bool, not int"),
    "1 for a reply": (pgc.PrimaryKeepalive(0, 0, 1), "reply_requested must be a bool"),
    # Letters.
    "identity x": (pgc.Relation(None, 1, "", "t", "x", ()), "must be one of dnfi, not 'x'"),
    "identity dn": (pgc.Relation(None, 1, "", "t", "dn", ()), "must be one of dnfi, not 'dn'"),
    "no identity": (pgc.Relation(None, 1, "", "t", "", ()), "must be one of dnfi, not ''"),
    "identity b'd'": (pgc.Relation(None, 1, "", "t", b"d", ()), "must be one of dnfi, not b'd'"),
    # None where there must be a value, and the other way round.
    "None for an xid": (pgc.Begin(0, 0, None), "Begin.xid must not be None"),
    "None for a name": (pgc.Origin(0, None), "Origin.name must not be None"),
    "None for a bool": (pgc.StreamStart(1, None), "first_segment must not be None"),
    "None for a tuple": (pgc.Insert(None, 1, None), "Insert.new must not be None"),
    "None for columns": (relation_of(None), "Relation.columns must be"),
    "None for OIDs": (pgc.Truncate(None, 0, None), "Truncate.relation_oids must be"),
    "update without a new tuple": (
        pgc.Update(None, 1, EMPTY, None, None),
        "Update.new must not be None",
    ),
    "delete of nothing": (pgc.Delete(None, 1, None, None), "Delete.old must not be None"),
    "key and old in an update": (
        pgc.Update(None, 1, EMPTY, EMPTY, EMPTY),
        "Update.old and key cannot both be there",
    ),
    "key and old in a delete": (
        pgc.Delete(None, 1, EMPTY, EMPTY),
        "Delete.old and key cannot both be there",
    ),
    "abort LSN without its time": (pgc.StreamAbort(1, 1, 5, None), "must be there together"),
    "abort time without its LSN": (pgc.StreamAbort(1, 1, None, 5), "must be there together"),
    # Tuples and lists.
    "kind x": (tuple_of(b"x", (None,)), r"Insert.new\[0\]'s kind must be one of nutb, not b'x'"),
    "NULL with a value": (tuple_of(b"tn", (b"", b"")), r"Insert.new\[1\] is of kind n and has a"),
    "unchanged with a value": (tuple_of(b"u", (b"",)), r"Insert.new\[0\] is of kind u and has a"),
    "text without a value": (tuple_of(b"t", (None,)), r"Insert.new\[0\] is of kind t and has no"),
    "binary without a value": (tuple_of(b"b", (None,)), r"Insert.new\[0\] is of kind b and has no"),
    "str for a value": (tuple_of(b"t", ("a",)), r"Insert.new\[0\] must be bytes, not str"),
    "more kinds than values": (tuple_of(b"nn", (None,)), "2 kinds and 1 values"),
    "fewer kinds than values": (tuple_of(b"n", (None, None)), "1 kinds and 2 values"),
    "str for kinds": (tuple_of("n", (None,)), "must have its kinds as bytes"),
    "None for kinds": (tuple_of(None, ()), "must have its kinds as bytes"),
    "None for values": (tuple_of(b"", None), "must have its kinds as bytes"),
    "bytes for values": (tuple_of(b"t", b"a"), "and its values as a tuple"),
    "32768 columns": (
        tuple_of(b"n" * 32768, (None,) * 32768),
        "number of columns does not fit Int16: 32768",
    ),
    "a tuple for TupleData": (pgc.Insert(None, 1, (b"a",)), "must be TupleData, not tuple"),
    "bytes for columns": (relation_of(b"ab"), "must be a tuple of RelationColumn, not bytes"),
    "names for columns": (relation_of(("a",)), r"columns\[0\] must be a RelationColumn, not str"),
    "bytes for OIDs": (pgc.Truncate(None, 0, b"ab"), "must be a tuple of OIDs, not bytes"),
    "one OID for OIDs": (pgc.Truncate(None, 0, 1), "Truncate.relation_oids must be"),
    "None among OIDs": (pgc.Truncate(None, 0, (None,)), "must be an int, not NoneType"),
}


@pytest.mark.parametrize(("message", "match"), BAD.values(), ids=BAD)
def test_what_the_wire_cannot_carry(message: Any, match: str) -> None:
    with pytest.raises(pgc.EncodeError, match=match):
        pgc.encode_message(message)


def test_extremes_that_fit() -> None:
    for message in (
        pgc.Begin(2**64 - 1, 2**63 - 1, 2**32 - 1),
        pgc.Begin(0, -(2**63), 0),
        relation_of((pgc.RelationColumn(255, "a", 2**32 - 1, -(2**31)),)),
        tuple_of(b"n" * 32767, (None,) * 32767),
    ):
        assert pgc.decode_message(pgc.encode_message(message)) == message


@pytest.mark.parametrize(
    "message",
    [b"E", "E", None, 5, [pgc.StreamStop()], pgc.StreamStop, EMPTY, {}],
    ids=lambda each: type(each).__name__,
)
def test_what_is_no_message_is_a_type_error(message: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(message).__name__}$"):
        pgc.encode_message(message)


def test_an_encode_error_is_a_value_error_of_the_package() -> None:
    with pytest.raises(ValueError, match="NUL") as raised:
        pgc.encode_message(pgc.Origin(0, "\0"))
    assert isinstance(raised.value, pgc.PgwireError)
