"""``pgwire-codec run`` on a real server: kills, signals, a lost server, a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from pgwire_codec import log
from pgwire_codec.cli import PERMANENT
from pgwire_codec.cli.supervisor import _PROGRAM
from tests.cli.test_metrics import answers, free_port
from tests.support.commands import run
from tests.support.run_files import mirrored_keys, run_file, run_of
from tests.support.servers import QUICK_AND_STEADY, Database, TemporaryServer, database, with_table
from tests.support.slot_captures import confirmed_by_server, wait_until
from tests.support.small_disk import NoSmallDiskError, small_disk

pytest.importorskip("psycopg2")
pytest.importorskip("deltalake")

_SECONDS = 60.0
_SIZE = 64 << 20


def captured_keys(folder: Path) -> list[int]:
    keys = [each.new["k"].to_pylist() for each in log.Log(folder / "shop.log").read("public.t")]
    return sorted(key for batch in keys for key in batch)


def insert(made: Database, *keys: int) -> None:
    made.execute(*(f"INSERT INTO t VALUES ({key}, 'row')" for key in keys))


def test_a_command_ends_when_its_supervisor_has(tmp_path: Path) -> None:
    """Its standard input is closed then, however the supervisor ended."""
    arguments = ["--dsn=host=/nowhere", "--slot=s", "--publication=p", f"--log={tmp_path}/log"]
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "capture"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline())["state"] != "waiting":
            pass
        process.stdin.close()
        try:
            assert process.wait(_SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_both_run_until_they_are_stopped(table: Database, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    from pgwire_codec.metrics import instruments as i
    from tests.support.metric_pages import Served

    path, port = run_file(table, tmp_path), free_port()
    path.write_text(f'metrics = "127.0.0.1:{port}"\n{path.read_text()}')
    with run_of(path) as running:
        insert(table, 1, 2)
        assert wait_until(lambda: mirrored_keys(tmp_path) == [1, 2], _SECONDS), running.errors
        assert wait_until(lambda: answers(port, "/readyz", 200))
        page = Served(port).page()
        assert page.get(i.STATE, state="streaming") == 1
        assert page[i.MIRROR_ACTIVE] == 1
        children = psutil.Process(running.process.pid).children()
        assert not any(table.dsn in word for each in children for word in each.cmdline())
        result = run("status", "--json", path)
        status = json.loads(result.stdout)
        assert (result.exit_code, status["slot"]["active"]) == (0, True)
        assert [each["state"] for each in status["mirror"]["tables"]] == ["ok"]
        assert running.stop() == 0
        assert not any(each.is_running() for each in children)
        assert "capture | {" in running.output
        assert "mirror  | {" in running.output
    assert log.Log(tmp_path / "shop.log").segments[-1].sealed
    assert confirmed_by_server(table) == log.Log(tmp_path / "shop.log").confirm_lsn


@pytest.mark.slow
def test_an_error_for_good_is_its_exit_status(table: Database, tmp_path: Path) -> None:
    table.publication = "missing"
    path = run_file(table, tmp_path)
    with run_of(path) as running:
        assert running.process.wait(_SECONDS) == PERMANENT
        assert 'capture | Error: publication "missing" does not exist' in running.errors
        assert "capture ended with status 4, which a new start does not change" in running.errors


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["capture", "mirror", "run"])
def test_nothing_is_lost_if_one_is_killed(table: Database, tmp_path: Path, victim: str) -> None:
    path, keys = run_file(table, tmp_path), range(1, 31)
    with run_of(path) as running:
        insert(table, *keys[:10])
        assert wait_until(lambda: mirrored_keys(tmp_path) == [*keys[:10]], _SECONDS), running.errors
        children = psutil.Process(running.process.pid).children()
        assert len(children) == 2
        killed = running.process if victim == "run" else running.child(victim)
        assert killed is not None
        insert(table, *keys[10:15])
        killed.kill()
        insert(table, *keys[15:20])
        if victim == "run":
            _, alive = psutil.wait_procs(children, timeout=_SECONDS)
            assert alive == []
        else:
            assert wait_until(lambda: mirrored_keys(tmp_path) == [*keys[:20]], _SECONDS)
            text = f"{victim} ended with signal 9: starting it again in 0."
            assert text in running.errors
            [other] = [each for each in children if each.pid != killed.pid]
            assert other.is_running()
            assert running.stop() == 0
    with run_of(path) as running:
        insert(table, *keys[20:])
        assert wait_until(lambda: mirrored_keys(tmp_path) == [*keys], _SECONDS), running.errors
        assert running.stop() == 0
    assert captured_keys(tmp_path) == [*keys]


@pytest.mark.slow
@pytest.mark.thorough
def test_a_lost_server_is_waited_for(tmp_path: Path) -> None:
    """The same processes go on when it is there again."""
    with TemporaryServer(settings=QUICK_AND_STEADY) as server, database(server) as made:
        path = run_file(with_table(made), tmp_path)
        with run_of(path) as running:
            insert(made, 1)
            assert wait_until(lambda: mirrored_keys(tmp_path) == [1], _SECONDS), running.errors
            children = psutil.Process(running.process.pid).children()
            server.restart("immediate")
            insert(made, 2)
            assert wait_until(lambda: mirrored_keys(tmp_path) == [1, 2], _SECONDS), running.errors
            assert all(each.is_running() for each in children)
            assert running.stop() == 0
        assert captured_keys(tmp_path) == [1, 2]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs in a namespace")
@pytest.mark.parametrize("min_free", ["0", "32MiB"])
def test_a_full_disk_is_waited_for(table: Database, tmp_path: Path, min_free: str) -> None:
    """The capture waits, or fails and is started again; so is the mirror."""
    with ExitStack() as entered:
        try:
            (tmp_path / "disk").mkdir()
            disk = entered.enter_context(small_disk(tmp_path / "disk", _SIZE))
        except NoSmallDiskError as error:
            pytest.skip(str(error))
        # delta-rs resolves the path of a lake, which then leads out of the namespace of the disk.
        path = run_file(table, tmp_path, f'min-free = "{min_free}"', f"{disk.path}/")
        running = entered.enter_context(run_of(path, "--stop-seconds", "30"))
        insert(table, 1)
        assert wait_until(lambda: mirrored_keys(tmp_path) == [1], _SECONDS), running.errors
        is_guarded = min_free != "0"
        disk.fill(16 << 20 if is_guarded else 0)
        if is_guarded:
            assert wait_until(lambda: "is nearly full" in running.output, _SECONDS)
        text = "string_agg(md5(g::text), '') FROM generate_series(1, 10000) g"
        table.execute(f"INSERT INTO t SELECT 2, {text}")  # more than the rest of a page
        if not is_guarded:
            assert wait_until(lambda: "capture ended with status 3" in running.errors, _SECONDS)
            mirror = running.child("mirror")
            if mirror is not None:  # otherwise the disk has ended it already
                mirror.kill()  # the next one cannot write its checkpoint
            assert wait_until(lambda: "mirror ended with status 3" in running.errors, _SECONDS)
        assert mirrored_keys(tmp_path) == [1]
        disk.empty()
        assert wait_until(lambda: mirrored_keys(tmp_path) == [1, 2], _SECONDS), running.errors
        assert running.stop() == 0
        assert captured_keys(disk.path) == [1, 2]
        assert ("capture ended with status 3" in running.errors) != is_guarded
