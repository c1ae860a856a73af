"""Soft deletes, and columns with the commit of a row's last change."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support import build, spark_logs
from tests.support.build import column
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.mirrors import ID, MirrorOf, Writer, in_order, relation
from tests.support.servers import database

pytest.importorskip("deltalake")
pytest.importorskip("psycopg2")

TABLE = relation(1, ID, column("name"), column("big"))
BOTH = {"soft_deletes": True, "commit_columns": True}


def mirrored(made: MirrorOf, writer: Writer, *inside: Any, **options: Any) -> dict[str, Any]:
    """Mirror another transaction, and return the status of the first table."""
    writer.commit(*inside)
    writer.flush()
    made.run(**options)
    status: dict[str, Any] = made.status()["public.t1"]
    return status


def key(text: str) -> Any:
    return build.row(text, None, None)


@pytest.mark.parametrize("in_steps", [True, False], ids=["in steps", "at once"])
def test_deleted_rows_remain(made: MirrorOf, writer: Writer, in_steps: bool) -> None:
    """With the values that they had last, whether the target or the batch has them."""
    for inside in [
        [TABLE, *(build.insert(1, str(n), f"name {n}", f"big {n}") for n in range(1, 6))],
        [
            build.update(1, build.row("1", "new 1", ...)),
            build.delete(1, key=key("1")),
            build.insert(1, "6", "name 6", "big 6"),
            build.delete(1, key=key("6")),
            build.delete(1, key=key("2")),
            build.delete(1, key=key("99")),
        ],
        [
            build.insert(1, "2", "again", None),
            build.update(1, build.row("30", "moved", ...), key=key("3")),
            build.update(1, build.row("40", "moved", ...), key=key("4")),
            build.delete(1, key=key("40")),
            build.delete(1, key=key("5")),
            build.insert(1, "5", "again", "big"),
            build.update(1, build.row("5", "new 5", ...)),
        ],
    ]:
        writer.commit(*inside)
        if in_steps:
            writer.flush()
            made.run(**BOTH)
    writer.flush()
    made.run(**BOTH)
    assert made.status()["public.t1"]["state"] == "ok"
    assert made.rows("public.t1") == in_order(
        [
            row(1, "new 1", "big 1", 20, is_deleted=True),
            row(2, "again", None, 30),
            row(30, "moved", "big 3", 30),
            row(40, "moved", "big 4", 30, is_deleted=True),
            row(5, "new 5", "big", 30),
            row(6, "name 6", "big 6", 20, is_deleted=True),
            row(99, None, None, 20, is_deleted=True),
        ]
    )
    mirrored(made, writer, build.truncate(1), build.insert(1, "7", "a", "b"), **BOTH)
    assert made.rows("public.t1") == [row(7, "a", "b", 40)]


def row(number: int, name: Any, big: Any, lsn: int, *, is_deleted: bool = False) -> dict[str, Any]:
    return {
        "id": number, "name": name, "big": big, "_commit_lsn": lsn,
        "_commit_time": datetime(2000, 1, 1, tzinfo=timezone.utc), "_is_deleted": is_deleted,
    }  # fmt: skip


def test_times_of_commits(made: MirrorOf, writer: Writer) -> None:
    """Of updates that move a row, too, and of rows that are appended."""
    for number, inside in enumerate([
        [TABLE, build.insert(1, "1", "a", "b"), build.insert(1, "2", "a", "b")],
        [build.update(1, build.row("3", "a", ...), key=key("1"))],
    ]):  # fmt: skip
        time = 1_000_000 * (number + 1)
        messages = build.transaction(*inside, lsn=10 * (number + 1), time=time)
        spark_logs.write(Path(made.log), build.wire(messages))
        made.run(commit_columns=True)
    begin = datetime(2000, 1, 1, tzinfo=timezone.utc)
    assert [
        (row["id"], row["_commit_lsn"], row["_commit_time"], "_is_deleted" in row)
        for row in made.rows("public.t1")
    ] == [
        (2, 10, begin + timedelta(seconds=1), False),
        (3, 20, begin + timedelta(seconds=2), False),
    ]  # fmt: skip
    assert made.status()["public.t1"]["row_columns"] == ["_commit_lsn", "_commit_time"]


def test_an_update_of_a_row_that_the_target_lacks(made: MirrorOf, writer: Writer) -> None:
    """It is an error as before: only deleted rows need no values."""
    status = mirrored(
        made, writer, TABLE,
        build.update(1, build.row("1", "a", ...)), build.delete(1, key=key("2")), **BOTH,
    )  # fmt: skip
    assert status["state"] == "set aside"
    assert "has no row id = 1, which an update changed" in status["error"]
    status = mirrored(
        made, writer, build.truncate(1), build.insert(1, "3", "a", "b"), **BOTH
    )  # fmt: skip
    made.resume("public.t1")
    made.run(**BOTH)
    status = mirrored(
        made, writer,
        build.update(1, build.row("5", "a", ...), key=key("4")), build.delete(1, key=key("2")),
        **BOTH,
    )  # fmt: skip
    assert status["state"] == "set aside"
    assert "has no row id = 4, which an update changed" in status["error"]


def test_options_that_come_and_go(made: MirrorOf, writer: Writer) -> None:
    mirrored(made, writer, TABLE, build.insert(1, "1", "a", "b"), build.insert(1, "2", "a", "b"))
    status = mirrored(made, writer, build.delete(1, key=key("1")), **BOTH)
    assert status["state"] == "ok"
    assert status["evolutions"] == [
        "add column _commit_lsn bigint",
        "add column _commit_time timestamp",
        "add column _is_deleted boolean",
    ]
    old = {"id": 2, "name": "a", "big": "b"} | dict.fromkeys(
        ("_commit_lsn", "_commit_time", "_is_deleted")
    )
    assert made.rows("public.t1") == in_order([row(1, "a", "b", 20, is_deleted=True), old])
    delete = build.delete(1, key=key("2"))
    status = mirrored(made, writer, delete)
    assert status["state"] == "set aside"
    assert status["error"].startswith("public.t1 was written with soft deletes")
    made.resume("public.t1")
    made.run(soft_deletes=True)
    assert made.status()["public.t1"]["state"] == "ok"
    assert made.rows("public.t1") == in_order(
        [row(1, "a", "b", 20, is_deleted=True), old | {"_is_deleted": True}]
    )


@pytest.mark.parametrize(
    ("table", "options", "problem"),
    [
        (
            relation(1, ID, column("name"), column("_Is_Deleted")), {},
            "public.t1 has a column _Is_Deleted itself",
        ),
        (
            relation(1, ID, column("name"), column("big"), identity="f"), {},
            "rows of public.t1 are identified by all their values",
        ),
        (TABLE, {"on_schema_change": "freeze"}, "the target of public.t1 does not have the column"),
    ],
)  # fmt: skip
def test_tables_that_are_set_aside(
    made: MirrorOf, writer: Writer, table: Any, options: dict[str, str], problem: str
) -> None:
    mirrored(made, writer, table, build.insert(1, "1", "a", "b"))
    rows = made.rows("public.t1")
    insert = build.insert(1, "2", "c", "d")
    status = mirrored(made, writer, insert, soft_deletes=True, **options)
    assert status["state"] == "set aside"
    assert status["error"].startswith(problem)
    assert made.rows("public.t1") == rows


@pytest.mark.slow
def test_a_server_that_keeps_its_deleted_rows(mirror: MirrorOf, tmp_path: Path, pg18: Any) -> None:
    """The server's triggers write down what the mirror must have."""
    made = mirror
    with database(pg18) as server:
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, n int, big text)",
            "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
            "CREATE TABLE deleted (LIKE t INCLUDING ALL)",
            "CREATE FUNCTION bury() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO deleted VALUES (OLD.*); RETURN NULL; END $$",
            "CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " DELETE FROM deleted WHERE id = NEW.id; RETURN NULL; END $$",
            "CREATE TRIGGER bury AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION bury()",
            "CREATE TRIGGER raise AFTER INSERT OR UPDATE ON t FOR EACH ROW"
            " EXECUTE FUNCTION raise()",
            "CREATE PUBLICATION p FOR TABLE t",
            "INSERT INTO t SELECT n, n, repeat(md5(n::text), 100) FROM generate_series(1, 60) n",
        )
        chance = random.Random(18)
        for _ in range(4):
            capture = capture_into(server, tmp_path / "log", snapshot=True)
            capture.run(until_lsn=flush_lsn(server))
            made.run(**BOTH)
            for _ in range(40):
                count = chance.randint(1, 4)
                server.execute(";".join(statement(chance) for _ in range(count)))
        capture = capture_into(server, tmp_path / "log", snapshot=True)
        capture.run(until_lsn=flush_lsn(server))
        made.run(**BOTH)
        expected = server.query(
            "SELECT id, n, big, false FROM t UNION ALL SELECT id, n, big, true FROM deleted"
        )
    rows = made.rows("public.t")
    names = ("id", "n", "big", "_is_deleted")
    assert sorted(tuple(each[name] for name in names) for each in rows) == sorted(expected)
    assert {each["_is_deleted"] for each in rows} == {False, True}
    assert made.status()["public.t"]["state"] == "ok"


def statement(chance: random.Random) -> str:
    number, other = chance.randint(1, 80), chance.randint(1, 80)
    return chance.choice([
        f"DELETE FROM t WHERE id = {number}",
        f"UPDATE t SET n = n + 1 WHERE id = {number}",
        f"UPDATE t SET big = repeat(md5('{other}'), 100) WHERE id = {number}",
        f"UPDATE t SET id = {other} WHERE id = {number}"
        f" AND NOT EXISTS (SELECT FROM t WHERE id = {other})",
        f"INSERT INTO t VALUES ({number}, 0, repeat('x', 3000)) ON CONFLICT DO NOTHING",
    ])  # fmt: skip
