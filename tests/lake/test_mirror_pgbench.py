"""A mirror beside pgbench and changes of the schema has the server's rows at the end."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from pgwire_codec import log
from tests.support.log_captures import capture_into, running
from tests.support.mirrors import MirrorOf
from tests.support.servers import database

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

_SCALE = 10
_SECONDS = 60
_PAUSE = 3.0  # between two changes of the schema


def test_pgbench_and_schema_changes(
    mirror: MirrorOf, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    pytest.importorskip("psycopg2")
    from tests.soak.load import create_tables
    from tests.soak.schema_changes import SchemaChanges

    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    server = request.getfixturevalue("pg18")
    with database(server) as made:
        pgbench = server.bin_path / "pgbench"
        create_tables(made, pgbench, _SCALE)
        schema = SchemaChanges(made.dsn, random.Random(seed))
        with running(capture_into(made, tmp_path / "log", snapshot=True)) as failed:
            while not (tmp_path / "log" / "manifest.json").exists():
                assert not failed, failed
                time.sleep(0.1)
            command = [pgbench, "-n", "-c", "4", "-T", str(_SECONDS), made.dsn]
            with mirror.running():
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writing:
                    while writing.poll() is None:
                        print(schema.apply())
                        time.sleep(_PAUSE)
                    assert writing.stdout is not None
                    print(writing.stdout.read())
                assert writing.returncode == 0
                found = mirror.compare(made.dsn, wait=300)
            assert not failed, failed
        states = {each.table: each.state for each in found.tables}
        gone = {table for table, state in states.items() if state == "gone"}  # dropped
        unequal = {each: state for each, state in states.items() if state != "equal"}
        assert set(unequal) == gone, unequal
        assert all(each.startswith("public.extra_") for each in gone)
        assert {"public.pgbench_accounts", "public.pgbench_history"} <= set(states)
        aside = {table: row["error"] for table, row in mirror.status().items() if row["error"]}
        assert not aside
        assert log.verify(tmp_path / "log").is_sound
