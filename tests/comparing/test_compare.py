"""compare finds equal what is equal, and each kind of difference in a damaged target."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.compared_shop import Shop
from tests.support.log_captures import capture_into, running

pytestmark = pytest.mark.slow

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")


def test_equal_tables(shop: Shop) -> None:
    shop.follow()
    found = shop.compare()
    assert {name: each.state for name, each in found.items()} == {
        "bag": "equal", "empty": "equal", "typed": "equal",
    }  # fmt: skip
    assert (found["typed"].server_rows, found["typed"].target_rows) == (502, 502)
    assert found["bag"].differences == ()


def test_damaged_rows_are_found(shop: Shop) -> None:
    shop.follow()
    shop.damage("typed", "UPDATE {} SET t = 'wrong' WHERE id = 7")
    shop.damage("typed", "DELETE FROM {} WHERE id = 8")
    shop.damage("typed", "INSERT INTO {0} SELECT * FROM {0} WHERE id = 9")
    shop.damage("bag", "UPDATE {} SET w = 'wrong' WHERE v = 2")
    found = shop.compare_captured(tables="public.typed,public.bag")
    assert {name: each.state for name, each in found.items()} == {
        "bag": "differs", "typed": "differs",
    }  # fmt: skip
    typed = found["typed"]
    assert (typed.server_rows, typed.target_rows, typed.differing) == (502, 502, 3)
    assert [(each.row, each.server, each.target) for each in typed.differences] == [
        ({"id": 7}, 1, 1),
        ({"id": 8}, 1, 0),
        ({"id": 9}, 0, 1),
    ]
    assert [each.columns for each in typed.differences] == [{"t": ("y" * 7, "wrong")}, {}, {}]
    bag = found["bag"]
    assert (bag.server_rows, bag.target_rows) == (20, 20)
    copies = {
        (each.row["v"], each.row["w"]): (each.server, each.target) for each in bag.differences
    }
    assert copies == {(2, None): (4, 0), (2, "1"): (3, 0), (2, "wrong"): (0, 7)}
    assert len(shop.compare_captured(max_rows=1, tables="public.bag")["bag"].differences) == 1


def test_a_lagging_target_is_behind_and_then_equal(shop: Shop) -> None:
    shop.follow()
    shop.made.execute("UPDATE typed SET t = 'new' WHERE id = 7", "INSERT INTO bag VALUES (9, '9')")
    found = shop.compare()  # the log does not have it
    assert {name: (each.state, each.unsettled) for name, each in found.items()} == {
        "bag": ("behind", 1), "empty": ("equal", 0), "typed": ("behind", 1),
    }  # fmt: skip
    shop.capture()  # the target does not have it
    found = shop.compare()
    assert {name: (each.state, each.unsettled) for name, each in found.items()} == {
        "bag": ("behind", 1), "empty": ("equal", 0), "typed": ("behind", 1),
    }  # fmt: skip
    shop.damage("typed", "UPDATE {} SET t = 'wrong' WHERE id = 8")
    typed = shop.compare_captured(tables="public.typed")["typed"]
    assert (typed.state, typed.differing, typed.unsettled) == ("differs", 1, 1)
    assert [each.row for each in typed.differences] == [{"id": 8}]
    shop.made.execute("UPDATE typed SET t = 'again' WHERE id = 8")
    shop.follow()
    assert all(each.state == "equal" for each in shop.compare().values())


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(
            ["UPDATE {0} SET t = 'new'", "ALTER TABLE {0} REPLICA IDENTITY FULL"],
            id="full after a key",
        ),
        pytest.param(
            ["ALTER TABLE {0} REPLICA IDENTITY FULL", "ALTER TABLE {0} RENAME t TO note"],
            id="other columns under full",
        ),
        pytest.param(
            [
                "UPDATE {0} SET k = k + 1",
                "ALTER TABLE {0} DROP CONSTRAINT {0}_pkey",
                "ALTER TABLE {0} ADD PRIMARY KEY (k)",
            ],
            id="another key",
        ),
    ],
)
def test_a_target_behind_another_identity(shop: Shop, statements: list[str]) -> None:
    """The log does not have old values of columns that did not identify rows."""
    shop.made.execute(
        "CREATE TABLE other (id int PRIMARY KEY, k int NOT NULL, t text)",
        "INSERT INTO other SELECT n, 10 * n, 'old' FROM generate_series(1, 9) n",
    )
    shop.follow()
    shop.made.execute(*(each.format("other") for each in statements))
    shop.made.execute("UPDATE other SET k = k + 1 WHERE id < 4")
    shop.capture()
    other = shop.compare(tables="public.other")["other"]
    assert (other.state, other.differing) == ("behind", 0)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_another_program_is_the_cause(shop: Shop, is_noticed: bool) -> None:
    """Also before the mirror has noticed what it did."""
    shop.follow()
    shop.damage("typed", "UPDATE {} SET t = 'wrong' WHERE id = 8")
    if is_noticed:
        shop.mirror.run()
    typed = shop.compare_captured(tables="public.typed")["typed"]
    assert (typed.state, typed.differing) == ("differs", 1)
    assert typed.error is not None
    assert typed.error.startswith("another program has changed rows: ")
    assert typed.hint is not None
    assert "log add-table --table public.typed" in typed.hint


def test_columns_that_one_side_has(shop: Shop) -> None:
    shop.follow()
    shop.made.execute(
        "ALTER TABLE typed DROP COLUMN j",
        "ALTER TABLE typed ADD COLUMN plain int, ADD COLUMN filled int DEFAULT 5",
        "UPDATE typed SET plain = 1 WHERE id = 3",
    )
    shop.follow()
    typed = shop.compare_captured(tables="public.typed")["typed"]
    assert (typed.state, typed.differing, typed.ignored) == ("differs", 501, ("j",))
    assert typed.differences[0].columns == {"filled": (5, None)}
    assert typed.hint is not None
    assert "DEFAULT" in typed.hint
    shop.made.execute("UPDATE typed SET filled = 5")
    shop.follow()
    assert shop.compare(tables="public.typed")["typed"].state == "equal"


@pytest.mark.parametrize("engine", ["iceberg"], indirect=True)
def test_columns_that_changed_after_the_last_snapshot(shop: Shop) -> None:
    """A snapshot keeps the columns that the table had."""
    shop.follow()
    shop.made.execute(
        "ALTER TABLE typed RENAME COLUMN t TO note", "ALTER TABLE typed DROP COLUMN j"
    )
    shop.damage("typed", "ALTER TABLE {} RENAME COLUMN t TO note")
    shop.damage("typed", "ALTER TABLE {} DROP COLUMN j")
    shop.damage("typed", "ALTER TABLE {} ADD COLUMN later int")
    found = shop.compare_captured(tables="public.typed")["typed"]
    assert (found.state, found.ignored) == ("equal, except: j, t", ("later",)), found.error


def test_masked_columns(shop: Shop) -> None:
    """They are not compared, also if they identify rows, and the table is not called equal."""
    shop.capture()
    masks = {"public.typed.id": "hash", "*.t": "drop", "public.bag.w": "constant:x"}
    shop.mirror.run(masks=masks, mask_key=bytes(16))
    found = shop.compare(tables="public.typed,public.bag")
    assert {name: each.state for name, each in found.items()} == {
        "bag": "equal, except: w", "typed": "equal, except: id, t",
    }  # fmt: skip
    assert found["bag"].uncompared == {"w": "it has a mask"}
    shop.damage("typed", "UPDATE {} SET c = 'wrong' WHERE d = '2020-01-08'")
    shop.damage("bag", "DELETE FROM {} WHERE v = 2")
    found = shop.compare_captured(tables="public.typed,public.bag")
    assert {name: each.state for name, each in found.items()} == {
        "bag": "differs", "typed": "differs",
    }  # fmt: skip
    assert "id" not in found["typed"].differences[0].row


def test_rows_that_soft_deletes_keep(shop: Shop) -> None:
    """They are left out, except if the target has them as rows that are not deleted."""
    shop.capture()
    options: dict[str, Any] = {"soft_deletes": True, "commit_columns": True}
    shop.mirror.run("public.typed", **options)
    shop.made.execute("DELETE FROM typed WHERE id < 100", "INSERT INTO typed (id) VALUES (7)")
    shop.capture()
    shop.mirror.run("public.typed", **options)
    assert len(shop.mirror.rows("public.typed")) == 502
    typed = shop.compare(tables="public.typed")["typed"]
    assert (typed.state, typed.server_rows, typed.target_rows) == ("equal", 402, 402)
    assert typed.ignored == ("_commit_lsn", "_commit_time", "_is_deleted")
    shop.damage("typed", "UPDATE {} SET _is_deleted = true WHERE id = 7")
    shop.damage("typed", "UPDATE {} SET _is_deleted = NULL WHERE id = 8")
    typed = shop.compare_captured(tables="public.typed")["typed"]
    assert (typed.state, typed.differing) == ("differs", 2)
    assert [(each.row, each.server, each.target) for each in typed.differences] == [
        ({"id": 7}, 1, 0),
        ({"id": 8}, 0, 1),
    ]


def test_tables_that_one_side_has(shop: Shop) -> None:
    shop.follow()
    shop.made.execute("DROP TABLE empty", "TRUNCATE bag", "CREATE TABLE later (id int)")
    shop.made.execute("INSERT INTO later VALUES (1)", "CREATE TABLE latest (id int)")
    shop.capture()
    shop.remove("typed")
    found = shop.compare()
    assert {name: each.state for name, each in found.items()} == {
        "bag": "behind", "empty": "gone", "later": "missing", "typed": "missing",
    }  # fmt: skip
    assert (found["typed"].server_rows, found["typed"].target_rows) == (502, 0)


def test_an_empty_table_without_a_target_is_missing(shop: Shop) -> None:
    shop.follow()
    assert shop.mirror.rows("public.empty") == []
    shop.remove("empty")
    assert shop.compare(tables="public.empty")["empty"].state == "missing"


def test_generated_columns_are_compared(shop: Shop) -> None:
    """Of the publications that the log is captured with, without naming them."""
    shop.made.execute(
        "CREATE TABLE sums (id int PRIMARY KEY, n int, net int GENERATED ALWAYS AS (n + 1) STORED)",
        "INSERT INTO sums SELECT n, n FROM generate_series(1, 9) n",
        "CREATE PUBLICATION g FOR TABLE sums WITH (publish_generated_columns = stored)",
    )
    shop.made.publication = "g"
    shop.follow()
    assert shop.compare()["sums"].state == "equal"
    shop.damage("sums", "UPDATE {} SET net = 0 WHERE id = 7")
    sums = shop.compare()["sums"]
    assert (sums.state, sums.ignored, sums.uncompared) == ("differs", (), {})
    assert [each.columns for each in sums.differences] == [{"net": (8, 0)}]
    # The log has it, published or not.
    shop.made.execute("ALTER PUBLICATION g SET (publish_generated_columns = none)")
    assert shop.compare()["sums"].state == "differs"


def test_damage_on_an_idle_server_is_found(shop: Shop) -> None:
    """Without a capture, only the server's LSN goes on: by checkpoints and other databases."""
    shop.follow()
    shop.damage("typed", "UPDATE {} SET t = 'wrong' WHERE id = 7")
    shop.made.execute("SELECT pg_switch_wal()", "CHECKPOINT", "CREATE TABLE unpublished (id int)")
    typed = shop.compare(tables="public.typed")["typed"]
    assert (typed.state, typed.differing, typed.unsettled) == ("differs", 1, 0)
    # The server changes another table: this one differs all the same.
    shop.made.execute("INSERT INTO empty VALUES (1)")
    found = shop.compare(tables="public.typed,public.empty")
    assert {name: each.state for name, each in found.items()} == {
        "empty": "behind", "typed": "differs",
    }  # fmt: skip


def test_partitions_of_a_published_root_are_not_tables(shop: Shop) -> None:
    """The server sends their Relations, too, but no changes of them."""
    shop.made.execute(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF root FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)",
        "CREATE TABLE higher PARTITION OF high FOR VALUES FROM (10) TO (20)",
        "CREATE PUBLICATION r FOR TABLE root WITH (publish_via_partition_root = true)",
    )
    shop.made.publication = "r"
    shop.follow()
    shop.made.execute("INSERT INTO root VALUES (1), (11)")
    shop.follow()
    assert {name: each.state for name, each in shop.compare().items()} == {"root": "equal"}
    assert {name: row["state"] for name, row in shop.mirror.status().items()} == {
        "public.root": "ok"
    }


def test_ranges_of_a_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgwire_codec.capture.snapshot import table_ranges
    from pgwire_codec.comparing import server_state

    ranges = []

    def noted(*arguments: Any) -> Any:
        ranges.append(table_ranges.table_ranges(*arguments))
        return ranges[-1]

    monkeypatch.setattr(table_ranges, "_RANGE_BYTES", 16384)
    monkeypatch.setattr(server_state, "table_ranges", noted)
    shop.made.execute(
        "CREATE TABLE split (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF split FOR VALUES FROM (0) TO (1000)",
        "CREATE TABLE high PARTITION OF split FOR VALUES FROM (1000) TO (2000)",
        "CREATE PUBLICATION root FOR TABLE split WHERE (id % 10 <> 0)"
        " WITH (publish_via_partition_root = true)",
        "INSERT INTO split SELECT n, n FROM generate_series(1, 1999) n",
    )
    shop.made.publication = "root"
    shop.follow()
    found = shop.compare()["split"]
    assert (found.state, found.server_rows, found.target_rows) == ("equal", 1800, 1800)
    assert len(ranges[-1]) > 4
    shop.made.execute("CREATE PUBLICATION rows FOR TABLE split WITH (publish_via_partition_root)")
    found = shop.compare(publication="rows")["split"]
    assert (found.state, found.differing) == ("differs", 199)


@pytest.mark.thorough
def test_writes_and_the_mirror_go_on_meanwhile(shop: Shop, tmp_path: Path) -> None:
    capture = capture_into(shop.made, tmp_path / "log", snapshot=True)
    has_begun, done = threading.Event(), threading.Event()

    def write() -> None:
        with shop.made.connect() as connection:
            cursor = connection.cursor()
            for number in itertools.count():
                if done.is_set():
                    return
                cursor.execute("UPDATE typed SET t = %s WHERE id = 7", (str(number),))
                cursor.execute(
                    "UPDATE typed SET id = -id WHERE abs(id) = 100 + %s %% 50", (number,)
                )
                cursor.execute("UPDATE bag SET w = %s WHERE v = %s %% 3", (str(number % 5), number))
                time.sleep(0.05)

    shop.capture()
    with (
        running(capture) as failed,
        shop.mirror.running(report=lambda batch: has_begun.set()),
        ThreadPoolExecutor(1) as executor,
    ):
        assert has_begun.wait(60)
        writing = executor.submit(write)
        try:
            states = {name: each.state for name, each in shop.compare(wait=30).items()}
        finally:
            done.set()
            writing.result()
        assert states["empty"] == "equal"
        assert set(states.values()) <= {"equal", "behind", "changing"}
        assert {each.state for each in shop.compare(wait=300).values()} == {"equal"}
        assert not failed
