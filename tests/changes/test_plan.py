"""Plans of record batches: made once, never out of date, and not too many."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.changes import plan
from pgwire_codec.changes.column import Decoding
from pgwire_codec.options import DecoderOptions
from pgwire_codec.types import TypeRegistry, register_type
from tests.support.build import batch, column, insert, only, relation, transaction, wire
from tests.support.implementations import Implementation

MOOD = relation(1, column("id", "int4", key=True), column("mood", 20_000))


def test_the_same_table_has_one_plan(codec: Implementation) -> None:
    """In all calls of all decoders with the same options; many tables may be the same, too."""
    tables = [MOOD, replace(MOOD, oid=2, name="u"), relation(1, *MOOD.columns[::-1])]
    plans = []
    for before in ("key", "key", "full"):
        decoder = codec.Decoder(before=before)
        plans.append([])
        for number, table in enumerate(tables):
            messages = transaction(table, insert(table.oid, "1", "2"), lsn=100 + number)
            plans[-1].append(only(decoder.decode(wire(messages))).record_plan())
    assert plans[0][0] is plans[0][1] is plans[1][0]
    assert plans[0][0] is not plans[0][2]
    assert plans[0][0] is not plans[2][0]
    assert plans[2][0].before.names == ["id", "mood"]


def test_a_repeated_relation_has_the_same_plan(codec: Implementation) -> None:
    decoder = codec.Decoder()
    first = only(decoder.decode(wire(transaction(MOOD, insert(1, "1", "x")))))
    again = only(decoder.decode(wire(transaction(MOOD, insert(1, "1", "x"), lsn=200))))
    assert first.record_plan() is again.record_plan()
    changed = replace(MOOD, columns=MOOD.columns[::-1])
    third = only(decoder.decode(wire(transaction(changed, insert(1, "x", "1"), lsn=300))))
    assert third.to_arrow().schema.names[:2] == ["mood", "id"]
    assert first.to_arrow().schema.names[:2] == ["id", "mood"]


def test_a_type_that_is_registered_later(codec: Implementation) -> None:
    registry = TypeRegistry()
    decoder = codec.Decoder(registry=registry)
    made = only(decoder.decode(wire(transaction(MOOD, insert(1, "1", "2")))))
    assert made.to_arrow().schema.field("mood").type == pa.string()
    assert made.to_arrow(["mood"]).schema.field("mood").type == pa.string()
    for like, kind in (("int4", pa.int32()), ("int8", pa.int64())):
        register_type(20_000, "mood", like=like, registry=registry)
        again = only(decoder.decode(wire(transaction(MOOD, insert(1, "1", "2"), lsn=200))))
        for each in (made, again):
            assert each.to_arrow().schema.field("mood").type == kind
            assert each.to_arrow(["mood"])["mood"].to_pylist() == [2]
            assert pa.record_batch(each).schema.field("mood").type == kind
            assert each.to_pylist()[0]["mood"] == 2
        decoder = codec.Decoder(registry=registry)
    other = batch(insert(1, "1", "2"), relation=MOOD, registry=TypeRegistry())
    assert other.to_arrow().schema.field("mood").type == pa.string()


def test_an_unknown_type_in_text_and_in_binary_form(codec: Implementation) -> None:
    """Its Arrow type depends on the values, and so does that of ``_before``."""
    table = relation(1, column("id", 20_000, key=True))
    decoder = codec.Decoder()
    lsn = 0
    for new, old in (("a", "b"), (b"a", "b"), ("a", b"b"), (b"a", b"b"), ("a", "b")):
        lsn += 100
        change = pgc.Update(None, 1, wire_row(old), None, wire_row(new))
        made = only(decoder.decode(wire(transaction(table, change, lsn=lsn))))
        record = made.to_arrow()
        record.validate(full=True)
        for value, kind in ((new, record["id"].type), (old, record["_before"].type.field(0).type)):
            assert kind == (pa.binary() if isinstance(value, bytes) else pa.string())
        assert pa.record_batch(made).equals(record)
        assert record.to_pylist()[0]["_before"] == {"id": old}


def wire_row(value: str | bytes) -> pgc.TupleData:
    return insert(1, value).new


def test_plans_of_many_tables_are_dropped(
    codec: Implementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_MOST_PLANS", 3)
    monkeypatch.setattr(plan, "_MOST_VERSIONS", 5)
    monkeypatch.setattr(plan, "_MOST_CHOICES", 2)
    decoding = Decoding(codec.functions, DecoderOptions())
    for number in range(40):
        table = relation(1, *(column(f"c{each}") for each in range(number % 7 + 1)))
        made = batch(insert(1, *["x"] * (number % 7 + 1)), relation=table)
        found = decoding.plans.of(made.version)
        assert list(found.numbers) == [column.name for column in table.columns]
        for names in ([], ["c0"], ["c0", "c0"], None):
            chosen = found.record(made.version, names)
            assert chosen.current.names == (
                list(dict.fromkeys(names)) if names is not None else list(found.numbers)
            )
        assert len(found._records) <= 2
        assert len(decoding.plans._by_columns) <= 3
        assert len(decoding.plans._by_identity) <= 5


def test_columns_with_one_name(codec: Implementation) -> None:
    """No server sends them; the last one has the name."""
    twice = relation(1, column("a", "int4", key=True), column("b"), column("a", "int4"))
    change = insert(1, "1", "x", "2")
    made = only(codec.Decoder().decode(wire(transaction(twice, change))))
    record = made.to_arrow()
    assert record.schema.names[:3] == ["a", "b", "_op"]
    assert record.select(["a", "b"]).to_pylist() == [{"a": 2, "b": "x"}]
