"""Types of the users of a database, in a log that has values in both forms."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec import log
from pgwire_codec.errors import CaptureError
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.log_copies import copy_log
from tests.support.servers import Database

pytestmark = [pytest.mark.slow, pytest.mark.since(14, "binary")]

TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'NULL', 'very, \"happy\"')",
    "CREATE DOMAIN price AS numeric(10, 2)",
    "CREATE DOMAIN net_price AS price CHECK (VALUE > 0)",
    "CREATE DOMAIN feeling AS mood",
    "CREATE DOMAIN sizes AS int[]",
    "CREATE DOMAIN code AS varchar(8)",
    "CREATE TYPE span AS RANGE (subtype = float8)",
    "CREATE TYPE moods AS RANGE (subtype = mood)",
    # As citext has them: functions of its own names that are those of text.
    "CREATE TYPE shout",
    "CREATE FUNCTION shout_in(cstring) RETURNS shout IMMUTABLE STRICT LANGUAGE internal"
    " AS 'textin'",
    "CREATE FUNCTION shout_out(shout) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal"
    " AS 'textout'",
    "CREATE FUNCTION shout_recv(internal) RETURNS shout IMMUTABLE STRICT LANGUAGE internal"
    " AS 'textrecv'",
    "CREATE FUNCTION shout_send(shout) RETURNS bytea IMMUTABLE STRICT LANGUAGE internal"
    " AS 'textsend'",
    "CREATE TYPE shout (INPUT = shout_in, OUTPUT = shout_out, RECEIVE = shout_recv,"
    " SEND = shout_send, INTERNALLENGTH = VARIABLE, STORAGE = extended)",
)
TEXT = pa.string()
MONEYS = pa.decimal128(10, 2)
#: Of each column: its type in SQL and in Arrow, its value in SQL and in Python.
COLUMNS: dict[str, tuple[str, pa.DataType, str, Any]] = {
    "m": ("mood", TEXT, "'sad'", "sad"),
    "p": ("price", MONEYS, "1.5", Decimal("1.50")),
    "n": ("net_price", MONEYS, "7", Decimal("7.00")),
    "f": ("feeling", TEXT, "'ok'", "ok"),
    "s": ("sizes", pa.list_(pa.int32()), "'{1,NULL}'", [1, None]),
    "c": ("code", TEXT, "'ab'", "ab"),
    "r": ("span", TEXT, "'[1,2.5)'", "[1,2.5)"),
    "rm": ("moods", TEXT, r"""'[sad,"very, \"happy\""]'""", None),
    "rs": ("span_multirange", TEXT, "'{[1,2),[3,4)}'", "{[1,2),[3,4)}"),
    "sh": ("shout", TEXT, "'AH'", "AH"),
    "ms": (
        "mood[]",
        pa.list_(TEXT),
        "ARRAY['sad', NULL, 'NULL', 'very, \"happy\"']::mood[]",
        ["sad", None, "NULL", 'very, "happy"'],
    ),
    "ps": ("price[]", pa.list_(MONEYS), "'{1.5,2}'", [Decimal("1.50"), Decimal("2.00")]),
    "fs": ("feeling[]", pa.list_(TEXT), "'{ok,sad}'", ["ok", "sad"]),
    "shs": ("shout[]", pa.list_(TEXT), "'{a,\"b c\"}'", ["a", "b c"]),
    "rss": ("span[]", pa.list_(TEXT), "'{\"[1,2)\"}'", ["[1,2)"]),
}


@pytest.fixture
def typed(pg: Database) -> Database:
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in COLUMNS.items())
    pg.execute(
        *TYPES,
        f"CREATE TABLE t (id int, k mood, {columns}, PRIMARY KEY (id, k))",
        f"CREATE PUBLICATION {pg.publication} FOR TABLE t",
    )
    return pg


def follow(made: Database, folder: Path, *, binary: bool, **options: Any) -> None:
    capture_into(made, folder, binary=binary, **options).run(until_lsn=flush_lsn(made))


def test_both_forms_have_the_same_values(typed: Database, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    values = ", ".join(value for _, _, value, _ in COLUMNS.values())
    insert = f"INSERT INTO t VALUES (%s, 'sad', {values})"
    typed.execute(insert % 0)
    follow(typed, folder, binary=False, snapshot=True)
    for number, binary in enumerate((False, True, False), 1):
        typed.execute(insert % number, f"UPDATE t SET k = 'ok' WHERE id = {number - 1}")
        follow(typed, folder, binary=binary)
    batches = list(log.Log(folder).read("public.t"))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len(rows) == 7
    server = dict(typed.query("SELECT id, rm::text FROM t"))
    for row in rows:
        assert row["rm"] == server[row["id"]]
        for name, (*_, value) in COLUMNS.items():
            assert row[name] == (server[row["id"]] if name == "rm" else value), (name, row)
    for batch in batches:
        schema = batch.to_arrow().schema
        assert {name: schema.field(name).type for name in COLUMNS} == {
            name: kind for name, (_, kind, *_) in COLUMNS.items()
        }
    keys = [(row["k"], row["_before"]) for row in rows if row["_op"] == "U"]
    assert keys == [("ok", {"id": number, "k": "sad"}) for number in range(3)]
    # As text, it is the server's own.
    names = ", ".join(f"{name}::text" for name in COLUMNS)
    [expected] = typed.query(f"SELECT {names} FROM t WHERE id = 1")
    for batch in log.Log(folder).read("public.t", types="text"):
        for row in batch.to_pylist():
            assert tuple(row[name] for name in COLUMNS) == expected
    copy_log(folder, tmp_path / "copy")
    [first, *_] = log.Log(tmp_path / "copy").read("public.t")
    assert first.to_arrow().schema == batches[0].to_arrow().schema
    assert log.verify(folder).is_sound


def test_types_that_come_while_a_capture_runs(typed: Database, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    follow(typed, folder, binary=True, create_slot=True)
    assert log.Log(folder).user_types == ()
    typed.execute(
        "CREATE TYPE colour AS ENUM ('red')",
        "CREATE DOMAIN paint AS colour",
        "CREATE TABLE u (id int PRIMARY KEY, p paint[], gone colour)",
        f"ALTER PUBLICATION {typed.publication} ADD TABLE u",
        "INSERT INTO u VALUES (1, '{red}', 'red')",
    )
    follow(typed, folder, binary=True)
    assert {each.name: each.kind for each in log.Log(folder).user_types} == {
        "colour": "enum",
        "paint": "domain",
        "_paint": "array",
    }
    typed.execute("DROP TABLE u", "DROP TYPE colour CASCADE")
    [batch] = log.Log(folder).read("public.u")
    assert (
        batch.to_arrow(["p", "gone"]).to_pylist()[0].items()
        >= {
            "p": ["red"],
            "gone": "red",
        }.items()
    )
    shutil.copy(folder / "types.json", tmp_path)
    (folder / "types.json").write_bytes(b"{}")
    with pytest.raises(log.LogError, match=r"types\.json is damaged"):
        next(log.Log(folder).read("public.u"))
    assert [each.file for each in log.verify(folder).damage] == ["types.json"]


@pytest.mark.parametrize("kind", ["pair", "pair[]", "money", "regclass", "sum"])
def test_a_form_that_would_differ_is_refused(typed: Database, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "log"
    typed.execute(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE DOMAIN sum AS money",
        f"CREATE TABLE w (id int PRIMARY KEY, w {kind})",
        f"ALTER PUBLICATION {typed.publication} ADD TABLE w",
    )
    follow(typed, folder, binary=False, create_slot=True)
    typed.execute("INSERT INTO w VALUES (1)")
    follow(typed, folder, binary=False)
    with pytest.raises(CaptureError, match=r"values in text form, .*: public\.w\.w \(") as error:
        follow(typed, folder, binary=True)
    assert error.value.hint is not None
    assert "without --binary" in error.value.hint
    typed.execute("INSERT INTO w VALUES (2)")
    follow(typed, folder, binary=False)
    assert [
        row["id"] for batch in log.Log(folder).read("public.w") for row in batch.to_pylist()
    ] == [
        1,
        2,
    ]
