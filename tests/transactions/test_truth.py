"""The decoded changes, applied in order, give the tables that the server holds."""

from __future__ import annotations

from typing import Any

import pytest

import pgwire_codec as pgc
from tests.support import corpus
from tests.support.applied_tables import Table, apply
from tests.support.corpus_truth import truth_differences

SCENARIOS = ("types", "dml", "streams", "immediate", "traps")
TEXT = [c for c in corpus.captures() if c.scenario in SCENARIOS and "binary" not in c.options]
BINARY = [c for c in corpus.captures() if c.scenario in SCENARIOS and "binary" in c.options]


def decoded_tables(capture: corpus.Capture) -> dict[str, list[dict[str, Any]]]:
    """Rows by the names that the truth gives tables; partitions are rows of their parent."""
    tables: dict[int, Table] = {}
    decoder = pgc.Decoder(types="text")
    apply(decoder.decode(capture.messages, capture.lsns), tables)
    assert decoder.pending == []
    named: dict[str, list[dict[str, Any]]] = {}
    for table in tables.values():
        name = quote(table.relation.name)
        if table.relation.namespace == "other":
            name = f"other.{name}"
        if name.startswith("part_"):
            named.setdefault("part", []).extend(table.rows)
        else:
            named[name] = table.rows
    return named


def quote(name: str) -> str:
    return name if name.isidentifier() else '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("capture", TEXT, ids=str)
def test_final_tables_are_the_servers(capture: corpus.Capture) -> None:
    assert list(truth_differences(capture, decoded_tables(capture))) == []


def test_every_text_capture_with_a_truth_is_here() -> None:
    assert len(TEXT) == 74
    assert len(BINARY) == 34


def typed_changes(capture: corpus.Capture, registry: pgc.TypeRegistry) -> list[tuple[Any, ...]]:
    """Every change as typed values, in commit order."""
    changes = []
    decoder = pgc.Decoder(unrepresentable="clamp", registry=registry)
    for batch in decoder.decode(capture.messages):
        columns = [
            (name, column.state.tolist(), [as_read(v, column.type.pg.name) for v in values])
            for tuples in (batch.new, batch.old)
            for name, column in tuples.items()
            for values in [column.to_pylist()]
        ]
        for row in range(len(batch)):
            place = int(batch.commit_lsn[row]), int(batch.seq[row]), batch.relation.oid
            what = [(name, states[row], values[row]) for name, states, values in columns]
            # As text: NaN is not equal to itself.
            changes.append((*place, chr(batch.op[row]), repr(what)))
    return sorted(changes)


def as_read(value: Any, type_name: str | None) -> Any:
    """Even out what cannot be the same: money's text has the symbols of lc_monetary, its binary
    form does not; a composite type's binary form is bytes as long as nobody registers it."""
    if value is None or type_name not in ("money", "pair"):
        return value
    if type_name == "money":
        return value.replace("$", "").replace(",", "")
    return "composite"


def user_types(capture: corpus.Capture) -> pgc.TypeRegistry:
    """Register the scenarios' enums, which the stream declares by name only."""
    registry = pgc.TypeRegistry()
    streaming = False
    for data in capture.messages:
        streaming = (streaming or data[:1] == b"S") and data[:1] != b"E"
        if data[:1] == b"Y":
            message = pgc.decode_message(data, streaming=streaming)
            assert isinstance(message, pgc.Type)
            if message.namespace == "public" and message.name in ("mood", "flavour"):
                pgc.register_type(message.oid, message.name, like="text", registry=registry)
                if message.name == "mood":  # its array type came into being just before it
                    pgc.register_type(
                        message.oid - 1, "_mood", element=message.oid, registry=registry
                    )
    return registry


@pytest.mark.parametrize("capture", BINARY, ids=str)
def test_binary_gives_the_same_typed_values_as_text(capture: corpus.Capture) -> None:
    streamed = corpus.captures(capture.scenario, "v2-stream", capture.major)
    plain = corpus.captures(capture.scenario, "v1-text", capture.major)
    counterpart = (streamed if streamed and "stream" in capture.options else plain)[0]
    registry = user_types(capture)
    assert typed_changes(capture, registry) == typed_changes(counterpart, registry)
