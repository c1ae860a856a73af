"""Errors of values name the row's key, and the option that goes on."""

from __future__ import annotations

import pytest

import pgwire_codec as pgc
from tests.support.build import column, insert, relation, transaction, wire

TYPMOD = (10 << 16 | 2) + 4


def decode(decoder: type[pgc.Decoder], shape: pgc.Relation, *rows: pgc.Insert) -> str:
    messages = wire(transaction(shape, *rows))
    [batch] = decoder().decode(messages).batches
    with pytest.raises(pgc.DecodeError) as raised:
        batch.to_pylist()
    assert raised.value.code == "unrepresentable"
    return str(raised.value)


@pytest.mark.parametrize("decoder", [pgc.Decoder, pgc.reference.Decoder])
class TestUnrepresentable:
    def test_value_key_and_option(self, decoder: type[pgc.Decoder]) -> None:
        shape = relation(
            1, column("a", key=True), column("b", key=True), column("n", "numeric", typmod=TYPMOD)
        )
        said = decode(decoder, shape, insert(1, "1", "x'y", "1.5"), insert(1, "2", "é", "NaN"))
        assert "column n (numeric), value 'NaN', row a='2', b='é'" in said
        assert said.endswith(
            ' — hint: To decode it all the same, use `unrepresentable="null"` or "clamp".'
        )

    def test_without_a_key(self, decoder: type[pgc.Decoder]) -> None:
        shape = relation(1, column("n", "numeric", typmod=TYPMOD))
        assert "(column n (numeric), value 'NaN')" in decode(decoder, shape, insert(1, "NaN"))

    def test_a_long_key_is_cut(self, decoder: type[pgc.Decoder]) -> None:
        shape = relation(1, column("a", key=True), column("n", "numeric", typmod=TYPMOD))
        said = decode(decoder, shape, insert(1, "k" * 9000, "NaN"))
        assert len(said) < 500
