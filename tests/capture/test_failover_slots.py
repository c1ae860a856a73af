"""Failover slots of a primary with a standby: created, noted, checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras
import pytest
from click.testing import CliRunner

from pgwire_codec.capture import Finding, check_server
from pgwire_codec.cli.app import app
from pgwire_codec.errors import CaptureError, OptionError
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.servers import GIVEN, Database, database, each_major, with_table
from tests.support.slot_captures import opened, wait_until
from tests.support.standbys import STANDBY, Cluster, cluster, database_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["given" if GIVEN else "pg18"])
def pair() -> Iterator[Cluster]:
    """A primary and a standby that is connected to it."""
    with cluster() as started:
        started.make_standby()
        yield started


@pytest.fixture
def made(pair: Cluster) -> Iterator[Database]:
    """A database with a table, its publication and a slot without failover."""
    with database_of(pair) as created:
        yield with_table(created)


def slot(made: Database) -> dict[str, Any]:
    [(row,)] = made.query(
        f"SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = '{made.slot}'"
    )
    return dict(row)


def drop_slot(made: Database) -> None:
    made.execute(f"SELECT pg_drop_replication_slot('{made.slot}')")


def alter_slot(made: Database) -> None:
    """Turn the slot into a failover slot, as notes and findings advise."""
    command = f'ALTER_REPLICATION_SLOT "{made.slot}" (FAILOVER true);'
    factory = psycopg2.extras.LogicalReplicationConnection
    with closing(psycopg2.connect(made.dsn, connection_factory=factory)) as connection:
        connection.cursor().execute(command)


@contextmanager
def awaited(pair: Cluster, names: str) -> Iterator[None]:
    """The primary with another synchronized_standby_slots."""

    def reload(command: str, expected: str) -> None:
        pair.primary.query(command)
        pair.primary.query("SELECT pg_reload_conf()")
        show = "SHOW synchronized_standby_slots"
        assert wait_until(lambda: pair.primary.query(show) == [(expected,)])

    reload(f"ALTER SYSTEM SET synchronized_standby_slots = {names or repr('')}", names)
    try:
        yield
    finally:
        reload("ALTER SYSTEM RESET synchronized_standby_slots", STANDBY)


@contextmanager
def without_standby(pair: Cluster) -> Iterator[None]:
    pair.standby.stop("fast")
    try:
        yield
    finally:
        pair.standby.start()


def found(made: Database, **options: Any) -> dict[str, Finding]:
    """Findings about failovers, by code."""
    codes = {"failover", "standby_slots", "slot_sync", "synced_slot"}
    findings = check_server(made.dsn, publication="p", **options).findings
    return {each.code: each for each in findings if each.code in codes}


class TestCreation:
    def test_of_a_stream(self, made: Database) -> None:
        drop_slot(made)
        with opened(made, create_slot=True, failover=True) as capture:
            assert capture.notes == []
        assert slot(made)["failover"]
        assert not slot(made)["two_phase"]

    @pytest.mark.parametrize("snapshot", [True, False])
    def test_of_a_log(self, made: Database, tmp_path: Path, snapshot: bool) -> None:
        drop_slot(made)
        made.execute("INSERT INTO t VALUES (1, 'a')")
        capture_into(
            made, tmp_path, create_slot=True, failover=True, snapshot=snapshot, two_phase=True
        ).run(until_lsn=flush_lsn(made))
        assert slot(made)["failover"]
        assert slot(made)["two_phase"]

    def test_no_other_slot_has_it(self, made: Database) -> None:
        drop_slot(made)
        with opened(made, create_slot=True):
            assert not slot(made)["failover"]

    def test_a_snapshot_replaces_a_failover_slot_by_another(
        self, made: Database, tmp_path: Path
    ) -> None:
        alter_slot(made)
        capture_into(made, tmp_path).run(until_lsn=1)
        with pytest.raises(CaptureError, match="a snapshot begins with a new one"):
            capture_into(made, tmp_path, snapshot=True).run(until_lsn=1)
        capture_into(made, tmp_path, snapshot=True, failover=True).run(until_lsn=flush_lsn(made))
        assert slot(made)["failover"]

    def test_a_temporary_slot_is_refused(self, made: Database) -> None:
        with pytest.raises(OptionError, match="`temporary` slot cannot be a `failover` slot"):
            opened(made, temporary=True, failover=True)

    @pytest.mark.skipif(GIVEN is not None, reason="on one older server")
    def test_an_older_server(self, pg16: Any, tmp_path: Path) -> None:
        words = "`failover=True` needs PostgreSQL 17; the server is PostgreSQL 16"
        with database(pg16) as made:
            with_table(made)
            for options in ({}, {"snapshot": True}):
                with pytest.raises(CaptureError, match=words):
                    capture_into(made, tmp_path, failover=True, **options).run(until_lsn=1)


class TestNotes:
    def test_a_slot_without_failover(self, made: Database) -> None:
        with opened(made, failover=True) as capture:
            [note] = capture.notes
        assert f'ALTER_REPLICATION_SLOT "{made.slot}" (FAILOVER true);' in note
        alter_slot(made)
        assert slot(made)["failover"]
        with opened(made, failover=True) as capture:
            assert capture.notes == []

    def test_nobody_asked(self, made: Database) -> None:
        with opened(made) as capture:
            assert capture.notes == []

    def test_standbys_that_are_not_awaited(self, pair: Cluster, made: Database) -> None:
        alter_slot(made)
        with awaited(pair, ""), opened(made) as capture:
            [note] = capture.notes
        assert "synchronized_standby_slots is empty" in note

    def test_awaited_standbys_that_are_not_there(
        self, pair: Cluster, made: Database, tmp_path: Path
    ) -> None:
        alter_slot(made)
        running = capture_into(made, tmp_path)
        with awaited(pair, f"{STANDBY}, other"), without_standby(pair):
            status = running.run(idle_seconds=0.1)
        waits_for = {note.split('"')[1] for note in status.notes if "physical slot" in note}
        assert waits_for == {STANDBY, "other"}


class TestCheck:
    def test_a_slot_without_failover(self, made: Database) -> None:
        [(code, finding)] = found(made, slot=made.slot).items()
        assert (code, finding.level) == ("failover", "warning")
        assert finding.remedy[0].startswith(f'ALTER_REPLICATION_SLOT "{made.slot}"')
        alter_slot(made)
        assert found(made, slot=made.slot) == {}

    def test_a_slot_that_does_not_exist(self, made: Database) -> None:
        finding = found(made, slot="new")["failover"]
        assert "Create the slot with `failover=True`." in finding.remedy
        shown = CliRunner().invoke(app, ["check", "--dsn", made.dsn, "--publication", "p"])
        assert "Create the slot with pgwire-codec capture --failover." in shown.output

    def test_standbys_that_are_not_awaited(self, pair: Cluster, made: Database) -> None:
        alter_slot(made)
        with awaited(pair, ""):
            finding = found(made, slot=made.slot)["standby_slots"]
            assert finding.level == "warning"
            for statement in finding.remedy:
                made.execute(statement)
            assert wait_until(lambda: found(made, slot=made.slot) == {})

    def test_a_missing_one(self, pair: Cluster, made: Database) -> None:
        alter_slot(made)
        with awaited(pair, f"{STANDBY}, other"):
            finding = found(made, slot=made.slot)["standby_slots"]
            assert (finding.level, "other" in finding.text) == ("error", True)
            made.execute(finding.remedy[0])
            finding = found(made, slot=made.slot)["standby_slots"]
            assert finding.level == "warning"  # no standby is connected
            made.execute("SELECT pg_drop_replication_slot('other')")

    def test_one_that_is_not_connected(self, pair: Cluster, made: Database) -> None:
        alter_slot(made)
        with without_standby(pair):
            finding = found(made, slot=made.slot)["standby_slots"]
        assert (finding.level, STANDBY in finding.text) == ("warning", True)

    def test_a_standby(self, pair: Cluster, made: Database, tmp_path: Path) -> None:
        drop_slot(made)
        made.query(
            f"SELECT pg_create_logical_replication_slot('{made.slot}', 'pgoutput', false, false,"
            " true)"
        )
        pair.wait_for_slot(
            made.slot, lambda: capture_into(made, tmp_path).run(until_lsn=flush_lsn(made))
        )
        dsn = pair.standby.dsn_for(made.name)
        checked = check_server(dsn, publication="p", slot=made.slot)
        findings = {each.code: each for each in checked.findings}
        assert "waits until this standby is promoted" in findings["synced_slot"].text
        assert "slot_sync" not in findings
        pair.standby.query("ALTER SYSTEM SET sync_replication_slots = off")
        pair.standby.query("SELECT pg_reload_conf()")
        try:
            shown = CliRunner().invoke(app, ["check", "--dsn", dsn, "--json"])
            findings = {each["code"]: each for each in json.loads(shown.output)["findings"]}
            assert "sync_replication_slots is off" in findings["slot_sync"]["text"]
        finally:
            for statement in findings["slot_sync"]["remedy"]:
                pair.standby.query(statement)

    @each_major
    def test_a_server_without_standbys(self, table: Database) -> None:
        if table.major >= 17:
            assert found(table, slot=table.slot) == {}
