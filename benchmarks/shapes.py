"""Shapes of input: many small transactions, many tables, tiny calls, long-known state.

Each shape is made of generated messages, and is decoded as a user would: in calls, by one decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import pgwire_codec as pgc
from benchmarks import tables
from benchmarks.encode import encode_rows
from benchmarks.tables import Table
from pgwire_codec.protocol.messages import LogicalMessage

LSN: Final = 0x1_0000_0000
XID: Final = 700


@dataclass(frozen=True)
class Shape:
    """Messages in calls.

    Attributes
    ----------
    name : str
    unit : str
        What is counted: change, message, call or subtransaction.
    count : int
        How many of them the calls have.
    calls : sequence of pyarrow.LargeBinaryArray or list of bytes
        The messages of each call.
    known : sequence of pyarrow.LargeBinaryArray
        Calls that come first and are not measured.
    step : str
        ``decode``: only ``Decoder.decode``; ``to_arrow``: its batches as record batches, too.
    changes : pyarrow.LargeBinaryArray or None
        The changes alone, over which the limit skips; None if the limit has no meaning.
    """

    name: str
    unit: str
    count: int
    calls: Sequence[pa.LargeBinaryArray | list[bytes]]
    known: Sequence[pa.LargeBinaryArray] = ()
    step: str = "to_arrow"
    changes: pa.LargeBinaryArray | None = None


def shapes(count: int) -> Iterator[Shape]:
    """Yield every shape, most with this many changes."""
    for make in _MAKERS:
        yield from make(count)


def _lineitem(count: int) -> Iterator[Shape]:
    """Yield inserts of 16 columns, in transactions of three sizes and in two forms."""
    made = tables.lineitem(count)
    for form in ("text", "binary"):
        changes = _changes(made, binary=form == "binary")
        for rows in (10_000, 8, 1):
            per_call = max(10_000 // rows, 1)
            messages = _transactions(changes, rows)
            yield Shape(
                f"lineitem {form}, transactions of {rows:,}, 10,000 rows a call",
                "change",
                count,
                _calls(_relations(made), messages, per_call * (min(rows, count) + 2)),
                changes=changes,
            )


def _pgbench(count: int) -> Iterator[Shape]:
    """Pgbench's transaction: three updates and an insert, each of another table."""
    transactions = -(-count // 4)
    updated = [make(transactions) for make in (tables.accounts, tables.tellers, tables.branches)]
    inserted = tables.history(transactions)
    parts = [_changes(each, op="U") for each in updated] + [_changes(inserted)]
    begin, commit = _bounds(transactions)
    messages = _interleaved([begin, *parts, commit])
    for size in (60_000, 6_000, 600):
        yield Shape(
            f"pgbench, {size:,} messages a call",
            "change",
            4 * transactions,
            _calls(_relations(*updated, inserted), messages, size),
            changes=_interleaved(parts),
        )


def _toast(count: int) -> Iterator[Shape]:
    """Yield updates of documents, whose long text is an unchanged TOAST value or NULL."""
    # The long text is not sent, so that a few of them do.
    few = tables.documents(min(count, 1_000))
    rows = pa.concat_tables([few.rows] * -(-count // len(few.rows))).slice(0, count)
    made = replace(few, rows=rows.set_column(2, "body", pa.nulls(count, pa.string())))
    for name, unchanged in (("one unchanged TOAST value", True), ("the same, NULL instead", False)):
        changes = _changes(made, op="U", unchanged={"body": np.full(count, unchanged)})
        yield Shape(
            f"updates, {name}",
            "change",
            count,
            _calls(_relations(made), _transactions(changes, 10_000), 10_002),
            changes=changes,
        )


def _streamed(count: int) -> Iterator[Shape]:
    """Yield streamed transactions, 20 of them open at a time, in blocks of 50 changes."""
    made = tables.accounts(count)
    blocks = -(-count // 50)
    xids = XID + np.arange(count) // 50 % 20
    changes = _renumbered(_changes(made, xid=XID), xids)
    parts: list[pa.LargeBinaryArray] = []
    for block in range(blocks):
        parts += [
            _encoded([pgc.StreamStart(XID + block % 20, block < 20)]),
            changes.slice(50 * block, 50),
            _encoded([pgc.StreamStop()]),
        ]
    ends = _encoded(
        pgc.StreamCommit(XID + each, 0, LSN + 64 * each, LSN + 64 * each + 8, 0)
        for each in range(min(20, blocks))
    )
    yield Shape(
        "streamed, 20 transactions open, blocks of 50",
        "change",
        count,
        [pa.concat_arrays([*parts, ends])],
        known=[_relations(made)],
        changes=_changes(made),
    )


def _tables(count: int) -> Iterator[Shape]:
    """Yield transactions of 100 changes, each change of the next of many tables; one call."""
    made = tables.accounts(count)
    for number in (100, 1_000, 10_000):
        of = np.arange(count) % number
        changes = _renumbered(_changes(made), tables.OID + of)
        relations = [
            replace(made.relation, oid=tables.OID + each, name=f"table_{each}")
            for each in range(number)
        ]
        yield Shape(
            f"{number:,} tables in one call",
            "change",
            count,
            [_transactions(changes, 100)],
            known=[_relations(*(replace(made, relation=each) for each in relations))],
            changes=changes,
        )


def _tiny_calls(count: int) -> Iterator[Shape]:
    """Yield one message a call, with nothing known, and with much known that does not occur."""
    made = tables.accounts(4_000)
    others = [
        replace(made, relation=replace(made.relation, oid=10**6 + each, name=f"other_{each}"))
        for each in range(20_000)
    ]
    change = pgc.Insert(None, made.relation.oid, _tuple(made))
    streams = [
        (pgc.StreamStart(xid, True), replace(change, xid=xid), pgc.StreamStop())
        for xid in range(10**6, 10**6 + 4_000)
    ]
    prepared = [
        (
            pgc.BeginPrepare(lsn, lsn, 0, lsn - LSN + 10**6, f"gid {lsn}"),
            change,
            pgc.Prepare(0, lsn, lsn, 0, lsn - LSN + 10**6, f"gid {lsn}"),
        )
        for lsn in range(LSN - 4_000, LSN)
    ]
    alone = _relations(made)
    known = {
        "nothing": [alone],
        "20,000 relations": [_relations(made, *others)],
        "4,000 open streams": [alone, _encoded(chain.from_iterable(streams))],
        "4,000 prepared transactions": [alone, _encoded(chain.from_iterable(prepared))],
    }
    transactions = _transactions(_changes(tables.accounts(min(count, 100))), 1)
    calls = [transactions.slice(each, 1) for each in range(len(transactions))]
    for name, before in known.items():
        yield Shape(
            f"one message a call, {name} known",
            "call",
            len(calls),
            calls,
            known=before,
            step="decode",
        )


def _lists(count: int) -> Iterator[Shape]:
    """Yield the same messages as an Arrow array, and as a list of bytes."""
    made = tables.accounts(count)
    messages = _calls(_relations(made), _transactions(_changes(made), 10_000), 10_002)
    total = sum(map(len, messages))
    yield Shape("messages as an Arrow array", "message", total, messages, step="decode")
    lists = [each.to_pylist() for each in messages]
    yield Shape("messages as a list of bytes", "message", total, lists, step="decode")


def _subtransactions(count: int) -> Iterator[Shape]:
    """Yield subtransactions of a change each, kept one after the other, then all rolled back."""
    made = tables.accounts(count)
    for number in (2_000, 8_000, 100_000):
        if number > count:
            continue
        xids = XID + 1 + np.arange(number)
        aborts = np.zeros(number, [("tag", "S1"), ("xid", ">u4"), ("subxid", ">u4")])
        aborts["tag"], aborts["xid"], aborts["subxid"] = b"A", XID, xids[::-1]
        messages = [
            _encoded([pgc.StreamStart(XID, True)]),
            _renumbered(_changes(made, xid=XID).slice(0, number), xids),
            _encoded([pgc.StreamStop()]),
            _fixed(aborts),
        ]
        yield Shape(
            f"{number:,} subtransactions, rolled back",
            "subtransaction",
            number,
            [pa.concat_arrays(messages)],
            known=[_relations(made)],
            step="decode",
        )


_MAKERS: Final[tuple[Callable[[int], Iterator[Shape]], ...]] = (
    _lineitem,
    _pgbench,
    _toast,
    _streamed,
    _tables,
    _tiny_calls,
    _lists,
    _subtransactions,
)


def bounds(
    lsn: npt.NDArray[np.int64], xid: npt.NDArray[np.int64]
) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Return the Begin and the Commit messages of plain transactions."""
    count = len(lsn)
    begin = np.zeros(count, [("tag", "S1"), ("lsn", ">u8"), ("time", ">i8"), ("xid", ">u4")])
    begin["tag"], begin["lsn"], begin["xid"] = b"B", lsn, xid
    commit = np.zeros(
        count, [("tag", "S1"), ("flags", "u1"), ("lsn", ">u8"), ("end", ">u8"), ("time", ">i8")]
    )
    commit["tag"], commit["lsn"], commit["end"] = b"C", lsn, lsn + 8
    return _fixed(begin), _fixed(commit)


def _bounds(count: int) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Return the Begin and the Commit messages of so many transactions."""
    return bounds(LSN + 64 * np.arange(1, count + 1), XID + np.arange(count))


def _changes(
    made: Table,
    *,
    op: str = "I",
    unchanged: dict[str, npt.NDArray[np.bool_]] | None = None,
    xid: int | None = None,
    binary: bool = False,
) -> pa.LargeBinaryArray:
    """Return the changes of a table, one a row."""
    return encode_rows(made.relation, made.rows, op=op, unchanged=unchanged, xid=xid, binary=binary)


def _transactions(changes: pa.LargeBinaryArray, rows: int) -> pa.LargeBinaryArray:
    """Return changes as plain transactions of so many rows."""
    count = -(-len(changes) // rows)
    begin, commit = _bounds(count)
    of = np.arange(len(changes)) // rows
    # The order is by transaction, and in it Begin, the changes, Commit.
    place = np.concatenate([np.arange(count) * 3, of * 3 + 1, np.arange(count) * 3 + 2])
    order = np.argsort(place, kind="stable")
    return pa.concat_arrays([begin, changes, commit]).take(pa.array(order))


def _interleaved(parts: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Return the first message of each part, then the second of each, and so on."""
    order = np.arange(len(parts) * len(parts[0])).reshape(len(parts), -1).T.ravel()
    return pa.concat_arrays(parts).take(pa.array(order))


def _calls(
    first: pa.LargeBinaryArray, messages: pa.LargeBinaryArray, size: int
) -> list[pa.LargeBinaryArray]:
    """Return messages in calls of a size, the first messages in a call of their own."""
    return [first, *(messages.slice(at, size) for at in range(0, len(messages), size))]


def _relations(*made: Table) -> pa.LargeBinaryArray:
    """Return a transaction that has nothing but Relations."""
    return _encoded(
        [pgc.Begin(LSN - 5_000, 0, XID), *(each.relation for each in made),
         pgc.Commit(0, LSN - 5_000, LSN - 5_000, 0)]
    )  # fmt: skip


def _renumbered(
    changes: pa.LargeBinaryArray, numbers: npt.NDArray[np.int64]
) -> pa.LargeBinaryArray:
    """Return changes with another number after the tag: the relation's OID, or the xid."""
    changes = pa.concat_arrays([changes])  # a slice becomes an array of its own
    _, offsets, data = changes.buffers()
    starts = np.frombuffer(offsets, np.int64)[: len(changes)]
    written = np.frombuffer(data, np.uint8).copy()
    places = starts[:, None] + np.arange(1, 5)
    written[places] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    buffers = [None, offsets, pa.py_buffer(written)]
    return pa.Array.from_buffers(pa.large_binary(), len(changes), buffers)


def _tuple(made: Table) -> pgc.TupleData:
    """Return the first row."""
    message = pgc.decode_message(_changes(replace(made, rows=made.rows.slice(0, 1)))[0].as_py())
    assert isinstance(message, pgc.Insert)
    return message.new


def _encoded(messages: Iterable[LogicalMessage]) -> pa.LargeBinaryArray:
    """Return messages as one array."""
    return pa.array([pgc.encode_message(each) for each in messages], pa.large_binary())


def _fixed(records: npt.NDArray[np.void]) -> pa.LargeBinaryArray:
    """Return each record as a message."""
    offsets = np.arange(len(records) + 1, dtype=np.int64) * records.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(records.tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(records), buffers)
