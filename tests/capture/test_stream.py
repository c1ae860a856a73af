"""A live stream: what comes, what is confirmed, when it ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.capture import peek
from pgwire_codec.demo import shop, workload
from pgwire_codec.errors import CaptureError, OptionError
from pgwire_codec.protocol.lsn import format_lsn
from tests.support.servers import Database, InstalledServer, database, each_major
from tests.support.slot_captures import confirmed_by_server, opened, read, tags, wait_until

pytestmark = pytest.mark.slow


class TestMessages:
    """The same as the SQL function gives for another slot."""

    @each_major
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"binary": True},
            {"streaming": "on"},
            {"streaming": "parallel", "two_phase": True, "binary": True},
            {"messages": False, "origin": "none"},
        ],
        ids=lambda options: "-".join(options) or "plain",
    )
    @pytest.mark.since(14, "pg_logical_emit_message is told")
    def test_equal_to_peek(self, pg: Database, options: dict[str, Any]) -> None:
        shop.create(pg.dsn)
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        pg.create_slot()
        other = pg.create_slot("_peek")
        workload.run(pg.dsn)
        pg.execute("SELECT pg_logical_emit_message(false, 'note', 'alone')")
        pg.execute("SELECT pg_logical_emit_message(true, 'note', 'in a transaction')")
        peeked = peek(pg.dsn, slot=other, publication="p", **options)
        with opened(pg, **options) as capture:
            batches = list(capture.batches(until_lsn=capture.current_lsn(), max_messages=1000))
        assert len(batches) > 1
        assert [message for batch in batches for message in batch.data] == peeked.data
        # A walsender leaves out the position where it would be that of the message before.
        lsn = np.concatenate([batch.lsn for batch in batches])
        assert (lsn[lsn != 0] == peeked.lsn[lsn != 0]).all()
        assert {tags(peeked.data)[i] for i in np.flatnonzero(lsn == 0)} <= set(b"RYB")
        assert batches[-1].confirm_lsn == peeked.confirm_lsn
        assert (b"M" in tags(peeked.data)) == options.get("messages", True)
        assert (b"c" in tags(peeked.data)) == ("streaming" in options)
        assert (b"r" in tags(peeked.data)) == ("two_phase" in options)

    def test_equal_to_peek_on_an_older_server(self, pg15: InstalledServer) -> None:
        with database(pg15) as made:
            shop.create(made.dsn)
            made.execute("CREATE PUBLICATION p FOR ALL TABLES")
            made.create_slot()
            other = made.create_slot("_peek")
            workload.run(made.dsn)
            with opened(made, streaming="on") as capture:
                assert capture.source.plugin_options["proto_version"] == "3"
                live = read(capture)
            assert live == peek(made.dsn, slot=other, publication="p", streaming="on").data

    def test_a_workload_while_it_runs(self, pg: Database) -> None:
        shop.create(pg.dsn)
        pg.execute("CREATE PUBLICATION p FOR ALL TABLES")
        pg.create_slot()
        other = pg.create_slot("_peek")
        writer = threading.Thread(target=workload.run, args=(pg.dsn,))
        messages: list[bytes] = []
        with opened(pg) as capture:
            writer.start()
            while writer.is_alive():
                for batch in capture.batches(idle_seconds=0.05, max_seconds=0.01):
                    messages += batch.data
                    capture.confirm(batch.confirm_lsn)
            messages += read(capture)
        peeked = peek(pg.dsn, slot=other, publication="p").data
        # Decoded while tables change, a Relation and its types are sent more often.
        assert set(messages) == set(peeked)
        told = frozenset((b"R", b"Y"))
        assert [m for m in messages if m[:1] not in told] == [
            m for m in peeked if m[:1] not in told
        ]

    def test_peek_consumes_nothing(self, table: Database) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
        first = peek(table.dsn, slot=table.slot, publication="p")
        assert tags(first.data) == b"BRICBIC"
        with table.connect() as connection:
            again = peek(connection, slot=table.slot, publication="p")
            assert connection.info.transaction_status == 0
        assert again.data == first.data
        assert again.xid is not None
        assert len(set(again.xid.tolist())) == 2
        one = peek(table.dsn, slot=table.slot, publication="p", upto_messages=1)
        assert tags(one.data) == b"BRIC"
        until = peek(table.dsn, slot=table.slot, publication="p", upto_lsn=one.confirm_lsn)
        assert until.data == one.data


class TestBatches:
    def test_ends_at_the_limits(self, table: Database) -> None:
        table.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 98) g")
        with opened(table) as capture:
            batches = list(capture.batches(until_lsn=capture.current_lsn(), max_messages=30))
        assert [len(batch) for batch in batches] == [30, 30, 30, 11]
        assert [batch.first for batch in batches] == [0, 30, 60, 90]
        with opened(table) as capture:
            limited = list(capture.batches(until_lsn=capture.current_lsn(), max_bytes=3000))
        assert all(3000 <= batch.nbytes < 3200 for batch in limited[:-1])
        assert len(limited) > 3

    def test_a_batch_is_not_held_back(self, table: Database) -> None:
        with opened(table) as capture:
            batches = capture.batches(max_seconds=0.2)
            table.execute("INSERT INTO t VALUES (1, 'a')")
            started = time.monotonic()
            batch = next(batches)
            assert tags(batch.data) == b"BRIC"
            assert 0.1 < time.monotonic() - started < 2

    def test_ends_when_nothing_comes(self, table: Database) -> None:
        with opened(table) as capture:
            started = time.monotonic()
            assert list(capture.batches(idle_seconds=0.3)) == []
            assert 0.3 <= time.monotonic() - started < 2

    def test_the_consumers_time_is_not_idle(self, table: Database) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        with opened(table) as capture:
            batches = capture.batches(max_messages=4, idle_seconds=0.2)
            next(batches)
            table.execute("INSERT INTO t VALUES (2, 'b')")
            time.sleep(0.3)
            assert tags(next(batches).data) == b"BIC"

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_what_does_not_concern_the_slot_is_nothing(self, table: Database) -> None:
        table.execute("CREATE TABLE other (k int)")
        stop = threading.Event()

        def write() -> None:
            with table.connect() as connection:
                while not stop.wait(0.02):
                    connection.cursor().execute("INSERT INTO other VALUES (1)")

        writer = threading.Thread(target=write)
        with opened(table) as capture:
            before = capture.received_lsn
            writer.start()
            try:
                batches = capture.batches(idle_seconds=0.5, until_lsn=before + (1 << 40))
                assert list(batches) == []
            finally:
                stop.set()
                writer.join()
            assert capture.received_lsn > before

    def test_goes_on_where_another_iterator_stopped(self, table: Database) -> None:
        table.execute("INSERT INTO t SELECT g FROM generate_series(1, 10) g")
        with opened(table) as capture:
            for batch in capture.batches(max_messages=5):
                first = batch
                break
            rest = read(capture)
        assert tags(first.data + rest) == b"BR" + b"I" * 10 + b"C"

    def test_as_arrow(self, table: Database) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')")
        before = np.datetime64("now") - np.timedelta64(60, "s")
        with opened(table) as capture:
            batch = next(capture.batches(max_messages=4))
        arrow = batch.to_arrow()
        assert arrow.schema == pa.schema(
            {
                "ordinal": pa.int64(),
                "lsn": pa.int64(),
                "time": pa.timestamp("us", "UTC"),
                "data": pa.binary(),
            }
        )
        assert arrow["ordinal"].to_pylist() == [0, 1, 2, 3]
        assert arrow["data"].to_pylist() == batch.data
        assert arrow["lsn"].to_pylist() == batch.lsn.tolist()
        assert before < batch.time.min() <= batch.time.max() < before + np.timedelta64(120, "s")
        peeked = peek(table.dsn, slot=table.slot, publication="p").to_arrow()
        assert peeked["xid"].type == pa.int64()
        assert peeked["time"].null_count == 4

    @pytest.mark.parametrize(
        "limits",
        [{"max_messages": 0}, {"max_bytes": 0}, {"max_bytes": 1 << 31}, {"max_seconds": 0}],
    )
    def test_refuses_nonsense(self, table: Database, limits: dict[str, int]) -> None:
        with opened(table) as capture, pytest.raises(OptionError, match="max_"):
            capture.batches(**limits)


class TestUntil:
    def test_all_up_to_the_position_and_no_more_is_waited_for(self, table: Database) -> None:
        with opened(table) as capture:
            assert read(capture) == []
            for key in range(3):
                table.execute(f"INSERT INTO t VALUES ({key}, 'a')")
            assert tags(read(capture)) == b"BRICBICBIC"
            assert read(capture) == []

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_other_tables_wal_is_passed(self, table: Database) -> None:
        table.execute("CREATE TABLE other AS SELECT g FROM generate_series(1, 10000) g")
        with opened(table) as capture:
            started = time.monotonic()
            assert read(capture) == []
            assert time.monotonic() - started < 5

    def test_ends_with_a_complete_transaction(self, table: Database) -> None:
        with opened(table) as capture:
            table.execute("INSERT INTO t SELECT g FROM generate_series(1, 5000) g")
            first = next(capture.batches(max_messages=100))
            middle = int(first.lsn[-1])
            rest = list(capture.batches(until_lsn=middle, max_messages=100))
        messages = [message for batch in (first, *rest) for message in batch.data]
        assert tags(messages) == b"BR" + b"I" * 5000 + b"C"

    def test_a_streamed_transaction_may_still_run(self, table: Database) -> None:
        with table.connect() as connection, opened(table, streaming="on") as capture:
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 3000) g")
            table.execute("INSERT INTO t VALUES (0, 'small')")
            messages = read(capture)
            assert messages[0][:1] == b"S"
            assert b"c" not in tags(messages)
            assert b"C" in tags(messages)
            cursor.execute("COMMIT")
            messages += read(capture)
            assert tags(messages).count(b"c") == 1
            assert tags(messages).count(b"I") == 3001


class TestConfirm:
    def test_unconfirmed_comes_again_and_confirmed_does_not(self, table: Database) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
        with opened(table) as capture:
            first, second = capture.batches(until_lsn=capture.current_lsn(), max_messages=4)
        with opened(table) as capture:
            again = read(capture)
            assert again == first.data + second.data
            capture.confirm(first.confirm_lsn)
            assert capture.confirmed_lsn == first.confirm_lsn
        with opened(table) as capture:
            assert confirmed_by_server(table) == first.confirm_lsn
            third = read(capture)
        assert tags(third) == b"BRIC"
        assert third[2] == second.data[1]

    def test_start_lsn_skips(self, table: Database) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
        with opened(table) as capture:
            first, second = capture.batches(until_lsn=capture.current_lsn(), max_messages=4)
        with opened(table, start_lsn=first.confirm_lsn) as capture:
            assert read(capture)[2] == second.data[1]

    def test_only_what_was_delivered(self, table: Database) -> None:
        table.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
        with opened(table) as capture:
            batches = capture.batches(max_messages=4)
            first = next(batches)
            with pytest.raises(
                CaptureError, match=f"cannot confirm .* to {format_lsn(first.confirm_lsn)}"
            ):
                capture.confirm(capture.current_lsn())
            capture.confirm(first.confirm_lsn)
            capture.confirm(0)
            assert capture.confirmed_lsn == first.confirm_lsn

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_what_could_be_confirmed_still_can(self, table: Database) -> None:
        """A position that only a keepalive reports, while a transaction begins to arrive."""
        with opened(table, auto_advance=False) as capture:
            table.execute("CREATE TABLE other AS SELECT g FROM generate_series(1, 1000) g")
            assert read(capture) == []
            idle = capture.confirmable_lsn
            table.execute("INSERT INTO t SELECT g, 'a' FROM generate_series(1, 1000) g")
            begun = capture.read(max_messages=10, max_seconds=60)
            assert len(begun) == 10
            assert begun.confirm_lsn < idle <= capture.confirmable_lsn
            for _ in range(2):
                capture.confirm(idle)
                assert capture.confirmed_lsn == idle

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_an_idle_slot_advances(self, table: Database) -> None:
        with opened(table) as capture:
            before = confirmed_by_server(table)
            table.execute("CREATE TABLE other AS SELECT g FROM generate_series(1, 1000) g")
            until = capture.current_lsn()
            assert read(capture) == []
            capture.keepalive()
            assert until > before
            assert wait_until(lambda: confirmed_by_server(table) >= until)

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_a_slot_with_something_unconfirmed_does_not(self, table: Database) -> None:
        with opened(table) as capture:
            table.execute("INSERT INTO t VALUES (1, 'a')")
            [batch] = capture.batches(until_lsn=capture.current_lsn())
            before = confirmed_by_server(table)
            table.execute("CREATE TABLE other AS SELECT g FROM generate_series(1, 1000) g")
            until = capture.current_lsn()  # not later: the server writes WAL of its own
            assert read(capture) == []
            [(now,)] = table.query("SELECT clock_timestamp()")
            capture.keepalive()
            arrived = (
                f"SELECT reply_time > '{now}' FROM pg_stat_replication JOIN pg_replication_slots"
                f" ON pid = active_pid WHERE slot_name = '{table.slot}'"
            )
            assert wait_until(lambda: table.query(arrived) == [(True,)])
            assert confirmed_by_server(table) == before < batch.confirm_lsn
            capture.confirm(batch.confirm_lsn)
            assert wait_until(lambda: confirmed_by_server(table) >= until)

    @pytest.mark.since(15, "transactions with nothing in them are not sent")
    def test_a_message_with_a_lower_position_confirms_nothing(self, table: Database) -> None:
        """Changes of an old transaction, streamed late, come with positions below the confirmed."""
        with (
            table.connect() as one,
            table.connect() as two,
            opened(table, streaming="on") as capture,
        ):
            old, pusher = one.cursor(), two.cursor()
            for cursor in (old, pusher):
                cursor.execute("BEGIN")
            old.execute("INSERT INTO t SELECT g, 'begin' FROM generate_series(1, 330) g")
            table.execute("INSERT INTO t VALUES (1001, 'first')")
            [first] = capture.batches(until_lsn=capture.current_lsn())
            capture.confirm(first.confirm_lsn)
            table.execute("INSERT INTO t VALUES (1002, 'second')")
            [second] = capture.batches(until_lsn=capture.current_lsn())
            # Memory is short: the larger transaction is streamed.
            pusher.execute("INSERT INTO t SELECT g, 'later' FROM generate_series(2001, 2300) g")
            table.execute("CREATE TABLE other AS SELECT 1")
            late = list(capture.batches(until_lsn=capture.current_lsn()))
            assert [batch.data[0][:1] for batch in late] == [b"S"]
            assert late[-1].lsn[-1] < first.confirm_lsn
            for _ in range(3):
                capture.keepalive()
                list(capture.batches(idle_seconds=0.1))
            assert confirmed_by_server(table) == first.confirm_lsn < second.confirm_lsn

    def test_a_slot_created_for_the_capture(self, pg: Database) -> None:
        pg.execute('CREATE SCHEMA "S"', 'CREATE TABLE "S"."T" (k int)')
        with opened(pg, create_publication=['"S"."T"'], temporary=True) as capture:
            pg.execute('INSERT INTO "S"."T" VALUES (1)')
            assert tags(read(capture)) == b"BRIC"
            count = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{pg.slot}'"
            assert pg.query(count) == [(1,)]
        assert wait_until(lambda: pg.query(count) == [(0,)])
