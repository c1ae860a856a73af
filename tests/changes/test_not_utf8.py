"""Text that is not UTF-8, as of a database in SQL_ASCII: it costs its value, by the policy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import Begin, Commit, Insert, Relation, RelationColumn, TupleData, encode_message

TYPES = {"k": 23, "v": 25, "a": 1009, "j": 3802}
RELATION = Relation(
    None,
    7,
    "public",
    "t",
    "d",
    tuple(RelationColumn(int(name == "k"), name, oid, -1) for name, oid in TYPES.items()),
)
LONG = b"x" * 40
#: The binary form of {a}.
ARRAY = bytes.fromhex("00000001000000000000001900000001000000010000000161")
ROWS = [
    (b"tttt", b"1", b"good", b"{a}", b"1"),
    (b"tttt", b"2", b"caf\xe9", b"{a,b\xe9}", b"1"),
    (b"tttt", b"3", LONG + b"\xe9", b"{a}", b'"\xe9"'),
    (b"tbbb", b"4", b"caf\xe9", ARRAY, b'\x01"\xe9"'),
    (b"tbbb", b"5", b"good", ARRAY[:-1] + b"\xe9", b"\x011"),
]


@pytest.mark.parametrize("decoder", [pgc.Decoder, pgc.reference.Decoder], ids=["used", "plain"])
@pytest.mark.parametrize("strings", ["copy", "view"])
@pytest.mark.parametrize("policy", ["null", "clamp"])
def test_the_others_are_decoded(decoder: Any, strings: str, policy: str) -> None:
    inserts = [Insert(None, 7, TupleData(kinds, values)) for kinds, *values in ROWS]  # type: ignore[arg-type]
    messages = [Begin(10, 0, 5), RELATION, *inserts, Commit(0, 10, 20, 0)]
    options = {"unrepresentable": policy, "strings": strings}
    [batch] = decoder(**options).decode([encode_message(each) for each in messages]).batches
    rows = pa.record_batch(batch.to_arrow()).to_pylist()

    def text(clamped: str) -> str | None:
        return clamped if policy == "clamp" else None

    assert [row["k"] for row in rows] == [1, 2, 3, 4, 5]
    cafe, long = text("caf\ufffd"), text("x" * 40 + "\ufffd")
    assert [row["v"] for row in rows] == ["good", cafe, long, cafe, "good"]
    assert [row["a"] for row in rows] == [
        ["a"], ["a", text("b\ufffd")], ["a"], ["a"], [text("\ufffd")],
    ]  # fmt: skip
    assert [row["j"] for row in rows] == ["1", "1", text('"\ufffd"'), text('"\ufffd"'), "1"]
    assert [row["_invalid"] for row in rows] == [None, ["v", "a"], ["v", "j"], ["v", "j"], ["a"]]
