"""Every message and frame in bytes, written by hand field by field.

After PostgreSQL's documentation, "Logical Replication Message Formats" and "Streaming Replication
Protocol": were the tables of spec.py wrong, reading and writing by them would agree with each
other and not with these. Every field has a value of its own, so that two that changed places show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pgwire_codec as pgc


@dataclass(frozen=True)
class Golden:
    """A message, whether it is in a stream block, and its bytes in hex (spaces are free)."""

    message: Any
    hex: str
    streaming: bool = False

    @property
    def data(self) -> bytes:
        return bytes.fromhex(self.hex)

    def __str__(self) -> str:
        return type(self.message).__name__ + ("-streamed" if self.streaming else "")


# Strings are NUL-terminated: "public" is 7075626c6963 00, "t" 74 00. 23 (17 hex) is int4's OID,
# 25 (19 hex) text's. A time of 1 s is 1,000,000 us: f4240 hex.
MESSAGES = [
    Golden(
        pgc.Begin(final_lsn=0x16B374D848, commit_time=1_000_000, xid=743),
        "42  00000016 b374d848  00000000 000f4240  000002e7",
    ),
    Golden(
        pgc.Message(xid=None, flags=1, lsn=0x0203, prefix="pfx", content=b"ab\0"),
        "4d  01  00000000 00000203  706678 00  00000003 616200",
    ),
    Golden(
        pgc.Message(xid=743, flags=0, lsn=0x0203, prefix="", content=b""),
        "4d  000002e7  00  00000000 00000203  00  00000000",
        streaming=True,
    ),
    Golden(
        pgc.Commit(flags=0, commit_lsn=0x0A, end_lsn=0x0B, commit_time=-1),
        "43  00  00000000 0000000a  00000000 0000000b  ffffffff ffffffff",
    ),
    Golden(
        pgc.Origin(lsn=0x0C, name="né"),
        "4f  00000000 0000000c  6e c3a9 00",
    ),
    Golden(
        pgc.Relation(
            xid=None,
            oid=0x4001,
            namespace="public",
            name="t",
            replica_identity="d",
            columns=(
                pgc.RelationColumn(flags=1, name="k", type_oid=23, type_modifier=-1),
                pgc.RelationColumn(flags=0, name="v", type_oid=25, type_modifier=7),
            ),
        ),
        "52  00004001  7075626c6963 00  74 00  64  0002"
        "    01 6b 00 00000017 ffffffff"
        "    00 76 00 00000019 00000007",
    ),
    Golden(
        pgc.Relation(743, 0x4001, "", "t", "f", ()),
        "52  000002e7  00004001  00  74 00  66  0000",
        streaming=True,
    ),
    Golden(
        pgc.Type(xid=None, oid=0x4002, namespace="public", name="mood"),
        "59  00004002  7075626c6963 00  6d6f6f64 00",
    ),
    Golden(
        pgc.Type(743, 0x4002, "", "int4"),
        "59  000002e7  00004002  00  696e7434 00",
        streaming=True,
    ),
    Golden(
        pgc.Insert(
            xid=None,
            relation_oid=0x4001,
            new=pgc.TupleData(b"tbnut", (b"12", b"\0\0\0\x0c", None, None, b"")),
        ),
        "49  00004001  4e  0005  74 00000002 3132  62 00000004 0000000c  6e  75  74 00000000",
    ),
    Golden(
        pgc.Insert(743, 0x4001, pgc.TupleData(b"", ())),
        "49  000002e7  00004001  4e  0000",
        streaming=True,
    ),
    Golden(
        pgc.Update(
            xid=None, relation_oid=0x4001, key=None, old=None, new=pgc.TupleData(b"n", (None,))
        ),
        "55  00004001  4e  0001 6e",
    ),
    Golden(
        pgc.Update(
            xid=None,
            relation_oid=0x4001,
            key=pgc.TupleData(b"tn", (b"1", None)),
            old=None,
            new=pgc.TupleData(b"tu", (b"2", None)),
        ),
        "55  00004001  4b  0002 74 00000001 31 6e  4e  0002 74 00000001 32 75",
    ),
    Golden(
        pgc.Update(
            xid=743,
            relation_oid=0x4001,
            key=None,
            old=pgc.TupleData(b"t", (b"1",)),
            new=pgc.TupleData(b"t", (b"2",)),
        ),
        "55  000002e7  00004001  4f  0001 74 00000001 31  4e  0001 74 00000001 32",
        streaming=True,
    ),
    Golden(
        pgc.Delete(xid=None, relation_oid=0x4001, key=pgc.TupleData(b"tn", (b"1", None)), old=None),
        "44  00004001  4b  0002 74 00000001 31 6e",
    ),
    Golden(
        pgc.Delete(xid=743, relation_oid=0x4001, key=None, old=pgc.TupleData(b"t", (b"1",))),
        "44  000002e7  00004001  4f  0001 74 00000001 31",
        streaming=True,
    ),
    Golden(
        pgc.Truncate(xid=None, options=3, relation_oids=(0x4001, 0x4002)),
        "54  00000002  03  00004001  00004002",
    ),
    Golden(
        pgc.Truncate(743, 0, (0xFFFFFFFF,)),
        "54  000002e7  00000001  00  ffffffff",
        streaming=True,
    ),
    Golden(pgc.StreamStart(xid=743, first_segment=True), "53  000002e7  01"),
    Golden(pgc.StreamStart(xid=743, first_segment=False), "53  000002e7  00"),
    Golden(pgc.StreamStop(), "45", streaming=True),
    Golden(
        pgc.StreamCommit(xid=743, flags=0, commit_lsn=0x0A, end_lsn=0x0B, commit_time=1_000_000),
        "63  000002e7  00  00000000 0000000a  00000000 0000000b  00000000 000f4240",
    ),
    Golden(
        pgc.StreamAbort(xid=743, subxid=744, abort_lsn=None, abort_time=None),
        "41  000002e7  000002e8",
    ),
    Golden(
        pgc.StreamAbort(xid=743, subxid=744, abort_lsn=0x0A, abort_time=1_000_000),
        "41  000002e7  000002e8  00000000 0000000a  00000000 000f4240",
    ),
    Golden(
        pgc.BeginPrepare(prepare_lsn=0x0A, end_lsn=0x0B, prepare_time=1_000_000, xid=743, gid="g1"),
        "62  00000000 0000000a  00000000 0000000b  00000000 000f4240  000002e7  6731 00",
    ),
    Golden(
        pgc.Prepare(
            flags=0, prepare_lsn=0x0A, end_lsn=0x0B, prepare_time=1_000_000, xid=743, gid="g1"
        ),
        "50  00  00000000 0000000a  00000000 0000000b  00000000 000f4240  000002e7  6731 00",
    ),
    Golden(
        pgc.CommitPrepared(
            flags=0, commit_lsn=0x0A, end_lsn=0x0B, commit_time=1_000_000, xid=743, gid="g1"
        ),
        "4b  00  00000000 0000000a  00000000 0000000b  00000000 000f4240  000002e7  6731 00",
    ),
    Golden(
        pgc.RollbackPrepared(
            flags=0,
            prepare_end_lsn=0x0A,
            rollback_end_lsn=0x0B,
            prepare_time=1_000_000,
            rollback_time=2_000_000,
            xid=743,
            gid="g1",
        ),
        "72  00  00000000 0000000a  00000000 0000000b"
        "    00000000 000f4240  00000000 001e8480  000002e7  6731 00",
    ),
    Golden(
        pgc.StreamPrepare(
            flags=0, prepare_lsn=0x0A, end_lsn=0x0B, prepare_time=1_000_000, xid=743, gid="g1"
        ),
        "70  00  00000000 0000000a  00000000 0000000b  00000000 000f4240  000002e7  6731 00",
    ),
]

FRAMES = [
    Golden(
        pgc.XLogData(wal_start=0x0A, wal_end=0x0B, send_time=1_000_000, data=b"E"),
        "77  00000000 0000000a  00000000 0000000b  00000000 000f4240  45",
    ),
    Golden(
        pgc.PrimaryKeepalive(wal_end=0x0B, send_time=1_000_000, reply_requested=True),
        "6b  00000000 0000000b  00000000 000f4240  01",
    ),
    Golden(
        pgc.StandbyStatusUpdate(
            written_lsn=0x0C,
            flushed_lsn=0x0B,
            applied_lsn=0x0A,
            send_time=1_000_000,
            reply_requested=False,
        ),
        "72  00000000 0000000c  00000000 0000000b  00000000 0000000a  00000000 000f4240  00",
    ),
    Golden(
        pgc.HotStandbyFeedback(
            send_time=1_000_000, xmin=5, xmin_epoch=6, catalog_xmin=7, catalog_xmin_epoch=8
        ),
        "68  00000000 000f4240  00000005 00000006  00000007 00000008",
    ),
]
