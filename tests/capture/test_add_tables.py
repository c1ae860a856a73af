"""Tables that are copied into a log while it is captured into."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psycopg2
import pytest
from click.testing import CliRunner, Result

from pgwire_codec import log
from pgwire_codec.capture import LogCapture, requested_tables
from pgwire_codec.capture.receive_loop import ReceiveLoop
from pgwire_codec.capture.snapshot import add_tables
from pgwire_codec.cli.app import app
from pgwire_codec.errors import OptionError
from tests.support.log_captures import capture_into, decoded, flush_lsn, messages, running, slots
from tests.support.servers import Database
from tests.support.slot_captures import blockers, wait_until

pytestmark = pytest.mark.slow

SECONDS = 60.0


@pytest.fixture
def two(pg: Database) -> Database:
    """A server with the published table t, and the table later, which is not published."""
    pg.execute(
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "CREATE TABLE later (k int PRIMARY KEY, v text)",
        "CREATE TABLE bag (k int, v text)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO later SELECT n, 'before' FROM generate_series(1, 2000) n",
        "INSERT INTO bag SELECT n % 100, 'before' FROM generate_series(1, 2000) n",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    pg.create_slot()
    return pg


@contextlib.contextmanager
def written(made: Database) -> Iterator[None]:
    """Write to all tables meanwhile, in several transactions at once."""
    done = threading.Event()
    failed: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            with made.connect() as connection:
                connection.autocommit = False
                cursor = connection.cursor()
                number = 0
                while not done.is_set():
                    number += 1
                    k = 10_000 * writer + number
                    cursor.execute(
                        "INSERT INTO t VALUES (%(k)s, 'n'); INSERT INTO later VALUES (%(k)s, 'n');"
                        "UPDATE later SET v = v || 'x' WHERE k = %(some)s;"
                        "DELETE FROM later WHERE k = %(other)s; INSERT INTO bag VALUES (1, 'new');"
                        "DELETE FROM bag"
                        " WHERE ctid = (SELECT max(ctid) FROM bag WHERE k = %(third)s)",
                        {
                            "k": k,
                            "some": 1 + (number * 2 + writer) % 2000,
                            "other": k - 5,
                            "third": number % 100,
                        },
                    )
                    connection.commit()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failed


def rows_of(made: Database, table: str) -> Counter[tuple[Any, ...]]:
    return Counter(made.query(f"SELECT * FROM {table}"))


def replayed(folder: Path, table: str) -> Counter[tuple[Any, ...]]:
    """Rows of a table after its changes. From its copy on, each one has to fit."""
    rows: Counter[tuple[Any, ...]] = Counter()
    is_copied = False
    for change in decoded(folder, table):
        if change["_op"] == "T":
            rows.clear()
            is_copied = True
            continue
        new, old = (change["k"], change["v"]), change["_before"]
        if change["_op"] in "UD":
            # The old tuple of t and later has the key alone, if there is one.
            key = new if old is None else (old["k"], old.get("v"))
            found = [row for row in rows if row == key] or [row for row in rows if row[0] == key[0]]
            assert found or not is_copied
            if found:
                rows[found[0]] -= 1
                rows += Counter()
        if change["_op"] in "IU":
            rows[new] += 1
    return rows


def complete(made: Database, folder: Path) -> None:
    capture_into(made, folder).run(until_lsn=flush_lsn(made))
    for table in ("t", "later"):
        assert max(replayed(folder, f"public.{table}").values(), default=1) == 1


def copied(requests: log.TableRequests, name: str) -> bool:
    return wait_until(lambda: requests.get(name) is None, SECONDS)


def test_under_writes(two: Database, tmp_path: Path) -> None:
    requests = log.TableRequests(tmp_path)
    capture = capture_into(two, tmp_path)
    with running(capture) as failed:
        assert wait_until(lambda: capture.status.state == "streaming")
        with written(two):
            two.execute("ALTER PUBLICATION p ADD TABLE later, bag")
            assert wait_until(lambda: "public.later" in tables_of(tmp_path), SECONDS)
            first = requests.add(["public.later"])
            assert copied(requests, first)
            second = requests.add(["public.bag", "public.later"])
            assert copied(requests, second)
            before = flush_lsn(two)
            assert wait_until(lambda: (capture.status.confirmed_lsn or 0) >= before, SECONDS)
    assert not failed
    assert not capture.status.problem
    complete(two, tmp_path)
    for table in ("t", "later", "bag"):
        assert replayed(tmp_path, f"public.{table}") == rows_of(two, table)
    truncates = [row for row in decoded(tmp_path, "public.later") if row["_op"] == "T"]
    assert [row["_xid"] for row in truncates] == [0, 0]
    assert slots(two) == [two.slot]
    report = log.verify(tmp_path)
    assert report.is_sound, report.damage


def tables_of(folder: Path) -> list[str]:
    return [each.name for each in log.Log(folder).relations]


@pytest.mark.since(14, "streaming of transactions in progress")
def test_a_streamed_transaction_meanwhile(two: Database, tmp_path: Path) -> None:
    """It is in progress, and partly in the log, where the copy begins."""
    requests = log.TableRequests(tmp_path)
    two.execute(
        "ALTER PUBLICATION p ADD TABLE later",
        f"ALTER DATABASE {two.name} SET logical_decoding_work_mem = '64kB'",
    )
    capture = capture_into(two, tmp_path, streaming="on")
    with running(capture) as failed, contextlib.ExitStack() as stack:
        assert wait_until(lambda: capture.status.state == "streaming")
        # Creating a slot waits for who is in progress, and then for who began meanwhile.
        first, second, third = (
            stack.enter_context(contextlib.closing(psycopg2.connect(two.dsn))) for _ in range(3)
        )
        first.cursor().execute("UPDATE later SET v = 'first' WHERE k = 1")
        name = requests.add(["public.later"])
        assert wait_until(lambda: blockers(two) == [first.info.backend_pid])
        second.cursor().execute("UPDATE later SET v = 'second' WHERE k = 2")
        first.commit()
        assert wait_until(lambda: blockers(two) == [second.info.backend_pid])
        streamed = third.cursor()
        streamed.execute(
            "INSERT INTO later SELECT n, repeat('y', 500) FROM generate_series(3000, 9000) n"
        )
        second.commit()
        assert copied(requests, name)
        streamed.execute("UPDATE later SET v = 'third' WHERE k = 3")
        third.commit()
        two.execute("UPDATE later SET v = 'after' WHERE k = 4")
    assert not failed
    begun = messages(tmp_path)
    copy = begun.index(next(m for m in begun if m[:1] == b"T"))
    assert [m[:1] for m in begun[:copy] if m[:1] in b"Sc"].count(b"S") > 0
    complete(two, tmp_path)
    assert replayed(tmp_path, "public.later") == rows_of(two, "later")


def test_before_the_capture_starts(two: Database, tmp_path: Path) -> None:
    capture_into(two, tmp_path).run(until_lsn=flush_lsn(two))
    two.execute("ALTER PUBLICATION p ADD TABLE later", "UPDATE later SET v = 'x' WHERE k = 7")
    requests = log.TableRequests(tmp_path)
    name = requests.add(["public.later"])
    capture_into(two, tmp_path).run(until_lsn=flush_lsn(two))
    assert requests.get(name) is None
    assert replayed(tmp_path, "public.later") == rows_of(two, "later")


def test_a_table_that_is_not_published(two: Database, tmp_path: Path) -> None:
    requests = log.TableRequests(tmp_path)
    capture = capture_into(two, tmp_path)
    with running(capture) as failed:
        assert wait_until(lambda: capture.status.state == "streaming")
        name = requests.add(["public.later", "public.none"])
        assert wait_until(lambda: requests.get(name).error is not None, SECONDS)  # type: ignore[union-attr]
        request = requests.get(name)
        assert request is not None
        assert request.error == "no such table is published: public.later, public.none"
        assert "ALTER PUBLICATION" in str(request.hint)
        assert request.error in " ".join(capture.status.notes)
        assert requests.pending() == {}
        two.execute("INSERT INTO t VALUES (1, 'on')")
        assert wait_until(lambda: "public.t" in tables_of(tmp_path))
    assert not failed


def test_a_transaction_in_progress_delays_the_copy_alone(
    two: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested_tables, "_RETRY_SECONDS", 1.0)
    monkeypatch.setattr(add_tables, "_CREATE_SECONDS", 1.0)
    two.execute("ALTER PUBLICATION p ADD TABLE later")
    requests = log.TableRequests(tmp_path)
    capture = capture_into(two, tmp_path, max_retries=0)
    with running(capture) as failed:
        assert wait_until(lambda: capture.status.state == "streaming")
        locking = psycopg2.connect(two.dsn)
        locking.cursor().execute("LOCK TABLE later IN ACCESS EXCLUSIVE MODE")
        name = requests.add(["public.later"])
        assert wait_until(lambda: "lock" in " ".join(capture.status.notes), SECONDS)
        locking.rollback()
        locking.cursor().execute("INSERT INTO later VALUES (-1, 'in progress')")
        assert wait_until(lambda: "in progress" in " ".join(capture.status.notes), SECONDS)
        two.execute("INSERT INTO t VALUES (1, 'on')")
        assert wait_until(lambda: "public.t" in tables_of(tmp_path))
        locking.commit()
        locking.close()
        assert copied(requests, name)
        assert wait_until(lambda: "not copied" not in " ".join(capture.status.notes))
    assert not failed
    assert replayed(tmp_path, "public.later") == rows_of(two, "later")


def test_an_interrupted_copy_is_made_again(
    two: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.execute("ALTER PUBLICATION p ADD TABLE later")
    capture_into(two, tmp_path).run(until_lsn=flush_lsn(two))
    requests = log.TableRequests(tmp_path)
    name = requests.add(["public.later"])
    capture = capture_into(two, tmp_path)
    took = LogCapture._copied

    def stop(self: LogCapture, *arguments: Any) -> None:
        self.stop()
        took(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LogCapture, "_copied", stop)
        capture.run(until_lsn=flush_lsn(two))
    assert requests.get(name) is not None
    assert replayed(tmp_path, "public.later") == Counter()
    capture_into(two, tmp_path).run(until_lsn=flush_lsn(two))
    assert requests.get(name) is None
    assert replayed(tmp_path, "public.later") == rows_of(two, "later")


def test_the_slot_may_be_before_the_copy(
    two: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash, the server repeats what the log has: but for the copied rows."""
    two.execute("ALTER PUBLICATION p ADD TABLE later")
    capture_into(two, tmp_path).run(until_lsn=flush_lsn(two))
    two.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE later SET v = 'b' WHERE k = 1")
    log.TableRequests(tmp_path).add(["public.later"])
    with monkeypatch.context() as patched:
        patched.setattr(ReceiveLoop, "_confirm", lambda self: None)
        capture_into(two, tmp_path).run(until_lsn=flush_lsn(two))
    two.execute("UPDATE later SET v = 'c' WHERE k = 1")
    complete(two, tmp_path)
    assert replayed(tmp_path, "public.later") == rows_of(two, "later")


@pytest.mark.parametrize("streaming", ["off", "on"])
def test_new_tables_are_added(two: Database, tmp_path: Path, streaming: Any) -> None:
    """By their first change, or when the capture starts, if they have none."""
    two.execute(
        f"ALTER DATABASE {two.name} SET logical_decoding_work_mem = '64kB'",
        "CREATE TABLE silent (k int PRIMARY KEY, v text)",
        "INSERT INTO silent VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO t VALUES (1, 'a')",
        f"SELECT pg_drop_replication_slot('{two.slot}')",
    )
    options: Any = {"snapshot": True, "add_new_tables": True, "streaming": streaming}
    requests = log.TableRequests(tmp_path)
    capture = capture_into(two, tmp_path, **options)
    with running(capture) as failed:
        assert wait_until(lambda: capture.status.state == "streaming")
        two.execute("ALTER PUBLICATION p ADD TABLE later, silent")
        two.execute(
            "INSERT INTO later SELECT n, repeat('y', 500) FROM generate_series(3000, 9000) n"
        )
        assert wait_until(lambda: len(replayed(tmp_path, "public.later")) == 8001, SECONDS)
        two.execute("CREATE TABLE dropped (k int)", "ALTER PUBLICATION p ADD TABLE dropped")
        two.execute("INSERT INTO dropped VALUES (1); DROP TABLE dropped")
        assert wait_until(lambda: "public.dropped" in tables_of(tmp_path), SECONDS)
        assert wait_until(lambda: requests.pending() == {}, SECONDS)
        assert "public.dropped" in " ".join(capture.status.notes)
    assert not failed
    assert replayed(tmp_path, "public.silent") == Counter()
    capture_into(two, tmp_path, **options).run(until_lsn=flush_lsn(two))
    for table in ("t", "later", "silent"):
        assert replayed(tmp_path, f"public.{table}") == rows_of(two, table)
    truncated = [row["_op"] for row in decoded(tmp_path, "public.t")].count("T")
    assert truncated == 0


def test_names(tmp_path: Path) -> None:
    requests = log.TableRequests(tmp_path)
    for wrong in ([], ["later"], ["public."], ["public.later", ".x"]):
        with pytest.raises(OptionError):
            requests.add(wrong)
    assert requests.pending() == {}


class TestCommand:
    """``pgwire-codec log add-table``, beside a capture and without one."""

    @pytest.fixture
    def begun(self, two: Database, tmp_path: Path) -> Database:
        """A log, and a table that was published after its capture had ended."""
        two.execute('CREATE PUBLICATION "P, 2" FOR TABLE t')
        two.execute("INSERT INTO t VALUES (1, 'a')")
        publications = ["p", "P, 2"]
        capture_into(two, tmp_path, publication=publications).run(until_lsn=flush_lsn(two))
        two.execute("ALTER PUBLICATION p ADD TABLE later", "INSERT INTO t VALUES (2, 'b')")
        return two

    def add(self, folder: Path, *options: str, table: str = "public.later") -> Result:
        return CliRunner().invoke(
            app, ["log", "add-table", "--table", table, *options, str(folder)]
        )

    def test_without_a_capture(self, begun: Database, tmp_path: Path) -> None:
        for file in tmp_path.glob("*.*"):
            file.chmod(0o600)
        done = self.add(tmp_path, "--dsn", begun.dsn)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == "copied public.later\n"
        for table in ("t", "later"):
            assert replayed(tmp_path, f"public.{table}") == rows_of(begun, table)
        assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.arrow")} == {0o600}
        begun.execute("UPDATE later SET v = 'x' WHERE k = 1")
        complete(begun, tmp_path)
        assert replayed(tmp_path, "public.later") == rows_of(begun, "later")
        assert slots(begun) == [begun.slot]

    def test_a_table_that_is_not_published(self, begun: Database, tmp_path: Path) -> None:
        done = self.add(tmp_path, "--dsn", begun.dsn, table="public.none")
        assert done.exit_code == 4
        assert "not copied: public.none: no such table is published" in done.stderr
        assert "\nhint: Add it to the publication" in done.stderr
        assert log.TableRequests(tmp_path).pending() == {}

    def test_without_a_capture_and_a_server(self, begun: Database, tmp_path: Path) -> None:
        done = self.add(tmp_path, "--dsn", "host=/nowhere dbname=x")
        assert done.exit_code == 3
        assert "no capture writes the log, and it cannot be continued: could not" in done.stderr
        assert "The request of public.later remains, and a capture will fulfil it." in done.stderr
        complete(begun, tmp_path)
        assert replayed(tmp_path, "public.later") == rows_of(begun, "later")

    def test_by_the_capture(
        self, begun: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command says what it waits for, and why that takes so long."""
        monkeypatch.setattr(requested_tables, "_RETRY_SECONDS", 1.0)
        monkeypatch.setattr(add_tables, "_LOCK_SECONDS", 1)
        capture = capture_into(begun, tmp_path)
        with contextlib.closing(psycopg2.connect(begun.dsn)) as locking, running(capture) as failed:
            locking.cursor().execute("LOCK TABLE later IN ACCESS EXCLUSIVE MODE")
            assert wait_until(lambda: capture.status.state == "streaming")
            with monkeypatch.context() as patched:
                patched.setattr(click, "echo", rolling_back(locking))
                done = self.add(tmp_path, "--dsn", "host=/nowhere")
        assert (done.exit_code, done.stdout) == (0, "copied public.later\n")
        first, second = done.stderr.splitlines()
        writer = f"another writer of this process (pid {os.getpid()})"
        assert first == f"waiting for {writer}, which writes the log, to copy public.later"
        assert second.startswith(f"{first}; the last attempt failed: ")
        assert "lock" in second
        assert not failed

    def test_not_within_the_timeout(self, begun: Database, tmp_path: Path) -> None:
        with log.LogWriter(tmp_path, log.Log(tmp_path).source):
            done = self.add(tmp_path, "--timeout", "0.1")
        assert done.exit_code == 3
        assert done.stderr.startswith(
            "Error: not copied within 0.1 s, waiting for another writer of this process (pid "
            f"{os.getpid()}), which writes the log, to copy public.later\n"
            "hint: The request of public.later remains, and a capture will fulfil it."
        )
        assert len(log.TableRequests(tmp_path).pending()) == 1

    def test_a_log_in_an_object_store(
        self, begun: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command cannot know whether a capture writes it."""
        monkeypatch.setattr(log.TableRequests, "is_local", False)
        done = self.add(tmp_path, "--dsn", begun.dsn, "--timeout", "1.1")
        assert done.exit_code == 3
        waits = "waiting for the capture of the log, which has to be running, to copy public.later"
        assert done.stderr.startswith(f"{waits}\nError: not copied within 1.1 s, {waits}\nhint:")


def rolling_back(connection: Any) -> Any:
    """Return ``click.echo``, which rolls a transaction back after a failed attempt."""
    echo = click.echo

    def show(text: str, **options: Any) -> None:
        echo(text, **options)
        if "failed" in text:
            connection.rollback()

    return show
