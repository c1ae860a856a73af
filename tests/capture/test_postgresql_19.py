"""New features of PostgreSQL 19: on captures of a server, and on a live server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec.capture import Capture, peek
from pgwire_codec.errors import CaptureError
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.types import builtin as _pg_type
from tests.support import corpus
from tests.support.corpus_truth import truth_rows
from tests.support.log_captures import applied, capture_into, decoded, flush_lsn, messages
from tests.support.servers import GIVEN, Database, InstalledServer, database, installed
from tests.support.slot_captures import tags
from tests.transactions.test_splits import check_batches, check_parts
from tests.transactions.test_truth import decoded_tables, typed_changes

CAPTURES = {each.name: each for each in corpus.captures_in(Path(__file__).parents[1] / "pg19")}
TEXT, BINARY = CAPTURES["types.pg19.v1-text"], CAPTURES["types.pg19.v1-binary"]


def values(capture: corpus.Capture, **options: str) -> dict[str, list[Any]]:
    """The values of each table's column v, in order."""
    batches = pgc.Decoder(**options).decode(capture.messages).batches
    return {batch.relation.name: batch.new["v"].to_pylist() for batch in batches}


def test_the_captures() -> None:
    assert {each.scenario for each in CAPTURES.values()} == {"types", "streams"}
    sent = tags(CAPTURES["streams.pg19.v4-parallel-2pc"].messages)
    assert set(sent) == set(b"BCRIUDSEcAbPpKr")
    assert len(sent) > 4000


@pytest.mark.parametrize("capture", CAPTURES.values(), ids=str)
def test_each_message_comes_back(capture: corpus.Capture) -> None:
    streaming = False
    for data in capture.messages:
        message = pgc.decode_message(data, streaming=streaming)
        assert pgc.encode_message(message) == data
        streaming = (streaming or data[:1] == b"S") and data[:1] != b"E"


@pytest.mark.parametrize(
    "capture", [each for each in CAPTURES.values() if "binary" not in each.options], ids=str
)
def test_final_tables_are_the_servers(capture: corpus.Capture) -> None:
    tables = decoded_tables(capture)
    truth = corpus.truth(capture)
    assert set(tables) == set(truth)
    for name, expected in truth.items():
        rows = {row["k"]: row for row in truth_rows(expected)}
        # The stream does not have what ALTER TABLE did to rows that were there: w is NULL.
        found = {row["k"]: {**dict.fromkeys(rows["1"]), **row} for row in tables[name]}
        assert len(found) == len(tables[name])
        assert found == rows, name


def test_binary_streams_have_the_same_values() -> None:
    text, binary = (
        typed_changes(CAPTURES[f"streams.pg19.{options}"], pgc.TypeRegistry())
        for options in ("v4-parallel-2pc", "v4-parallel-2pc-binary")
    )
    assert text == binary
    assert len(text) > 3000


@pytest.mark.parametrize("capture", [TEXT, BINARY], ids=str)
@pytest.mark.parametrize("table", ["t_oid8", "t_oid8_array", "t_pg_lsn"])
def test_numbers(capture: corpus.Capture, table: str) -> None:
    expected: list[Any] = []
    for _, _, canonical in corpus.truth(capture)[table]["rows"]:
        value = None if canonical is None else json.loads(canonical)
        is_array = isinstance(value, list)
        expected.append(
            [None if each is None else int(each) for each in value] if is_array else value
        )
    assert values(capture)[table] == expected


@pytest.mark.parametrize("table", ["t_regdatabase", "t_regdatabase_array"])
def test_databases(table: str) -> None:
    """By name in text form, by OID in binary form."""
    rows = corpus.truth(TEXT)[table]["rows"]
    shown = values(TEXT)[table]
    oids = values(BINARY)[table]
    if table == "t_regdatabase":
        assert shown == [text for _, text, _ in rows]
        assert oids == [oid for _, _, oid in rows]
    else:
        assert shown == [[], ["postgres", None, "-"], None]
        assert oids == [oid and json.loads(oid) for _, _, oid in rows]


def test_as_text() -> None:
    truth = corpus.truth(TEXT)
    shown = values(TEXT, types="text")
    assert shown == {name: [row[1] for row in table["rows"]] for name, table in truth.items()}
    rendered = values(BINARY, types="text")
    for name in ("t_oid8", "t_oid8_array"):
        assert rendered[name] == shown[name]


def test_on_spark() -> None:
    """A long has no room for the upper half of an oid8."""
    batches = (
        pgc.Decoder(arrow_types=ROW_TYPES, unrepresentable="null").decode(TEXT.messages).batches
    )
    [batch] = [each for each in batches if each.relation.name == "t_oid8"]
    assert batch.new["v"].to_pylist() == [0, 1, 2**32, 2**63 - 1, None, None, None]


@pytest.mark.parametrize("capture", CAPTURES.values(), ids=str)
def test_however_it_is_cut(capture: corpus.Capture) -> None:
    count = len(capture.messages)
    cuts = [count * n // 40 for n in range(1, 40)]
    check_batches(capture, cuts)
    check_batches(capture, cuts, atomic=False)
    check_parts(capture, cuts)


@pytest.fixture(scope="module")
def pg19() -> Iterator[InstalledServer]:
    """The server that is given, with wal_level = replica."""
    if GIVEN is None:
        pytest.skip("PGWIRE_TEST_POSTGRES names no server")
    with installed(Path(GIVEN), {"wal_level": "replica"}) as server:
        if server.postgres_version < 19:
            pytest.skip(f"the server is PostgreSQL {server.postgres_version}")
        yield server


@pytest.mark.slow
class TestServer:
    """The captures show what it sent; this is how it is captured."""

    @pytest.fixture
    def made(self, pg19: InstalledServer) -> Iterator[Database]:
        with database(pg19) as made:
            yield made

    def level(self, made: Database) -> str:
        [(level,)] = made.query("SHOW effective_wal_level")
        return str(level)

    def test_the_table_of_types_is_fresh(self, made: Database) -> None:
        from tests.families.test_server import load_tool  # which imports psycopg2

        with made.connect() as connection:
            rendered = load_tool().render(connection)
        assert Path(_pg_type.__file__).read_text() == rendered

    @pytest.mark.parametrize("snapshot", [False, True], ids=["slot", "snapshot"])
    def test_the_first_slot_raises_the_level(
        self, made: Database, tmp_path: Path, snapshot: bool
    ) -> None:
        made.execute(
            "CREATE TABLE t (k int PRIMARY KEY, o oid8)",
            "CREATE PUBLICATION p FOR TABLE t",
            "INSERT INTO t VALUES (1, '18446744073709551615')",
        )
        assert self.level(made) == "replica"
        options = {"snapshot": True} if snapshot else {"create_slot": True}
        capture_into(made, tmp_path, **options).run(until_lsn=0)
        assert self.level(made) == "logical"
        made.execute("INSERT INTO t VALUES (2, 2)")
        capture_into(made, tmp_path, **options).run(until_lsn=flush_lsn(made))
        rows = [(row["k"], row["o"]) for row in decoded(tmp_path, "public.t")]
        assert rows == [(1, 2**64 - 1)] * snapshot + [(2, 2)]

    def test_a_slot_that_exists(self, made: Database) -> None:
        made.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
        made.create_slot()
        made.execute("INSERT INTO t VALUES (1)")
        assert tags(peek(made.dsn, slot=made.slot, publication="p").data) == b"BRIC"

    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    def test_tables_that_are_left_out(self, made: Database, tmp_path: Path, binary: bool) -> None:
        made.execute(
            "CREATE TABLE t (k int PRIMARY KEY, d regdatabase)",
            "CREATE TABLE hidden (k int PRIMARY KEY)",
            "CREATE TABLE root (k int) PARTITION BY LIST (k)",
            "CREATE TABLE one PARTITION OF root FOR VALUES IN (1)",
            "CREATE SEQUENCE q",
            "CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE hidden, root), ALL SEQUENCES",
        )
        write = [
            f"INSERT INTO {each}" for each in ("t VALUES ({}, 'postgres')", "hidden VALUES ({})")
        ]
        made.execute(*(each.format(1) for each in write), "INSERT INTO root VALUES (1)")
        options = {"snapshot": True, "binary": binary}
        status = capture_into(made, tmp_path, **options).run(until_lsn=0)
        assert (status.snapshot_tables, status.snapshot_rows) == (1, 1)
        made.execute(*(each.format(2) for each in write), "INSERT INTO root VALUES (1)")
        made.execute("SELECT nextval('q')", "DELETE FROM t WHERE k = 1")
        capture_into(made, tmp_path, **options).run(until_lsn=flush_lsn(made))
        names = {pgc.decode_message(each).name for each in messages(tmp_path) if each[:1] == b"R"}
        assert names == {"t"}
        [row] = applied(tmp_path, "public.t", "k").rows.values()
        [(oid,)] = made.query("SELECT oid::text FROM pg_database WHERE datname = 'postgres'")
        assert (row["k"], row["d"]) == (2, oid if binary else "postgres")

    def test_what_a_publication_leaves_out_is_missed(self, made: Database) -> None:
        made.execute(
            "CREATE TABLE t (k int)",
            "CREATE TABLE u (k int)",
            "CREATE TABLE root (k int) PARTITION BY LIST (k)",
            "CREATE TABLE one PARTITION OF root FOR VALUES IN (1)",
            "CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE t, root)",
        )
        made.create_slot()

        def opened(tables: Any) -> Capture:
            return Capture(made.dsn, slot=made.slot, publication="p", create_publication=tables)

        for tables in (["u"], "all tables"):
            with opened(tables):
                pass
        for tables, left_out in ((["u", "t"], "public.t"), (["one"], "public.one")):
            with pytest.raises(CaptureError) as raised, opened(tables):
                pass
            assert f"omits {left_out} — hint: Run ALTER PUBLICATION" in str(raised.value)
        made.execute('ALTER PUBLICATION "p" SET ALL TABLES')
        with opened(["t", "one", "root"]):
            pass

    def test_a_publication_of_sequences(self, made: Database) -> None:
        made.execute("CREATE TABLE t (k int)", "CREATE PUBLICATION p FOR ALL SEQUENCES")
        made.create_slot()
        options = {"slot": made.slot, "publication": "p"}
        for create in (False, ["t"]):
            with (
                pytest.raises(CaptureError) as raised,
                Capture(made.dsn, create_publication=create, **options),
            ):
                pass
            advice = 'Run ALTER PUBLICATION "p" SET ALL TABLES, ALL SEQUENCES;'
            assert advice in str(raised.value)
        made.execute(advice.removeprefix("Run "))
        with Capture(made.dsn, create_publication=["t"], **options):
            pass

    def test_a_level_that_is_too_low(self, pg19: InstalledServer) -> None:
        settings = {"wal_level": "minimal", "max_wal_senders": "0"}
        with (
            installed(pg19.binaries, settings) as server,
            database(server) as made,
            pytest.raises(CaptureError, match="ALTER SYSTEM SET wal_level = replica;"),
            Capture(made.dsn, slot="s", publication="p", create_slot=True),
        ):
            pass
