"""Write the captures of this folder, and their truth, from a PostgreSQL 19.

Run with the folder of its binaries::

    python -m tests.pg19.make /usr/lib/postgresql/19/bin
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from pgwire_codec.protocol.lsn import parse_lsn
from tests.support.servers import Database, database, installed

HERE = Path(__file__).parent

#: Type, SQL for its canonical value, values.
TYPES = {
    "oid8": (
        "v::text",
        ["0", "1", "4294967296", "9223372036854775807", "9223372036854775808", str(2**64 - 1)],
    ),
    "oid8[]": ("to_json(v::text[])::text", ["{}", f"{{0,NULL,{2**64 - 1}}}", "[5:6]={1,2}"]),
    "regdatabase": ("v::oid::text", ["postgres", "template1", "-", "99999999"]),
    "regdatabase[]": ("to_json(v::oid[])::text", ["{}", "{postgres,NULL,-}"]),
    "pg_lsn": ("(v - '0/0')::text", ["0/0", "0/01782C38", "16/B374D848", "FFFFFFFF/FFFFFFFF"]),
}

STREAMS = [
    "CREATE TABLE s (k int PRIMARY KEY, v text)",
    "CREATE TABLE parent (k int, v text) PARTITION BY LIST (k)",
    "CREATE TABLE part_1 PARTITION OF parent FOR VALUES IN (1)",
    "CREATE TABLE left_out (k int PRIMARY KEY)",
    "CREATE SEQUENCE q",
    "CREATE PUBLICATION p FOR ALL TABLES EXCEPT (TABLE left_out, parent), ALL SEQUENCES",
    "SELECT pg_create_logical_replication_slot('made', 'pgoutput', false, true)",
    "INSERT INTO s SELECT g, 'plain' FROM generate_series(1, 3) g",
    "INSERT INTO left_out VALUES (1)",
    "INSERT INTO parent VALUES (1, 'left out, too')",
    "SELECT nextval('q')",
    "BEGIN; INSERT INTO s SELECT g, rpad(g::text, 160, 'x') FROM generate_series(100, 700) g;"
    " SAVEPOINT a; INSERT INTO s SELECT g, 'undone' FROM generate_series(1000, 2500) g;"
    " ROLLBACK TO a; ALTER TABLE s ADD w oid8; UPDATE s SET w = k WHERE k = 1; COMMIT",
    "BEGIN; INSERT INTO s VALUES (10, 'two', '18446744073709551615'); PREPARE TRANSACTION 'kept'",
    "BEGIN; INSERT INTO s VALUES (11, 'undone', 1); PREPARE TRANSACTION 'undone'",
    "BEGIN; INSERT INTO s SELECT g, 'large', 5 FROM generate_series(3000, 4500) g;"
    " PREPARE TRANSACTION 'large'",
    "BEGIN; SELECT * FROM s WHERE k = 1 FOR UPDATE; PREPARE TRANSACTION 'empty'",
    "COMMIT PREPARED 'empty'",
    "ROLLBACK PREPARED 'undone'",
    "COMMIT PREPARED 'large'",
    "COMMIT PREPARED 'kept'",
    "DELETE FROM s WHERE k BETWEEN 3010 AND 4500",
    "UPDATE s SET v = 'the end' WHERE k = 10",
]

_STREAMED = {"proto_version": "4", "streaming": "parallel", "two_phase": "on"}
OPTIONS = {
    "types": {"v1-text": {"proto_version": "1"}, "v1-binary": {"proto_version": "1"}},
    "streams": {"v4-parallel-2pc": _STREAMED, "v4-parallel-2pc-binary": _STREAMED},
}
PINS = (
    "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET extra_float_digits = 3;"
    " SET bytea_output = 'hex'; SET timezone = 'UTC'; SET client_encoding = 'UTF8'"
)


def make_types(made: Database) -> dict[str, Any]:
    made.execute("CREATE PUBLICATION p FOR ALL TABLES")
    made.query("SELECT pg_create_logical_replication_slot('made', 'pgoutput')")
    truth = {}
    for kind, (canonical, values) in TYPES.items():
        table = f"t_{kind.replace('[]', '_array')}"
        made.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v {kind})")
        for number, value in enumerate([*values, None]):
            shown = "NULL" if value is None else f"'{value}'"
            made.execute(f"INSERT INTO {table} VALUES ({number}, {shown})")
        truth[table] = {
            "type": kind,
            "oid": made.query(f"SELECT '{kind}'::regtype::oid::int")[0][0],
            "typmod": -1,
            "canonical_sql": canonical,
            "rows": made.query(f"SELECT k, format('%s', v), {canonical} FROM {table} ORDER BY k"),
        }
        truth[table]["rows"][-1] = (len(values), None, None)  # format() makes NULL an empty string
    return truth


def make_streams(made: Database) -> dict[str, Any]:
    made.execute(*STREAMS)
    columns = ["k", "v", "w"]
    rows = made.query("SELECT k::text, v, w::text FROM s ORDER BY k")
    return {"s": {"columns": columns, "rows": rows}}


def peek(made: Database, options: dict[str, str]) -> list[dict[str, Any]]:
    asked = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    rows = made.query(
        f"{PINS}; SELECT lsn::text, xid::text::bigint, data"
        f" FROM pg_logical_slot_peek_binary_changes('made', NULL, NULL, {asked})"
    )
    return [
        {"lsn": parse_lsn(lsn), "xid": xid, "data": bytes(data).hex()} for lsn, xid, data in rows
    ]


def write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode("ascii"), mtime=0))


def main() -> None:
    """Write the captures with the binaries that the first argument names."""
    with installed(Path(sys.argv[1]), {"wal_level": "replica"}) as server:
        for scenario, make in (("types", make_types), ("streams", make_streams)):
            with database(server) as made:
                truth = make(made)
                write(HERE / f"{scenario}.pg19.truth.json.gz", json.dumps(truth))
                for name, asked in OPTIONS[scenario].items():
                    options = {**asked, "publication_names": "p"}
                    if "binary" in name:
                        options["binary"] = "on"
                    lines = [{"options": options}, *peek(made, options)]
                    text = "".join(json.dumps(line) + "\n" for line in lines)
                    write(HERE / f"{scenario}.pg19.{name}.jsonl.gz", text)


if __name__ == "__main__":
    main()
