"""Findings of check_server on servers that are wrong in one way each, and their remedies."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
from click.testing import CliRunner

from pgwire_codec import Delete, Relation, decode_message
from pgwire_codec.capture import Finding, LogCapture, ServerCheck, check_server, peek
from pgwire_codec.capture.checks import server as server_checks
from pgwire_codec.capture.checks import tables as table_checks
from pgwire_codec.cli.app import app
from pgwire_codec.errors import CaptureError
from tests.support.log_captures import capture_into, decoded
from tests.support.servers import (
    GIVEN,
    QUICK_AND_STEADY,
    Database,
    TemporaryServer,
    database,
    installed,
)
from tests.support.slot_captures import opened, wait_until

pytestmark = pytest.mark.slow

#: Findings on every server of the tests.
USUAL = {"wal_limit"}


def findings(made: Database, dsn: str | None = None, **options: Any) -> dict[str, Finding]:
    """Findings by code, without the usual ones."""
    found = check_server(dsn or made.dsn, **options)
    assert found.server_version // 10_000 == made.major
    by_code = {each.code: each for each in found.findings if each.code not in USUAL}
    assert len(by_code) == sum(each.code not in USUAL for each in found.findings)
    return by_code


def only(made: Database, **options: Any) -> Finding:
    """The one finding that there must be."""
    found = findings(made, **options)
    assert len(found) == 1, found
    return next(iter(found.values()))


@pytest.fixture
def ready(pg: Database) -> Database:
    """A database with a table and its publication."""
    pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    return pg


@contextmanager
def configured(**settings: str) -> Iterator[Database]:
    """A database on a server of its own."""
    whole = {**QUICK_AND_STEADY, **settings}
    server = installed(Path(GIVEN), whole) if GIVEN else TemporaryServer(settings=whole)
    with server as running, database(running) as made:
        yield made


def major_of_configured() -> int:
    """The major of the servers of `configured`."""
    if GIVEN is None:
        return 18
    version = subprocess.run([f"{GIVEN}/postgres", "-V"], capture_output=True, check=True).stdout
    found = re.search(rb"\d+", version)
    assert found is not None
    return int(found[0])


def test_a_server_that_is_ready(ready: Database, tmp_path: Any) -> None:
    ready.create_slot()
    found = check_server(ready.dsn, publication="p", slot=ready.slot)
    assert found.is_ready
    assert {each.code for each in found.findings} == USUAL
    assert findings(ready) == {}
    # It is as ready as it says.
    log = tmp_path / "log"
    LogCapture(ready.dsn, log, slot=ready.slot, publication="p").run(until_lsn=1)


def test_nothing_is_changed(ready: Database) -> None:
    objects = (
        "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_publication),"
        " (SELECT count(*) FROM pg_class), pg_current_wal_insert_lsn()"
    )
    ready.execute("CHECKPOINT")
    before = ready.query(objects)
    check_server(ready.dsn, publication="p", slot="new")
    assert ready.query(objects)[0][:3] == before[0][:3]


class TestTables:
    def mended(self, made: Database, finding: Finding, **options: Any) -> None:
        """The remedy, run, makes the finding go."""
        for statement in finding.remedy:
            made.execute(statement)
        assert finding.code not in findings(made, **options)

    @pytest.mark.parametrize("publication", [(), ("p",)])
    def test_no_replica_identity(self, ready: Database, publication: tuple[str, ...]) -> None:
        ready.execute(
            'CREATE TABLE "No Key" (k int)',
            "CREATE TABLE deferred (k int PRIMARY KEY DEFERRABLE)",
            "CREATE TABLE parts (k int) PARTITION BY LIST (k)",
            "CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1)",
            "CREATE TABLE by_index (k int NOT NULL UNIQUE)",
            "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_k_key",
            'ALTER PUBLICATION p ADD TABLE "No Key", deferred, by_index, '
            + ("parts" if ready.major >= 13 else "part_1"),
        )
        finding = only(ready, publication=publication)
        assert (finding.code, finding.level) == ("replica_identity", "error")
        names = ['public."No Key"', "public.deferred", "public.part_1"]
        assert all(name in finding.text for name in names)
        assert "by_index" not in finding.text
        # The server agrees: the update fails.
        with pytest.raises(psycopg2.Error, match="replica identity"):
            ready.execute('INSERT INTO "No Key" VALUES (1)', 'UPDATE "No Key" SET k = 2')
        self.mended(ready, finding, publication=publication)
        ready.execute('UPDATE "No Key" SET k = 2')

    def test_a_table_that_is_only_inserted_into(self, ready: Database, tmp_path: Path) -> None:
        ready.execute(
            "CREATE TABLE events (what text)",
            "CREATE TABLE keyed (k int PRIMARY KEY)",
            *(f"ALTER TABLE {name} REPLICA IDENTITY NOTHING" for name in ("events", "keyed")),
            "ALTER PUBLICATION p ADD TABLE events, keyed",
        )
        ready.create_slot()
        finding = only(ready, publication="p")
        assert (finding.code, finding.level) == ("identity_nothing", "warning")
        assert finding.text == (
            "public.events, public.keyed have REPLICA IDENTITY NOTHING: their inserts are captured,"
            " and the server refuses UPDATE and DELETE once they are published"
        )
        done = CliRunner().invoke(app, ["check", "--dsn", ready.dsn, "--publication", "p"])
        assert (done.exit_code, done.stderr) == (0, "")
        # The server agrees: inserts are sent, and an update fails.
        ready.execute("INSERT INTO events VALUES ('open')")
        capture_into(ready, tmp_path).run(until_lsn="now")
        assert [row["what"] for row in decoded(tmp_path, "public.events")] == ["open"]
        for table in ("events", "keyed"):
            with pytest.raises(psycopg2.Error, match="does not have a replica identity"):
                ready.execute(f"DELETE FROM {table}")
        self.mended(ready, finding, publication="p")
        ready.execute("DELETE FROM events", "DELETE FROM keyed")

    @pytest.mark.since(13, "publish_via_partition_root")
    @pytest.mark.parametrize(
        ("key", "identity", "leaf", "sends", "identifies"),
        [
            ("PRIMARY KEY (id, r)", "DEFAULT", "USING INDEX code", "(code)", "(id, r)"),
            ("PRIMARY KEY (id, r)", "DEFAULT", "FULL", None, None),
            ("PRIMARY KEY (id, r)", "DEFAULT", "DEFAULT", None, None),
            ("PRIMARY KEY (id, r)", "FULL", "DEFAULT", "(id, r)", "all columns"),
            ("PRIMARY KEY (id, r)", "FULL", "FULL", None, None),
            (
                "UNIQUE (id, r)",
                "USING INDEX pair",
                "USING INDEX code",
                "(code)",
                "(id, r)",
            ),
            ("UNIQUE (id, r)", "USING INDEX pair", "USING INDEX wide", None, None),
            ("UNIQUE (id, r)", "DEFAULT", "USING INDEX code", "(code)", "no columns"),
            ("UNIQUE (id, r)", "DEFAULT", "FULL", None, None),
        ],
    )
    def test_partitions_with_another_identity(
        self,
        ready: Database,
        key: str,
        identity: str,
        leaf: str,
        sends: str | None,
        identifies: str | None,
    ) -> None:
        ready.execute(
            f"CREATE TABLE root (id int, r int, code int NOT NULL, CONSTRAINT pair {key})"
            " PARTITION BY LIST (r)",
            "ALTER TABLE root ALTER id SET NOT NULL, ALTER r SET NOT NULL",
            "CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1)",
            "CREATE UNIQUE INDEX code ON leaf (code)",
            "CREATE UNIQUE INDEX wide ON leaf (code, id, r)",
            f"ALTER TABLE root REPLICA IDENTITY {identity}",
            f"ALTER TABLE leaf REPLICA IDENTITY {leaf}",
            "CREATE PUBLICATION roots FOR TABLE root WITH (publish_via_partition_root = true)",
        )
        ready.create_slot()
        # The server's word: columns of the old tuple, and those that the Relation has as its key.
        sent, flagged = self.deleted(ready)
        found = findings(ready, publication="roots").get("partition_identity")
        with ready.connect() as connection:
            connection.autocommit = False
            connection.cursor().execute("LOCK TABLE root IN ACCESS EXCLUSIVE MODE")
            with opened(ready, publication="roots") as capture:  # which waits for no lock
                notes = capture.notes
        if sends is None:
            assert found is None
            assert notes == []
            assert set(flagged) <= set(sent)
            return
        assert found is not None
        assert found.level == "warning"
        assert found.text == (
            f"partition public.leaf sends {sends} of its old rows, and public.root, under whose "
            f"name it is published, identifies rows by {identifies}: changes of its rows cannot be "
            "applied by that key"
        )
        assert notes == [f"{found.text}. `pgwire-codec check` has the SQL that mends it."]
        assert f"({', '.join(sent)})" == sends
        assert not flagged or not set(flagged) <= set(sent)
        self.mended(ready, found, publication="roots")
        sent, flagged = self.deleted(ready)
        assert flagged
        assert set(flagged) <= set(sent)

    @pytest.mark.since(15, "TABLES IN SCHEMA")
    @pytest.mark.parametrize(
        "published", ["ALL TABLES", "TABLES IN SCHEMA public", "TABLE root, mid"]
    )
    def test_partitions_of_the_topmost_root(self, ready: Database, published: str) -> None:
        ready.execute(
            "CREATE TABLE root (id int, r int, PRIMARY KEY (id, r)) PARTITION BY LIST (r)",
            "CREATE TABLE mid PARTITION OF root FOR VALUES IN (1) PARTITION BY LIST (id)",
            "CREATE TABLE leaf PARTITION OF mid FOR VALUES IN (1)",
            "ALTER TABLE root REPLICA IDENTITY FULL",
            f"CREATE PUBLICATION roots FOR {published} WITH (publish_via_partition_root = true)",
        )
        found = findings(ready, publication="roots")["partition_identity"]
        assert found.text.startswith("partition public.leaf sends (id, r) of its old rows, and ")
        assert found.text.count("public.root, under whose name") == 1
        assert found.text.count("partition ") == 1
        self.mended(ready, found, publication="roots")

    def deleted(self, made: Database) -> tuple[list[str], list[str]]:
        """Delete a row; return the columns that the server sends of it, and those of the key."""
        made.execute("INSERT INTO root VALUES (1, 1, 1)", "DELETE FROM root")
        sent = [
            decode_message(data)
            for data in peek(made.dsn, slot=made.slot, publication="roots").data
        ]
        *_, relation = (m for m in sent if isinstance(m, Relation) and m.name == "root")
        *_, deleted = (m for m in sent if isinstance(m, Delete))
        assert deleted.relation_oid == relation.oid
        names = [column.name for column in relation.columns]
        old = deleted.old or deleted.key
        return (
            [name for name, kind in zip(names, old.kinds, strict=True) if kind == ord("t")],
            [column.name for column in relation.columns if column.flags & 1],
        )

    def test_no_identity_is_needed_for_inserts(self, ready: Database) -> None:
        ready.execute(
            "CREATE TABLE no_key (k int)",
            "CREATE PUBLICATION inserts FOR TABLE no_key WITH (publish = 'insert')",
        )
        finding = only(ready, publication="inserts")
        assert (finding.code, finding.level) == ("operations", "warning")
        assert "does not publish update, delete, truncate" in finding.text
        for statement in finding.remedy:
            ready.execute(statement)
        assert only(ready, publication="inserts").code == "replica_identity"

    def test_identity_full_of_a_large_table(
        self, ready: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_checks, "_LARGE_BYTES", 100_000)
        ready.execute(
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "INSERT INTO t SELECT g FROM generate_series(1, 10000) g",
            "VACUUM t",
        )
        finding = only(ready, publication="p")
        assert (finding.code, finding.level) == ("identity_full", "warning")
        assert "public.t (0 MB) have REPLICA IDENTITY FULL" in finding.text
        self.mended(ready, finding, publication="p")

    def test_unlogged(self, ready: Database) -> None:
        ready.execute("CREATE UNLOGGED TABLE u (k int PRIMARY KEY)")
        finding = only(ready)
        assert (finding.code, finding.level) == ("unlogged", "warning")
        self.mended(ready, finding)

    def test_publications(self, ready: Database) -> None:
        ready.execute("CREATE PUBLICATION empty")
        missing = only(ready, publication=["p", "q"])
        assert (missing.code, missing.level) == ("publication", "error")
        assert 'publication "q" does not exist' in missing.text
        assert 'CREATE PUBLICATION "q" FOR ALL TABLES;' in missing.remedy[0]
        assert "publishes no table" in only(ready, publication="empty").text

    @pytest.mark.since(15, "column lists")
    def test_column_lists_that_differ(self, ready: Database) -> None:
        ready.execute("ALTER TABLE t ADD v text", "CREATE PUBLICATION q FOR TABLE t (k)")
        found = findings(ready, publication=["p", "q"], snapshot=False)
        assert found["column_lists"].level == "error"

    def refused(self, made: Database, text: str, code: str) -> Finding:
        """The finding on the table ``r``, whose updates and deletes the server refuses."""
        made.execute("INSERT INTO r (k, v) VALUES (1, 'a')")
        for statement in ("UPDATE r SET v = 'b'", "DELETE FROM r"):
            with pytest.raises(psycopg2.Error, match=text):
                made.execute(statement)
        finding = only(made, publication="p")
        assert (finding.code, finding.level) == (code, "error")
        assert "public.r" in finding.text
        return finding

    def allowed(self, made: Database, finding: Finding) -> None:
        self.mended(made, finding, publication="p")
        made.execute("UPDATE r SET v = 'b'", "DELETE FROM r")

    @pytest.mark.since(15, "column lists")
    @pytest.mark.parametrize(
        ("identity", "published"),
        [
            ("DEFAULT", "r (v)"),
            ("DEFAULT", "r (v) WHERE (k > 0)"),
            ("USING INDEX r_by_w", "r (k, v)"),
            ("FULL", "r (k, v)"),
            ("FULL", "r (v, w)"),
        ],
    )
    def test_column_lists_without_the_identity(
        self, ready: Database, identity: str, published: str
    ) -> None:
        ready.execute(
            "CREATE TABLE r (k int PRIMARY KEY, v text, w int NOT NULL DEFAULT 1)",
            "CREATE UNIQUE INDEX r_by_w ON r (w)",
            f"ALTER TABLE r REPLICA IDENTITY {identity}",
            f"ALTER PUBLICATION p ADD TABLE {published}",
        )
        text = "Column list used by the publication does not cover"
        self.allowed(ready, self.refused(ready, text, "column_list_identity"))

    @pytest.mark.since(15, "row filters")
    def test_row_filters_on_other_columns(self, ready: Database) -> None:
        ready.execute(
            "CREATE TABLE r (k int PRIMARY KEY, v text, w text)",
            "ALTER PUBLICATION p ADD TABLE r (k, v) WHERE (v <> 'x' AND k > 0)",
        )
        text = "Column used in the publication WHERE expression is not part"
        finding = self.refused(ready, text, "row_filter_identity")
        assert "make a unique index on its columns" in finding.remedy[0]
        assert finding.remedy[0].count('"k", "v"') == 1
        ready.execute(
            "TRUNCATE r",
            "ALTER PUBLICATION p DROP TABLE r",
            "ALTER PUBLICATION p ADD TABLE r WHERE (v <> 'x' AND k > 0)",
        )
        self.allowed(ready, self.refused(ready, text, "row_filter_identity"))

    @pytest.mark.since(15, "column lists")
    def test_a_partition_whose_identity_the_roots_list_lacks(self, ready: Database) -> None:
        ready.execute(
            "CREATE TABLE r (k int PRIMARY KEY, v text, w int NOT NULL DEFAULT 1)"
            " PARTITION BY LIST (k)",
            "CREATE TABLE leaf (w int NOT NULL DEFAULT 1, v text, k int NOT NULL)",
            "ALTER TABLE r ATTACH PARTITION leaf FOR VALUES IN (1)",
            "CREATE UNIQUE INDEX leaf_by_w ON leaf (w)",
            "ALTER TABLE leaf REPLICA IDENTITY USING INDEX leaf_by_w",
            "CREATE PUBLICATION roots FOR TABLE r (k, v) WITH (publish_via_partition_root)",
            "INSERT INTO r VALUES (1)",
        )
        with pytest.raises(psycopg2.Error, match="Column list used by the publication"):
            ready.execute("DELETE FROM r")
        finding = findings(ready, publication="roots")["column_list_identity"]
        assert "public.leaf" in finding.text
        for statement in finding.remedy:
            ready.execute(statement)
        ready.execute("DELETE FROM r")

    @pytest.mark.since(18, "publish_generated_columns")
    @pytest.mark.parametrize(
        ("generated", "identity"),
        [("STORED", "FULL"), ("STORED", "USING INDEX r_by_g"), ("VIRTUAL", "FULL")],
    )
    @pytest.mark.parametrize("published", ["ALL TABLES", "TABLE r"])
    def test_generated_columns_that_are_not_published(
        self, pg: Database, generated: str, identity: str, published: str
    ) -> None:
        pg.execute(
            "CREATE TABLE r (k int PRIMARY KEY, v text,"
            f" g int NOT NULL GENERATED ALWAYS AS (k + 1) {generated})",
            *(["CREATE UNIQUE INDEX r_by_g ON r (g)"] if generated == "STORED" else []),
            f"ALTER TABLE r REPLICA IDENTITY {identity}",
        )
        before = only(pg)
        assert (before.code, before.level) == ("generated_identity", "error")
        assert "public.r (g)" in before.text
        pg.execute(f"CREATE PUBLICATION p FOR {published}")
        text = "Replica identity must not contain unpublished generated columns"
        self.allowed(pg, self.refused(pg, text, "generated_identity"))

    @pytest.mark.since(18, "publish_generated_columns")
    def test_generated_columns_that_are_published(self, pg: Database) -> None:
        pg.execute(
            "CREATE TABLE r (k int PRIMARY KEY, v int GENERATED ALWAYS AS (k + 1) STORED)",
            "CREATE TABLE keyed (k int PRIMARY KEY, v int GENERATED ALWAYS AS (k + 1) VIRTUAL)",
            "ALTER TABLE r REPLICA IDENTITY FULL",
            "CREATE PUBLICATION p FOR ALL TABLES WITH (publish_generated_columns = stored)",
            "INSERT INTO r VALUES (1)",
            "DELETE FROM r",
        )
        assert findings(pg, publication="p") == {}

    def test_an_identity_whose_index_was_dropped(self, ready: Database) -> None:
        ready.execute(
            "CREATE TABLE r (k int PRIMARY KEY, v text, w int NOT NULL DEFAULT 1)",
            "CREATE UNIQUE INDEX r_by_w ON r (w)",
            "ALTER TABLE r REPLICA IDENTITY USING INDEX r_by_w",
            "ALTER TABLE r DROP w",
            "ALTER PUBLICATION p ADD TABLE r",
        )
        self.allowed(ready, self.refused(ready, "replica identity", "replica_identity"))

    @pytest.mark.parametrize("publication", [(), ("p",)])
    def test_a_role_that_may_not_read(self, ready: Database, publication: tuple[str, ...]) -> None:
        role = ready.create_role("REPLICATION")
        dsn = ready.server.dsn_for(ready.name, role)
        found = findings(ready, dsn, publication=publication)
        assert set(found) == {"privileges"}
        assert "public.t" in found["privileges"].text
        assert findings(ready, dsn, publication=publication, snapshot=False) == {}
        ready.execute(f"GRANT SELECT ON t TO {role}")
        assert findings(ready, dsn, publication=publication) == {}
        ready.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        hidden = findings(ready, dsn, publication=publication)["privileges"]
        assert "public.t (row-level security)" in hidden.text
        assert f"ALTER ROLE {role} BYPASSRLS;" in hidden.remedy[0]


class TestServer:
    def test_version(self, ready: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_checks, "_TESTED", (1, 2))
        finding = only(ready)
        assert (finding.code, finding.level) == ("version", "warning")
        assert f"the server is PostgreSQL {ready.major}" in finding.text

    def test_wal_level(self) -> None:
        with configured(wal_level="replica") as made:
            if made.major >= 19:  # a slot raises the level
                assert not findings(made)
                return
            finding = only(made)
            assert (finding.code, finding.level) == ("wal_level", "error")
            assert finding.remedy[0].startswith("Run ALTER SYSTEM SET wal_level = logical;")
            made.execute("ALTER SYSTEM SET wal_level = logical", "SELECT pg_reload_conf()")
            assert only(made).remedy == ("Restart the server.",)

    def test_limits_and_timeouts(self) -> None:
        settings = {
            "sender_timeout": ("wal_sender_timeout", "5s", 12),
            "wal_limit": ("max_slot_wal_keep_size", "64MB", 13),
            "idle_timeout": ("idle_replication_slot_timeout", "2d", 18),
        }
        major = major_of_configured()
        set_here = {
            code: (name, value) for code, (name, value, since) in settings.items() if major >= since
        }
        one = {"max_replication_slots": "1", "max_wal_senders": "1"}
        with configured(**one, **dict(set_here.values())) as made:
            made.create_slot("_other")
            found = check_server(made.dsn)
            by_code = {each.code: each for each in found.findings}
            assert set(by_code) == {"slots", *set_here} | USUAL  # 12 has no limit to set
            assert found.findings[0] == by_code["slots"]  # errors first
            assert "all 1 replication slots" in by_code["slots"].text
            for code, (name, value) in set_here.items():
                assert f"{name} is {value}" in by_code[code].text
            assert "slots" not in findings(made, slot=f"{made.slot}_other")
            made.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            for code in set_here:
                for statement in by_code[code].remedy:
                    made.execute(statement)
            assert wait_for(lambda: not findings(made))
            is_limited = "wal_limit" in set_here
            assert {each.code for each in check_server(made.dsn).findings} == (
                set() if is_limited else USUAL
            )
            made.execute("ALTER SYSTEM SET wal_sender_timeout = 0", "SELECT pg_reload_conf()")
            assert wait_for(lambda: "sender_timeout" in findings(made))

    def test_no_walsender(self, ready: Database) -> None:
        limit = int(ready.query("SELECT current_setting('max_wal_senders')")[0][0])
        taken = [
            psycopg2.connect(
                ready.dsn, connection_factory=psycopg2.extras.PhysicalReplicationConnection
            )
            for _ in range(limit)
        ]
        try:
            finding = findings(ready)["walsenders"]
        finally:
            for connection in taken:
                connection.close()
        assert finding.level == "error"
        assert f"max_wal_senders = {limit + 5}" in finding.remedy[0]

    def test_role(self, ready: Database) -> None:
        role = ready.create_role("NOREPLICATION")
        dsn = ready.server.dsn_for(ready.name, role)
        found = findings(ready, dsn, snapshot=False)
        assert set(found) == {"role"}
        ready.execute(found["role"].remedy[0].removeprefix("Run as a superuser: "))
        assert findings(ready, dsn, snapshot=False) == {}

    def test_a_member_of_the_role_of_rds(self, ready: Database) -> None:
        """Amazon lets it replicate; this server, which is not Amazon's, refuses the connection."""
        managed = "rds_replication"
        ready.execute(f"CREATE ROLE {managed}")
        ready.roles.append(managed)
        role = ready.create_role(f"NOREPLICATION IN ROLE {managed}")
        dsn = ready.server.dsn_for(ready.name, role)
        assert set(findings(ready, dsn, snapshot=False)) == {"replication_connection"}

    def test_slots(self, ready: Database) -> None:
        ready.query("SELECT pg_create_physical_replication_slot('physical', true)")
        found = only(ready, slot="physical")
        assert (found.code, found.level) == ("slot", "error")
        assert "is a physical one" in found.text
        ready.query("SELECT pg_drop_replication_slot('physical')")

    def test_a_slot_of_another_database(self, ready: Database) -> None:
        with database(ready.server) as other:
            other.create_slot()
            assert "belongs to database" in only(ready, slot=other.slot).text

    def test_a_slot_in_use(self, ready: Database) -> None:
        from pgwire_codec.capture import Capture

        ready.create_slot()
        with Capture(ready.dsn, slot=ready.slot, publication="p"):
            finding = only(ready, slot=ready.slot)
        assert (finding.code, finding.level) == ("slot", "warning")
        assert "is in use by process" in finding.text

    def test_an_unused_slot(self, ready: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        ready.create_slot("_old")
        ready.execute("INSERT INTO t SELECT g FROM generate_series(1, 10000) g")
        assert findings(ready) == {}
        monkeypatch.setattr(server_checks, "_SMALL_WAL", 1000)
        assert findings(ready, slot=ready.slot + "_old") == {}
        finding = only(ready)
        assert (finding.code, finding.level) == ("unused_slot", "warning")
        ready.query(finding.remedy[0].partition(": ")[2])
        assert findings(ready) == {}

    def test_long_transactions(self, ready: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_checks, "_LONG_SECONDS", 0)
        with ready.connect() as writing:
            cursor = writing.cursor()
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO t VALUES (1)")
            finding = only(ready)
            assert finding.code == "long_transaction"
            assert f"process {writing.info.backend_pid} has been writing" in finding.text
            ready.query(finding.remedy[0].partition(": ")[2])
            assert wait_until(lambda: findings(ready) == {})  # it ends when it is scheduled
        with ready.connect() as writing:
            cursor = writing.cursor()
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO t VALUES (2)")
            cursor.execute("PREPARE TRANSACTION 'it''s'")
        finding = only(ready)
        assert finding.code == "prepared_transaction"
        assert f'transaction "it\'s" of database "{ready.name}"' in finding.text
        ready.execute(finding.remedy[0].partition("; or ")[2])
        assert findings(ready) == {}

    def test_forms_of_values(self, ready: Database) -> None:
        name = ready.name
        ready.execute(
            f"ALTER DATABASE {name} SET datestyle = 'German, DMY'",
            f"ALTER DATABASE {name} SET bytea_output = 'escape'",
        )
        found = [each for each in check_server(ready.dsn).findings if each.code not in USUAL]
        assert [each.code for each in found] == ["value_format"] * 2
        for each in found:
            ready.execute(*each.remedy)
        assert findings(ready) == {}
        ready.execute(f"ALTER ROLE postgres IN DATABASE {name} RESET ALL")

    def test_encoding(self, pg: Database) -> None:
        pg.execute(
            f"CREATE DATABASE {pg.name}_ascii ENCODING 'SQL_ASCII' TEMPLATE template0"
            " LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        try:
            found = check_server(pg.server.dsn_for(f"{pg.name}_ascii")).findings
        finally:
            pg.execute(f"DROP DATABASE {pg.name}_ascii")
        assert "encoding" in {each.code for each in found}


def wait_for(condition: Callable[[], bool]) -> bool:
    """Wait for settings that the server has read again."""
    pause = threading.Event()
    for _ in range(100):
        if condition():
            return True
        pause.wait(0.05)
    return False


class TestConnection:
    def test_none(self) -> None:
        with pytest.raises(CaptureError, match="could not connect"):
            check_server("host=/nowhere/at/all dbname=x")

    def test_a_pooler(self, ready: Database) -> None:
        """Like PgBouncer, it refuses the startup option that makes a connection replicate."""
        with pooler(ready) as dsn:
            found = findings(ready, dsn)
        assert set(found) == {"replication_connection"}
        finding = found["replication_connection"]
        assert finding.level == "error"
        assert "not through a pooler" in finding.remedy[0]


@contextmanager
def pooler(made: Database) -> Iterator[str]:
    """Pass connections on, but none with the startup option ``replication``."""
    host = psycopg2.extensions.parse_dsn(made.dsn)["host"]
    port = psycopg2.extensions.parse_dsn(made.dsn).get("port", "5432")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=pass_on, args=(client,), daemon=True).start()

    def pass_on(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as behind:
            behind.connect(f"{host}/.s.PGSQL.{port}")
            data = client.recv(65536)
            if b"replication\0" in data:
                text = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: replication\0\0"
                client.sendall(b"E" + (len(text) + 4).to_bytes(4, "big") + text)
                return
            behind.sendall(data)
            back = threading.Thread(target=copy, args=(behind, client), daemon=True)
            back.start()
            copy(client, behind)
            back.join()

    threading.Thread(target=serve, daemon=True).start()
    with closing(listener):
        here = listener.getsockname()[1]
        yield psycopg2.extensions.make_dsn(
            made.dsn, host="127.0.0.1", port=here, sslmode="disable", gssencmode="disable"
        )


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one of them is closed."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class TestCommand:
    def test_ready(self, ready: Database) -> None:
        done = CliRunner().invoke(app, ["check", "--dsn", ready.dsn, "--publication", "p"])
        assert done.exit_code == 0, done.output
        assert done.output.splitlines()[-1] == "The server is ready for a capture."
        assert done.output.startswith("warning (wal_limit): the server keeps WAL")

    def test_not_ready(self, ready: Database) -> None:
        ready.execute(*(f"CREATE TABLE n{i} (k int)" for i in range(8)))
        done = CliRunner().invoke(app, ["check", "--dsn", ready.dsn])
        assert done.exit_code == 4
        lines = done.output.splitlines()
        assert lines[0].startswith("error (replica_identity): UPDATE and DELETE fail on public.n0")
        assert "public.n4 and 3 more once published" in lines[0]
        assert lines[1].startswith("  ALTER TABLE public.n0 REPLICA IDENTITY FULL;")
        assert lines[6] == "  and 3 more, which --json has"
        assert "Error: the server is not ready for a capture: 1 error" in done.output

    def test_json(self, ready: Database) -> None:
        ready.execute("CREATE TABLE n (k int)")
        done = CliRunner().invoke(app, ["check", "--dsn", ready.dsn, "--json"])
        assert done.exit_code == 4
        found = json.loads(done.stdout.splitlines()[0])
        assert found["is_ready"] is False
        assert found["server_version"] // 10_000 == ready.major
        assert [each["code"] for each in found["findings"]] == ["replica_identity", "wal_limit"]

    def test_options_in_remedies(self, ready: Database) -> None:
        """They are those of the capture that is to begin, and not of the check."""
        ready.execute("CREATE PUBLICATION empty")
        done = CliRunner().invoke(app, ["check", "--dsn", ready.dsn, "--publication", "empty"])
        assert "Pass pgwire-codec capture --messages to capture logical" in done.output


def test_an_empty_result_is_ready() -> None:
    assert ServerCheck(180000, ()).is_ready
