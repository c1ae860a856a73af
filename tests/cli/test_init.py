"""``pgwire-codec init``: the file that it writes runs, and it writes none for a wrong server."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgwire_codec.cli import PERMANENT, USAGE
from pgwire_codec.cli.run_file import read_run_file
from tests.support.commands import run
from tests.support.run_files import run_of
from tests.support.servers import Database

pytest.importorskip("psycopg2")


@pytest.mark.parametrize(
    "dsn", ["host=/nowhere password=secret", "postgresql://me:secret@localhost/shop"]
)
def test_a_password_is_refused(tmp_path: Path, dsn: str) -> None:
    path = tmp_path / "shop.toml"
    result = run("init", "--dsn", dsn, path)
    assert result.exit_code == USAGE
    assert "the DSN contains a password" in result.stderr
    assert "hint: Put it into a file that PGPASSFILE names" in result.stderr
    assert "secret" not in result.output
    assert not path.exists()


@pytest.mark.slow
def test_the_file_runs(pg: Database, tmp_path: Path) -> None:
    """From nothing: the publication and the slot are created."""
    pytest.importorskip("deltalake")
    pg.execute("CREATE TABLE t (k int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    path = tmp_path / "My-shop.toml"
    result = run("init", "--dsn", pg.dsn, path)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f"wrote {path}\n")
    values = read_run_file(path).values
    assert values["capture"]["dsn"] == pg.dsn
    assert values["capture"]["slot"] == "my_shop"
    assert values["capture"]["publication"] == ("my_shop",)
    assert values["capture"]["create_publication"] == ("all tables",)
    with run_of(path, "--once") as running:
        assert running.process.wait(60) == 0, running.errors
    result = run("status", path)
    assert result.exit_code == 0, result.output
    assert "public.t  ok " in result.stdout
    pg.execute("SELECT pg_drop_replication_slot('my_shop')")


@pytest.mark.slow
def test_a_publication_that_exists_is_used(table: Database, tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    arguments = ("--publication", "p", "--slot", table.slot, "--to", "parquet:lake", "--log", "l")
    assert run("init", "--dsn", table.dsn, *arguments, path).exit_code == 0
    found = read_run_file(path)
    assert found.values["capture"]["create_publication"] == ()
    assert found.values["capture"]["slot"] == table.slot
    assert found.values["mirror"]["target"] == "parquet:lake"
    assert found.values["mirror"]["log"] == "l"
    text = path.read_text()
    again = run("init", "--dsn", table.dsn, path)
    assert again.exit_code == USAGE
    assert f"Error: {path} exists" in again.stderr
    assert path.read_text() == text


@pytest.mark.slow
def test_a_server_that_is_not_ready(pg: Database, tmp_path: Path) -> None:
    role = pg.create_role("NOREPLICATION")
    result = run("init", "--dsn", pg.server.dsn_for(pg.name, role), tmp_path / "shop.toml")
    assert result.exit_code == PERMANENT
    assert f'error (role): role "{role}" may not replicate' in result.stdout
    assert not (tmp_path / "shop.toml").exists()
