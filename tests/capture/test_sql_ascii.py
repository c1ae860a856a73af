"""Databases with bytes that are not UTF-8: in the stream, in a snapshot and in a peek."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec import Decoder, log
from pgwire_codec.capture import peek
from pgwire_codec.errors import CaptureError, DecodeError
from tests.support.log_captures import capture_into, decoded
from tests.support.servers import Database, with_table

pytestmark = pytest.mark.slow

ROWS = (
    "INSERT INTO t VALUES (1, 'good'), (2, E'caf\\351'), (3, E'caf\\303\\251')",
    "INSERT INTO u VALUES (1)",
)


@pytest.fixture
def made(request: pytest.FixtureRequest, pg: Database) -> Iterator[Database]:
    """A database with the encoding of the parameter, the tables t and u, and a slot."""
    encoding = getattr(request, "param", "SQL_ASCII")
    other = Database(pg.server, f"{pg.name}_{encoding.lower()}", f"{pg.slot}_e")
    pg.execute(
        f"CREATE DATABASE {other.name} ENCODING '{encoding}' TEMPLATE template0"
        " LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    try:
        yield with_table(other)
    finally:
        other.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )
        pg.execute(f"DROP DATABASE {other.name}")


def values(folder: Path, **options: Any) -> list[Any]:
    return [row["v"] for row in decoded(folder, "public.t", **options)]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
def test_one_byte_costs_its_value(
    made: Database, tmp_path: Path, snapshot: bool, binary: bool
) -> None:
    made.execute("CREATE TABLE u (k int PRIMARY KEY)", "ALTER PUBLICATION p ADD TABLE u", *ROWS)
    if snapshot:
        made.execute(f"SELECT pg_drop_replication_slot('{made.slot}')")
    capture_into(made, tmp_path, snapshot=snapshot, binary=binary).run(until_lsn="now")
    # By policy: the value, the row, or the table; never another table.
    assert values(tmp_path, unrepresentable="null") == ["good", None, "café"]
    assert values(tmp_path, unrepresentable="clamp") == ["good", "caf\ufffd", "café"]
    assert [r["_invalid"] for r in decoded(tmp_path, "public.t", unrepresentable="null")] == [
        None,
        ["v"],
        None,
    ]
    assert values(tmp_path, on_error="skip") == ["good", "café"]
    letters = [row for batch in log.dead_letters(tmp_path) for row in batch.to_pylist()]
    assert [letter["code"] for letter in letters] == ["invalid_utf8"]
    with pytest.raises(DecodeError, match=r"invalid_utf8.* row k=.*SQL_ASCII"):
        values(tmp_path)
    assert [row["k"] for row in decoded(tmp_path, "public.u")] == [1]


def test_in_a_peek(made: Database) -> None:
    made.execute("CREATE TABLE u (k int PRIMARY KEY)", *ROWS)
    changes = Decoder(unrepresentable="clamp").decode(
        peek(made.dsn, slot=made.slot, publication="p").data
    )
    [batch] = changes.batches
    rows = pa.record_batch(batch.to_arrow()).to_pylist()
    assert [row["v"] for row in rows] == ["good", "caf\ufffd", "café"]


def test_the_servers_own_bytes(made: Database, tmp_path: Path) -> None:
    """The log has what the server has."""
    made.execute("CREATE TABLE u (k int PRIMARY KEY)", *ROWS)
    capture_into(made, tmp_path).run(until_lsn="now")
    [(stored,)] = made.query("SELECT v::bytea FROM t WHERE k = 2")
    sent = b"".join(m for batch in log.Log(tmp_path).messages() for m in batch["data"].to_pylist())
    assert bytes(stored) == b"caf\xe9"
    assert b"t\0\0\0\x04caf\xe9" in sent


@pytest.mark.parametrize("made", ["LATIN1"], indirect=True)
def test_another_encoding_is_converted(made: Database, tmp_path: Path) -> None:
    made.execute("INSERT INTO t VALUES (1, 'é')")
    capture_into(made, tmp_path).run(until_lsn="now")
    assert values(tmp_path) == ["é"]


@pytest.mark.parametrize("made", ["WIN1252"], indirect=True)
def test_a_character_that_utf8_lacks(made: Database, tmp_path: Path) -> None:
    """The server stores any byte, and converts none of the row."""
    made.execute("SET client_encoding = 'WIN1252'; INSERT INTO t VALUES (1, E'\\x81')")
    with pytest.raises(CaptureError) as caught:
        capture_into(made, tmp_path).run(until_lsn="now")
    assert caught.value.primary.startswith(
        "a character of the database's encoding does not exist in UTF-8: "
    )
    assert "capture into a new log with a snapshot" in str(caught.value.hint)
    assert not caught.value.is_transient
