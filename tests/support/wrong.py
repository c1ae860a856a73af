"""Messages that a decoder must not take, and what it must say of them."""

from __future__ import annotations

from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec.errors import ErrorCode
from tests.support.build import (
    T,
    begin,
    commit,
    decode,
    delete,
    insert,
    relation,
    row,
    streamed,
    transaction,
    truncate,
)

UNKNOWN_TAG = b"?what"
TRUNCATED = pgc.encode_message(insert(1, "1", "a", None))[:-1]

T_STREAMED = relation(1, *T.columns, xid=5)
CHANGE = insert(1, "5", "s", None, xid=5)

#: Messages, and what is wrong with them: code, index of the message, byte in it.
WRONG: dict[str, tuple[list[Any], tuple[str, int, int]]] = {
    "unknown tag": ([begin(), T, UNKNOWN_TAG], (ErrorCode.UNKNOWN_TAG, 2, 0)),
    "empty message": ([begin(), b""], (ErrorCode.TRUNCATED, 1, 0)),
    "cut message": ([begin(), T, TRUNCATED], (ErrorCode.TRUNCATED, 2, len(TRUNCATED))),
    "bytes after a message": (
        [begin(), pgc.encode_message(T) + b"\0"],
        (ErrorCode.TRAILING_BYTES, 1, len(pgc.encode_message(T))),
    ),
    "undeclared relation": (transaction(insert(9, "1")), (ErrorCode.UNKNOWN_RELATION, 1, 1)),
    "undeclared relation, streamed": (
        streamed(insert(9, "1", xid=7)),
        (ErrorCode.UNKNOWN_RELATION, 1, 5),
    ),
    "undeclared relation after others": (
        transaction(T, insert(1, "1", "a", None), insert(1, "2", "b", None), delete(9, key=row())),
        (ErrorCode.UNKNOWN_RELATION, 4, 1),
    ),
    "the first of two undeclared relations": (
        transaction(T, insert(1, "1", "a", None), insert(9, "1"), insert(8, "1")),
        (ErrorCode.UNKNOWN_RELATION, 3, 1),
    ),
    "undeclared relation of a truncate": (
        transaction(T, truncate(1, 9)),
        (ErrorCode.UNKNOWN_RELATION, 2, 10),
    ),
    "two undeclared relations of a truncate": (
        transaction(T, truncate(9, 8, 1)),
        (ErrorCode.UNKNOWN_RELATION, 2, 6),
    ),
    "undeclared relation of a streamed truncate": (
        streamed(truncate(9, xid=7)),
        (ErrorCode.UNKNOWN_RELATION, 1, 10),
    ),
    "change outside a transaction": ([T, insert(1, "1", "a", None)], (ErrorCode.PROTOCOL, 1, 0)),
    "truncate outside a transaction": ([T, truncate(1)], (ErrorCode.PROTOCOL, 1, 0)),
    "change of what, outside": ([truncate(9)], (ErrorCode.PROTOCOL, 0, 0)),
    "transactional message outside": (
        [pgc.Message(None, 1, 5, "p", b"")],
        (ErrorCode.PROTOCOL, 0, 0),
    ),
    "origin outside a transaction": ([pgc.Origin(5, "o")], (ErrorCode.PROTOCOL, 0, 0)),
    "commit without begin": ([commit()], (ErrorCode.PROTOCOL, 0, 0)),
    "two commits": ([*transaction(T), commit()], (ErrorCode.PROTOCOL, 3, 0)),
    "commit of another transaction": (
        [begin(lsn=100), commit(lsn=101)],
        (ErrorCode.PROTOCOL, 1, 0),
    ),
    "commit of what is to be prepared": (
        [pgc.BeginPrepare(100, 110, 0, 7, "g"), commit()],
        (ErrorCode.PROTOCOL, 1, 0),
    ),
    "prepare without its begin": (
        [begin(), pgc.Prepare(0, 100, 110, 0, 7, "g")],
        (ErrorCode.PROTOCOL, 1, 0),
    ),
    "prepare under another name": (
        [pgc.BeginPrepare(100, 110, 0, 7, "g"), pgc.Prepare(0, 100, 110, 0, 7, "h")],
        (ErrorCode.PROTOCOL, 1, 0),
    ),
    "prepare inside a stream block": (
        [pgc.StreamStart(7, True), pgc.Prepare(0, 100, 110, 0, 7, "g")],
        (ErrorCode.PROTOCOL, 1, 0),
    ),
    "stop without start": ([pgc.StreamStop()], (ErrorCode.PROTOCOL, 0, 0)),
    "second stream block only": (streamed(first=False), (ErrorCode.PROTOCOL, 0, 0)),
    "commit of what was never streamed": (
        [pgc.StreamCommit(7, 0, 100, 110, 0)],
        (ErrorCode.PROTOCOL, 0, 0),
    ),
    "prepare of what was never streamed": (
        [pgc.StreamPrepare(0, 100, 110, 0, 7, "g")],
        (ErrorCode.PROTOCOL, 0, 0),
    ),
    # The first error counts, whichever it is.
    "wrong place before wrong bytes": ([commit(), UNKNOWN_TAG], (ErrorCode.PROTOCOL, 0, 0)),
    "wrong bytes before wrong place": ([UNKNOWN_TAG, commit()], (ErrorCode.UNKNOWN_TAG, 0, 0)),
    "undeclared relation before wrong bytes": (
        [begin(), insert(9, "1"), UNKNOWN_TAG],
        (ErrorCode.UNKNOWN_RELATION, 1, 1),
    ),
}

each_wrong = pytest.mark.parametrize(("messages", "wanted"), WRONG.values(), ids=WRONG)


def many(first_lsn: int, count: int = 20) -> list[Any]:
    """Return good plain transactions, one after the other, as a log has them."""
    return [
        message
        for lsn in range(first_lsn, first_lsn + count)
        for message in transaction(insert(1, str(lsn), "good", None), xid=1000 + lsn, lsn=lsn)
    ]


def error_of(messages: list[Any], **options: Any) -> pgc.DecodeError:
    with pytest.raises(pgc.DecodeError) as raised:
        decode(messages, **options)
    return raised.value


def place(error: pgc.DecodeError) -> tuple[str, int | None, int]:
    return error.code, error.message_index, error.offset


def all_rows(changes: pgc.Changes) -> list[dict[str, Any]]:
    return [each for batch in changes for each in batch.to_arrow().to_pylist()]
