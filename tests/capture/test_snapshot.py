"""Snapshots before the stream: the same messages, every row once."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import psycopg2
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.capture.catalog.published_tables import published_tables
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.capture.snapshot.copy_session import CopySession
from pgwire_codec.demo import shop, workload
from pgwire_codec.errors import CaptureError
from pgwire_codec.protocol.lsn import parse_lsn
from tests.support import shop_rows
from tests.support.log_captures import applied, capture_into, decoded, flush_lsn, messages, slots
from tests.support.servers import Database, InstalledServer, database, each_major
from tests.support.slot_captures import blockers, opened, read, tags, wait_until

pytestmark = pytest.mark.slow

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN positives AS positive[];
CREATE TABLE everything (
    id int PRIMARY KEY, b boolean, i2 smallint, i8 bigint, f4 real, f8 double precision,
    n numeric, np numeric(12, 2), m money, t text, v varchar(10), c char(8), q "char", nm name,
    ba bytea, d date, tm time, tz timetz, ts timestamp, tstz timestamptz, iv interval,
    u uuid, j json, jb jsonb, o oid, rc regclass, bits bit(4), vb bit varying,
    ip inet, cd cidr, mac macaddr, pt point, ls lseg, bx box, ph path, pl polygon, ci circle,
    tv tsvector, tq tsquery, lsn pg_lsn, ia int[], ta text[], na numeric[], r int4range,
    mr int4multirange, e mood, ea mood[], p pair, dm positive, dms positives, a aclitem
);
INSERT INTO everything VALUES (
    1, true, -2, 9007199254740993, 0.1, 1e300, 'NaN', -1.50, 1234.5, E'tab\\there\\nline\\\\N',
    'é€', 'pad', 'x', 'name', '\\x00ff5c09', '2024-02-29', '24:00:00', '12:00:00+05:30',
    'infinity', '2024-02-29 12:00+01', '1 year -2 days 3.5 s',
    '00112233-4455-6677-8899-aabbccddeeff', '{"a" : 1}', '{"a": [1, null]}', 4294967295,
    'pg_class', '1010', '101', '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '(1,2)',
    '[(0,0),(1,1)]', '(1,1),(0,0)', '[(0,0),(1,1)]', '((0,0),(1,1),(1,0))', '<(0,0),1>',
    'a:1 b:2', 'a & b', '16/B374D848', '{1,NULL,3}', ARRAY['a', 'N"U\\LL', NULL, ''],
    '{1.50,NaN}', '[1,5)', '{[1,2),[5,6)}', 'happy', '{sad,happy}', '(1,"x y")', 5, '{1,2}',
    'postgres=r/postgres'
);
INSERT INTO everything (id, t, v, c, ba, ia, ta) VALUES
    (2, '', '', '', '', '{}', '{}'),
    (3, '\\N', '\\', E'\\t', '\\x5c4e', '[5:6]={1,2}', '{{a},{b}}');
INSERT INTO everything (id) VALUES (4);
INSERT INTO everything (id, p, t) VALUES (5, ROW(NULL, NULL), E'\\\\\\\\\\n\\r\\b\\f\\v\\\\t');
"""


def told(made: Database, **options: Any) -> list[bytes]:
    """Return the messages that the server sends since the slot was created."""
    with opened(made, **options) as capture:
        return read(capture)


def described(made: Database, *publications: str) -> dict[str, list[bytes]]:
    """Return the description of each table in a snapshot, by name."""
    connection = connect(made.dsn)
    try:
        tables = published_tables(connection.cursor(), publications or ("p",))
        return {table.relation.name: table.description() for table in tables}
    finally:
        connection.close()


class TestTables:
    """A snapshot describes tables as pgoutput does."""

    @pytest.fixture(autouse=True)
    def _publish_everything(self, pg: Database) -> None:
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        pg.create_slot()

    @pytest.mark.since(14, "multiranges")
    def test_types(self, pg: Database) -> None:
        pg.execute(TYPES.partition("INSERT INTO")[0])
        pg.execute("INSERT INTO everything (id) VALUES (9)")
        sent = [m for m in told(pg) if m[:1] in (b"R", b"Y")]
        assert sent == described(pg)["everything"]
        assert tags(sent) == b"YYYYYR"

    @pytest.mark.parametrize(
        "table",
        [
            "(k serial PRIMARY KEY, v text)",
            "(v text, k serial PRIMARY KEY, l int DEFAULT 1)",
            "(v text)",
            "(v text); ALTER TABLE a REPLICA IDENTITY FULL",
            "(v text, k serial PRIMARY KEY); ALTER TABLE a REPLICA IDENTITY NOTHING",
            "(k serial PRIMARY KEY, u int NOT NULL DEFAULT 1, w int NOT NULL DEFAULT 2);"
            " CREATE UNIQUE INDEX i ON a (w, u) INCLUDE (k);"
            " ALTER TABLE a REPLICA IDENTITY USING INDEX i",
            "(k serial, v int DEFAULT 1, PRIMARY KEY (v) INCLUDE (k))",
            "(k serial PRIMARY KEY DEFERRABLE)",
            "(k serial PRIMARY KEY, n numeric(5,2), v varchar(7), t timestamptz(3), b bit(3))",
            "(k serial PRIMARY KEY, gone int, x int); ALTER TABLE a DROP COLUMN gone",
            "(k serial PRIMARY KEY, g int GENERATED ALWAYS AS (1) STORED, x int)",
            '("select" serial PRIMARY KEY, "a ""%s"" é" text)',
            "(o oid, e information_schema.sql_identifier)",
            "()",
        ],
    )
    def test_columns_and_identity(self, pg: Database, table: str) -> None:
        pg.execute(f"CREATE TABLE a {table}", "INSERT INTO a DEFAULT VALUES")
        assert [m for m in told(pg) if m[:1] in (b"R", b"Y")] == described(pg)["a"]

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_names(self, pg: Database) -> None:
        pg.execute('CREATE SCHEMA "S s"', 'CREATE TABLE "S s"."T %s" (k serial)')
        pg.execute('INSERT INTO "S s"."T %s" DEFAULT VALUES')
        assert told(pg)[1:2] == described(pg)["T %s"]

    @pytest.mark.since(13, "allow_system_table_mods in a session")
    def test_a_table_of_pg_catalog(self, pg: Database) -> None:
        pg.execute(
            "SET allow_system_table_mods = on; CREATE TABLE pg_catalog.mine (k serial PRIMARY KEY)"
        )
        # No table of pg_catalog is published by default.
        pg.execute("CREATE TABLE other (k pg_catalog.mine)", "INSERT INTO other VALUES (NULL)")
        sent = [m for m in told(pg) if m[:1] in (b"R", b"Y")]
        assert sent == described(pg)["other"]
        assert pgc.decode_message(sent[0]).namespace == ""

    def test_partitions(self, pg: Database) -> None:
        pg.execute(
            "CREATE TABLE root (k int, v text) PARTITION BY LIST (k)",
            "CREATE TABLE one PARTITION OF root FOR VALUES IN (1)",
            "CREATE TABLE two (v text, k int)",
            "ALTER TABLE root ATTACH PARTITION two FOR VALUES IN (2)",
            "INSERT INTO root VALUES (1, 'a'), (2, 'b')",
        )
        found = described(pg)
        assert set(found) == {"one", "two"}
        assert [m for m in told(pg) if m[:1] == b"R"] == found["one"] + found["two"]

    @pytest.mark.since(13, "publish_via_partition_root")
    def test_partitions_under_their_root(self, pg: Database) -> None:
        pg.execute(
            "CREATE TABLE root (k int, v text) PARTITION BY LIST (k)",
            "CREATE TABLE one PARTITION OF root FOR VALUES IN (1)",
            "CREATE PUBLICATION whole FOR TABLE root WITH (publish_via_partition_root)",
            "INSERT INTO root VALUES (1, 'a')",
        )
        for publications in (("whole",), ("p", "whole")):
            found = described(pg, *publications)
            assert set(found) == {"root"}
        slot = pg.create_slot("_2")
        pg.execute("INSERT INTO root VALUES (1, 'b')")
        sent = told(pg, slot=slot, publication="whole")
        assert [m for m in sent if m[:1] == b"R"][:1] == found["root"]

    @each_major
    def test_generated_columns_where_they_are_published(self, pg: Database) -> None:
        if pg.major < 18:
            pytest.skip("publish_generated_columns came with PostgreSQL 18")
        pg.execute("CREATE PUBLICATION g FOR ALL TABLES WITH (publish_generated_columns = stored)")
        slot = pg.create_slot("_2")
        pg.execute(
            "CREATE TABLE a (k serial, s int GENERATED ALWAYS AS (1) STORED,"
            " v int GENERATED ALWAYS AS (2) VIRTUAL)",
            "INSERT INTO a DEFAULT VALUES",
        )
        assert told(pg, slot=slot, publication="g")[1:2] == described(pg, "g")["a"]
        [(relation,)] = [described(pg, "g")["a"]]
        assert b"s\0" in relation


def rows_told(sent: list[bytes]) -> list[bytes]:
    return [message for message in sent if message[:1] == b"I"]


class TestRows:
    """A row of a snapshot is the Insert that pgoutput sends for it, byte for byte."""

    @each_major
    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    @pytest.mark.since(14, "multiranges")
    def test_every_type(self, pg: Database, tmp_path: Path, binary: bool) -> None:
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        pg.create_slot("_live")
        pg.execute(TYPES)
        live = told(pg, slot=f"{pg.slot}_live", binary=binary)
        capture_into(pg, tmp_path, snapshot=True, binary=binary).run(until_lsn=0)
        taken = messages(tmp_path)
        assert rows_told(taken) == rows_told(live)
        assert len(rows_told(live)) == 5
        assert [m for m in taken if m[:1] in (b"R", b"Y")] == [
            m for m in live if m[:1] in (b"R", b"Y")
        ]

    def test_the_shop(self, pg: Database, tmp_path: Path) -> None:
        shop.create(pg.dsn)
        workload.run(pg.dsn)
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        status = capture_into(pg, tmp_path, snapshot=True).run(until_lsn=0)
        assert status.snapshot_tables == len(shop.KEYS)
        for table, key in shop.KEYS.items():
            name = f"{shop.SCHEMA}.{table}"
            rows = {
                tuple(row[column] for column in key): row
                for row in map(dict, shop_rows.rows(pg.dsn, table))
            }
            assert applied(tmp_path, name, *key, types="text").rows == rows
        assert status.snapshot_rows == sum(
            len(shop_rows.rows(pg.dsn, table)) for table in shop.KEYS
        )

    @pytest.mark.since(15, "column lists and row filters")
    def test_column_lists_and_row_filters(self, pg: Database, tmp_path: Path) -> None:
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, secret text, v text)",
            "CREATE TABLE u (k int PRIMARY KEY)",
            "CREATE TABLE child () INHERITS (u)",
            "CREATE PUBLICATION p FOR TABLE t (k, v) WHERE (k % 2 = 0)",
            "CREATE PUBLICATION q FOR TABLE t (k, v) WHERE (v = 'x'), ONLY u",
            "INSERT INTO t SELECT g, 'no', chr(118 + g % 3) FROM generate_series(1, 12) g",
            "INSERT INTO u VALUES (1)",
            "INSERT INTO child VALUES (2)",
        )
        capture_into(pg, tmp_path, publication=["p", "q"], snapshot=True).run(until_lsn=0)
        expected = pg.query("SELECT k, v FROM t WHERE k % 2 = 0 OR v = 'x'")
        rows = list(decoded(tmp_path, "public.t"))
        assert sorted((row["k"], row["v"]) for row in rows) == sorted(expected)
        assert not any("secret" in row for row in rows)
        assert [row["k"] for row in decoded(tmp_path, "public.u")] == [1]

    @pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
    @pytest.mark.parametrize("publication", ["option", "listed", "option,listed,all"])
    @pytest.mark.since(18, "publish_generated_columns")
    def test_generated_columns(
        self, pg: Database, tmp_path: Path, publication: str, binary: bool
    ) -> None:
        """COPY refuses to read them; the stream has them if they are published."""
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, s text GENERATED ALWAYS AS ('s' || k) STORED,"
            " v text, w int GENERATED ALWAYS AS (k * 2) VIRTUAL)",
            "CREATE TABLE u (k int PRIMARY KEY)",
            "CREATE PUBLICATION option FOR TABLE t WITH (publish_generated_columns = stored)",
            "CREATE PUBLICATION listed FOR TABLE t (k, s, v)",
            "CREATE PUBLICATION all_ FOR ALL TABLES WITH (publish_generated_columns = stored)",
        )
        publications = publication.replace("all", "all_").split(",")
        pg.create_slot("_live")
        pg.execute("INSERT INTO t (k, v) VALUES (1, E'a\\tb'), (2, NULL)")
        options = {"publication": publications, "binary": binary}
        live = told(pg, slot=f"{pg.slot}_live", **options)
        capture_into(pg, tmp_path, snapshot=True, **options).run(until_lsn=0)
        taken = messages(tmp_path)
        assert rows_told(taken) == rows_told(live)
        assert next(m for m in live if m[:1] == b"R") in taken
        pg.execute("INSERT INTO t (k) VALUES (3)")
        capture_into(pg, tmp_path, snapshot=True, **options).run(until_lsn=flush_lsn(pg))
        rows = list(decoded(tmp_path, "public.t"))
        assert [(row["k"], row["s"]) for row in rows] == [(1, "s1"), (2, "s2"), (3, "s3")]
        assert [name for name in rows[0] if not name.startswith("_")] == ["k", "s", "v"]

    @pytest.mark.parametrize(
        ("publications", "columns"),
        [
            (["neither"], ["k", "v"]),
            (["without"], ["k", "v"]),
            (["neither", "without"], ["k", "v"]),
            (["neither", "option"], None),
            (["without", "option"], None),
            (["neither", "listed"], None),
            (["listed", "option"], ["k", "s", "v"]),
        ],
    )
    @pytest.mark.since(18, "publish_generated_columns")
    def test_whether_generated_columns_are_published(
        self, pg: Database, tmp_path: Path, publications: list[str], columns: list[str] | None
    ) -> None:
        """Publications that the server refuses to decode are refused before a slot is created."""
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, s int GENERATED ALWAYS AS (k) STORED, v text)",
            "CREATE PUBLICATION option FOR TABLE t WITH (publish_generated_columns = stored)",
            "CREATE PUBLICATION listed FOR TABLE t (k, s, v)",
            "CREATE PUBLICATION without FOR TABLE t (k, v)",
            "CREATE PUBLICATION neither FOR TABLE t",
        )
        slot = pg.create_slot("_live")
        pg.execute("INSERT INTO t VALUES (1)")
        capture = capture_into(pg, tmp_path, publication=publications, snapshot=True)
        if columns is None:
            with pytest.raises(CaptureError, match="different"):
                told(pg, slot=slot, publication=publications)
            with pytest.raises(CaptureError, match="different columns of table t"):
                capture.run(until_lsn=0)
            return
        live = told(pg, slot=slot, publication=publications)
        capture.run(until_lsn=0)
        assert rows_told(messages(tmp_path)) == rows_told(live)
        [relation] = [pgc.decode_message(m) for m in messages(tmp_path) if m[:1] == b"R"]
        assert [column.name for column in relation.columns] == columns

    @pytest.mark.since(15, "column lists and row filters")
    def test_one_publication_without_a_filter_is_enough(self, pg: Database, tmp_path: Path) -> None:
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY)",
            "CREATE PUBLICATION p FOR TABLE t WHERE (k > 5)",
            "CREATE PUBLICATION q FOR ALL TABLES",
            "INSERT INTO t SELECT generate_series(1, 10)",
        )
        capture_into(pg, tmp_path, publication=["p", "q"], snapshot=True).run(until_lsn=0)
        assert len(list(decoded(tmp_path, "public.t"))) == 10

    @pytest.mark.since(15, "column lists and row filters")
    def test_column_lists_that_differ(self, pg: Database, tmp_path: Path) -> None:
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, v text)",
            "CREATE PUBLICATION p FOR TABLE t (k)",
            "CREATE PUBLICATION q FOR TABLE t (k, v)",
        )
        capture = capture_into(pg, tmp_path, publication=["p", "q"], snapshot=True)
        with pytest.raises(CaptureError, match="publish different columns of table t"):
            capture.run(until_lsn=0)
        assert slots(pg) == []

    def test_rows_that_a_policy_hides_are_an_error(self, pg: Database, tmp_path: Path) -> None:
        role = pg.create_role("REPLICATION")
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY)",
            "INSERT INTO t VALUES (1)",
            "CREATE PUBLICATION p FOR TABLE t",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            f"GRANT SELECT ON t TO {role}",
        )
        dsn = pg.server.dsn_for(pg.name, role)
        capture = pgc.capture.LogCapture(
            dsn, tmp_path, slot=pg.slot, publication="p", snapshot=True, max_retries=0
        )
        with pytest.raises(CaptureError, match="row-level security"):
            capture.run(until_lsn=0)
        assert slots(pg) == []

    def test_on_an_older_server(self, pg15: InstalledServer, tmp_path: Path) -> None:
        with database(pg15) as made:
            made.execute("CREATE PUBLICATION p FOR ALL TABLES")
            made.create_slot("_live")
            made.execute(TYPES)
            live = told(made, slot=f"{made.slot}_live")
            capture_into(made, tmp_path, snapshot=True, two_phase=True).run(until_lsn=0)
            assert rows_told(messages(tmp_path)) == rows_told(live)


def first_record(lsn: int) -> int:
    """Return where the record after `lsn` begins: after the header of a page, if there is one.

    XLogRecPtrToBytePos in PostgreSQL's xlog.c; pages of 8 KiB, segments of 16 MiB.
    """
    if lsn % 8192:
        return lsn
    return lsn + (24 if lsn % (16 << 20) else 40)


class TestBesideTheStream:
    def test_a_commit_right_where_the_slot_begins(self, pg: Database, tmp_path: Path) -> None:
        """The slot starts after a record of running transactions; a commit may follow at once."""
        pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
        connections = [psycopg2.connect(pg.dsn) for _ in range(3)]
        cursors = [connection.cursor() for connection in connections]
        capture = capture_into(pg, tmp_path, snapshot=True)
        run = threading.Thread(target=capture.run, kwargs={"idle_seconds": 1.0})
        try:
            cursors[0].execute("INSERT INTO t VALUES (1)")
            run.start()
            # It waits for the first, and then for who began meanwhile.
            self.wait_for(pg, connections[0])
            cursors[1].execute("INSERT INTO t VALUES (2)")
            connections[0].commit()
            self.wait_for(pg, connections[1])
            cursors[2].execute("INSERT INTO t VALUES (3)")
            connections[1].commit()
            with pg.connect() as watching:
                cursor = watching.cursor()
                is_made = None
                while not is_made:
                    cursor.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots")
                    [(is_made,)] = cursor.fetchall()
            connections[2].commit()
            run.join(20)
        finally:
            for connection in connections:
                connection.close()
        changes = list(decoded(tmp_path, "public.t"))
        assert [(row["k"], row["_xid"] == 0) for row in changes] == [
            (1, True), (2, True), (3, False),
        ]  # fmt: skip
        # What makes the case: no record is between the two positions.
        [begin] = {row["_commit_lsn"] for row in changes if row["_xid"]}
        consistent = next(
            pgc.decode_message(m).end_lsn for m in messages(tmp_path) if m[:1] == b"C"
        )
        assert begin == first_record(consistent)

    @pytest.mark.parametrize("change", ["ALTER TABLE t ADD w int", "TRUNCATE t"])
    def test_a_table_that_is_changed_by_who_the_slot_waits_for(
        self, pg: Database, tmp_path: Path, change: str
    ) -> None:
        """The slot waits for the transaction to end, and must not keep it from ending."""
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY)",
            "INSERT INTO t VALUES (1), (2)",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        capture = capture_into(pg, tmp_path, snapshot=True)
        run = threading.Thread(target=capture.run, kwargs={"idle_seconds": 1.0})
        with contextlib.closing(psycopg2.connect(pg.dsn)) as connection:
            cursor = connection.cursor()
            cursor.execute("SET lock_timeout = '10s'")
            cursor.execute("INSERT INTO t VALUES (3)")
            run.start()
            self.wait_for(pg, connection)
            cursor.execute(change)
            cursor.execute("INSERT INTO t (k) VALUES (4)")
            connection.commit()
        run.join(30)
        assert not run.is_alive()
        expected = pg.query("SELECT k FROM t")
        assert sorted((row["k"],) for row in decoded(tmp_path, "public.t")) == sorted(expected)

    @pytest.mark.parametrize("change", ["ALTER TABLE t ADD w int", "TRUNCATE t", "VACUUM FULL t"])
    def test_a_table_that_changes_before_it_is_locked(
        self, pg: Database, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY)",
            "INSERT INTO t VALUES (1), (2)",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        lock = CopySession._lock_tables
        problems: list[str | None] = []

        def change_and_lock(session: CopySession, cursor: Any) -> None:
            if not problems:
                pg.execute(change)
            problems.append(capture.status.problem)
            lock(session, cursor)

        monkeypatch.setattr(CopySession, "_lock_tables", change_and_lock)
        capture = capture_into(pg, tmp_path, snapshot=True, snapshot_jobs=1, max_retries=5)
        capture.run(until_lsn=flush_lsn(pg))
        assert len(problems) > 1, "it was not tried again"
        assert problems[1] is not None
        assert "changed while their snapshot" in problems[1]
        expected = pg.query("SELECT k FROM t")
        assert sorted((row["k"],) for row in decoded(tmp_path, "public.t")) == sorted(expected)

    def test_a_table_that_somebody_locked(
        self, pg: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
        lock = CopySession._lock_tables
        with contextlib.closing(psycopg2.connect(pg.dsn)) as connection:

            def lock_behind(session: CopySession, cursor: Any) -> None:
                connection.cursor().execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
                lock(session, cursor)

            monkeypatch.setattr(CopySession, "_lock_tables", lock_behind)
            capture = capture_into(pg, tmp_path, snapshot=True, max_retries=0)
            with pytest.raises(CaptureError, match=r'"public"\."t" is locked by a transaction'):
                capture.run(until_lsn=0)
        assert slots(pg) == []
        monkeypatch.undo()
        capture_into(pg, tmp_path, snapshot=True).run(until_lsn=0)
        assert len(slots(pg)) == 1

    def test_a_table_that_somebody_waits_to_alter(
        self, pg: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It waits for the snapshot, and reading the catalog waits for it."""
        pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
        [(table,)] = pg.query("SELECT 't'::regclass::oid")
        waiting = f"SELECT 1 FROM pg_locks WHERE relation = {table} AND NOT granted"
        lock = CopySession._lock_tables
        alterations: list[threading.Thread] = []

        def lock_before(session: CopySession, cursor: Any) -> None:
            lock(session, cursor)
            if not alterations:
                alterations.append(
                    threading.Thread(target=pg.execute, args=["ALTER TABLE t ADD w int"])
                )
                alterations[0].start()
                assert wait_until(lambda: pg.query(waiting))

        monkeypatch.setattr(CopySession, "_lock_tables", lock_before)
        pg.execute("INSERT INTO t VALUES (1)")
        capture_into(pg, tmp_path, snapshot=True).run(until_lsn=0)
        alterations[0].join(20)
        assert [(row["k"], row["w"]) for row in decoded(tmp_path, "public.t")] == [(1, None)]

    def test_a_table_that_somebody_waits_to_alter_after_a_failure(
        self, pg: Database, tmp_path: Path
    ) -> None:
        """The snapshot that is kept for the next attempt would block both of them."""
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY)",
            "CREATE PUBLICATION p FOR TABLE t",
            "INSERT INTO t VALUES (1)",
        )
        [(table,)] = pg.query("SELECT 't'::regclass::oid")
        waiting = f"SELECT 1 FROM pg_locks WHERE relation = {table} AND NOT granted"
        alteration = threading.Thread(target=pg.execute, args=["ALTER TABLE t ADD w int"])
        capture = capture_into(pg, tmp_path, snapshot=True)
        original = capture._copied

        def fail_once(*arguments: Any) -> None:
            if alteration.ident is None:
                alteration.start()
                assert wait_until(lambda: pg.query(waiting))
                raise CaptureError("the connection was lost", is_transient=True)
            original(*arguments)

        capture._copied = fail_once  # type: ignore[method-assign]
        capture.run(until_lsn=0)
        alteration.join(20)
        rows = {row["k"]: row["w"] for row in decoded(tmp_path, "public.t")}
        assert rows == {1: None}

    def wait_for(self, pg: Database, connection: Any) -> None:
        """Wait until the creation of the slot waits for the connection's transaction."""
        assert wait_until(lambda: blockers(pg) == [connection.info.backend_pid])

    @pytest.mark.since(14, "multiranges")
    def test_the_streams_first_relation_is_no_new_version(
        self, pg: Database, tmp_path: Path
    ) -> None:
        pg.execute(TYPES, "CREATE PUBLICATION p FOR ALL TABLES")
        capture_into(pg, tmp_path, snapshot=True).run(until_lsn=0)
        pg.execute("INSERT INTO everything (id) VALUES (100)")
        capture_into(pg, tmp_path, snapshot=True).run(until_lsn=flush_lsn(pg))
        assert tags(messages(tmp_path)).count(b"R") == 2
        assert len(log.Log(tmp_path).plan().versions) == 1
        changes = decoded(tmp_path, "public.everything", types="text")
        assert [change["id"] for change in changes] == ["1", "2", "3", "4", "5", "100"]

    def test_under_a_running_workload(self, pg: Database, tmp_path: Path) -> None:
        shop.create(pg.dsn)
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        failures: list[BaseException] = []
        done: list[workload.Step] = []

        def work() -> None:
            try:
                workload.run(pg.dsn, two_phase=False, report=done.append)
            except BaseException as error:  # noqa: BLE001  (raised again below)
                failures.append(error)

        for number in range(2):
            folder = tmp_path / str(number)
            done.clear()
            worker = threading.Thread(target=work)
            worker.start()
            steps = 1 + 5 * number
            assert wait_until(lambda steps=steps: len(done) >= steps)
            capture_into(pg, folder, slot=f"{pg.slot}_{number}", snapshot=True).run(until_lsn=0)
            worker.join()
            assert not failures
            capture = capture_into(pg, folder, slot=f"{pg.slot}_{number}", streaming="on")
            capture.run(until_lsn=flush_lsn(pg))
            for table, key in shop.KEYS.items():
                server = {
                    tuple(row[c] for c in key): dict(row) for row in shop_rows.rows(pg.dsn, table)
                }
                # Columns that a table got meanwhile are not in the rows that came before.
                found = {
                    row_key: {**dict.fromkeys(server.get(row_key, {})), **row}
                    for row_key, row in applied(
                        folder, f"{shop.SCHEMA}.{table}", *key, types="text"
                    ).rows.items()
                }
                assert found == server
            shop.create(pg.dsn, drop_existing=True)


class TestInterrupted:
    @pytest.fixture
    def filled(self, pg: Database) -> Database:
        pg.execute(
            "CREATE TABLE t (k int PRIMARY KEY, v text)",
            "CREATE PUBLICATION p FOR TABLE t",
            "INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 20000) g",
        )
        return pg

    def test_stopped_and_begun_anew(self, filled: Database, tmp_path: Path) -> None:
        capture = capture_into(filled, tmp_path, snapshot=True)
        original = capture._copied

        def stop(*arguments: Any) -> None:
            capture.stop()
            original(*arguments)

        capture._copied = stop  # type: ignore[method-assign]
        assert capture.run().state == "stopped"
        assert slots(filled) == []
        assert log.Log(tmp_path).confirm_lsn == 0
        with pytest.raises(CaptureError, match="contains an interrupted snapshot"):
            capture_into(filled, tmp_path, create_slot=True).run(until_lsn=0)
        filled.execute("UPDATE t SET v = 'new' WHERE k = 1", "DELETE FROM t WHERE k = 2")
        capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        rows = applied(tmp_path, "public.t", "k").rows
        assert len(rows) == 19999
        assert rows[(1,)]["v"] == "new"

    def test_the_slot_of_a_dead_snapshot_is_dropped(self, filled: Database, tmp_path: Path) -> None:
        """As after SIGKILL between the slot's creation and the log's first row."""
        capture = capture_into(filled, tmp_path, snapshot=True)
        capture._copied = lambda *_: capture.stop()  # type: ignore[method-assign]
        capture.run()
        # A capture that is stopped has little time to drop its slot. With that of a snapshot that
        # the server still has, the next capture would continue.
        drop = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE NOT active AND database = current_database()"
        )

        def is_dropped() -> bool:
            # The session of the stopped capture can be about to drop it, too.
            with contextlib.suppress(psycopg2.errors.ObjectInUse, psycopg2.errors.UndefinedObject):
                return filled.query(drop) == [] == slots(filled)
            return False

        assert wait_until(is_dropped)
        old = filled.create_slot()
        filled.execute("DELETE FROM t WHERE k > 10")
        before = flush_lsn(filled)
        capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        assert slots(filled) == [old]
        assert log.Log(tmp_path).confirm_lsn > before
        assert len(applied(tmp_path, "public.t", "k").rows) == 10

    def test_a_slot_that_streams_into_the_log_is_never_dropped(
        self, filled: Database, tmp_path: Path
    ) -> None:
        capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        [(restart,)] = filled.query("SELECT restart_lsn FROM pg_replication_slots")
        filled.execute("INSERT INTO t VALUES (0, 'streamed')")
        status = capture_into(filled, tmp_path, snapshot=True).run(until_lsn=flush_lsn(filled))
        assert status.snapshot_rows == 0
        changes = list(decoded(tmp_path, "public.t"))
        assert len(changes) == 20001
        assert [row["_xid"] > 0 for row in changes[-2:]] == [False, True]
        assert filled.query("SELECT count(*) FROM pg_replication_slots") == [(1,)]
        assert parse_lsn(restart) <= flush_lsn(filled)

    def test_a_slot_of_somebody_else(self, filled: Database, tmp_path: Path) -> None:
        slot = filled.create_slot()
        with pytest.raises(CaptureError, match=f'"{slot}" already exists, and a snapshot begins'):
            capture_into(filled, tmp_path, snapshot=True).run(until_lsn=0)
        assert slots(filled) == [slot]

    def test_nobody_alters_a_table_meanwhile(self, filled: Database, tmp_path: Path) -> None:
        """An ALTER TABLE that rewrites the table would leave nothing for the snapshot."""
        capture = capture_into(filled, tmp_path, snapshot=True)
        blocked: list[bool] = []
        original = capture._copied

        def alter(*arguments: Any) -> None:
            if not blocked:
                with filled.connect() as connection:
                    cursor = connection.cursor()
                    cursor.execute("SET lock_timeout = '100ms'")
                    try:
                        cursor.execute("ALTER TABLE t ALTER k TYPE bigint")
                        blocked.append(False)
                    except psycopg2.errors.LockNotAvailable:
                        blocked.append(True)
            original(*arguments)

        capture._copied = alter  # type: ignore[method-assign]
        capture.run(until_lsn=0)
        assert blocked == [True]
        filled.execute("ALTER TABLE t ALTER k TYPE bigint")
