"""Binary forms rendered as text, and the table of types, against a live server's own."""

from __future__ import annotations

import importlib.util
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from pgwire_codec.arrow.values import to_pylist
from pgwire_codec.types import builtin as _pg_type
from tests.families.golden import GOLDEN
from tests.support.implementations import Implementation
from tests.support.servers import TemporaryServer
from tests.support.values import decode, type_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    settings = {
        "timezone": "UTC",
        "datestyle": "ISO",
        "intervalstyle": "postgres",
        "extra_float_digits": "3",
        "bytea_output": "hex",
    }
    with TemporaryServer(18, settings) as server:
        opened = psycopg2.connect(server.dsn)
        opened.autocommit = True
        yield opened
        opened.close()


def load_tool() -> Any:
    path = Path(__file__).parents[2] / "tools" / "update_types.py"
    spec = importlib.util.spec_from_file_location("update_types", path)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_table_of_types_has_all_of_the_server(connection: Any) -> None:
    """tests/capture/test_postgresql_19.py compares it with a server of the newest major."""
    rows = load_tool().read_types(connection)
    assert [row for row in _pg_type.BUILTIN if row in rows] == rows
    assert {row[1] for row in _pg_type.BUILTIN if row not in rows} == {"oid8", "regdatabase"}


def check(
    codec: Implementation, connection: Any, kind: str, send: str, literals: list[str]
) -> None:
    """Compare every literal's rendering with the server's output, and read its text typed."""
    with connection.cursor() as cursor:
        cursor.execute(
            # format() asks the output function; a cast to text is another for bool and inet.
            f"select format('%%s', v::{kind}), {send}(v::{kind})"
            " from unnest(%s::text[]) with ordinality as t(v, k) order by k",
            (literals,),
        )
        rows = cursor.fetchall()
    texts = [text for text, _ in rows]
    binary = [bytes(sent) for _, sent in rows]
    name = f"_{kind[:-2]}" if kind.endswith("[]") else kind.strip('"')
    rendered = to_pylist(decode(codec, name, binary, binary=True, types="text").array)
    wrong = [pair for pair in zip(texts, rendered, strict=True) if pair[0] != pair[1]]
    assert not wrong, f"{kind}: {len(wrong)} of {len(texts)}, as {wrong[:5]}"
    wire = [text.encode() for text in texts]
    native = type_of(name)
    by_text = decode(codec, native, wire, unrepresentable="clamp")
    by_binary = decode(codec, native, binary, binary=True, unrepresentable="clamp")
    assert repr(to_pylist(by_text.array)) == repr(to_pylist(by_binary.array))
    assert by_text.invalid.tolist() == by_binary.invalid.tolist()


def test_float8(codec: Implementation, connection: Any) -> None:
    chosen = random.Random(1)
    bits = [chosen.getrandbits(64) for _ in range(2000)]
    # Powers of two have neighbours at two distances; powers of ten are where layouts change.
    numbers = [struct.unpack(">d", value.to_bytes(8, "big"))[0] for value in bits]
    numbers += [2.0**e for e in range(-1074, 1024)] + [10.0**e for e in range(-20, 24)]
    numbers += [float(2**53 - n) for n in range(9)] + [123456789012345.6, 0.0001, 0.00001234]
    numbers += [5e-324, 1.7976931348623157e308, -0.0]
    # Their shortest digits are the middle between two floats, which the server does not write.
    numbers += [float(2**54 + 8), float(2**55 + 24), float(2**56 + 16)]
    check(codec, connection, "float8", "float8send", [repr(n) for n in numbers])


def test_float4(codec: Implementation, connection: Any) -> None:
    chosen = random.Random(2)
    bits = [chosen.getrandbits(32) for _ in range(2000)]
    bits += [exponent << 23 for exponent in range(255)] + [1, 2, 0x7F7FFFFF, 0x007FFFFF]
    literals = [repr(struct.unpack(">f", value.to_bytes(4, "big"))[0]) for value in bits]
    check(codec, connection, "float4", "float4send", literals)


def test_numeric(codec: Implementation, connection: Any) -> None:
    chosen = random.Random(3)
    literals = ["0", "0.000", "NaN", "Infinity", "-Infinity", "1e400", "1e-400", "-0.00010"]
    literals += ["9" * 131072, "1e131071", f"0.{'0' * 16382}1", "10000", "9999.9999", "0.00009999"]
    for _ in range(500):
        digits = "".join(chosen.choices("0000123456789", k=chosen.randrange(1, 60)))
        at = chosen.randrange(len(digits) + 1)
        literals.append(f"{chosen.choice(['', '-'])}{digits[:at] or 0}.{digits[at:]}0")
    check(codec, connection, "numeric", "numeric_send", literals)


def test_dates_and_times(codec: Implementation, connection: Any) -> None:
    chosen = random.Random(4)
    dates = ["4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "5874897-12-31", "infinity"]
    stamps = ["4714-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999", "-infinity"]
    for _ in range(500):
        era = chosen.choice(["", " BC"])
        year = chosen.choice([chosen.randrange(1, 4713), chosen.randrange(1900, 2100)])
        day = f"{year:04d}-{chosen.randrange(1, 13):02d}-{chosen.randrange(1, 29):02d}"
        clock = f"{chosen.randrange(24):02d}:{chosen.randrange(60):02d}:{chosen.randrange(60):02d}"
        clock += chosen.choice(["", f".{chosen.randrange(10**6):06d}", ".5"])
        dates.append(day + era)
        stamps.append(f"{day} {clock}{era}")
    check(codec, connection, "date", "date_send", dates)
    check(codec, connection, "timestamp", "timestamp_send", stamps)
    check(codec, connection, "timestamptz", "timestamptz_send", stamps)
    times = [stamp.split()[1] for stamp in stamps[3:]] + ["24:00:00"]
    check(codec, connection, "time", "time_send", times)
    zones = ["+00", "-15:59:59", "+15:59", "+05:30", "-00:00:01", "+12:34:56"]
    check(
        codec, connection, "timetz", "timetz_send", [t + zones[i % 6] for i, t in enumerate(times)]
    )


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York", "Africa/Monrovia", "UTC-15"])
def test_timestamptz_in_other_zones(codec: Implementation, connection: Any, zone: str) -> None:
    chosen = random.Random(zone)
    stamps = [
        f"{chosen.randrange(1, 4000):04d}-03-14 01:59:26.5+00{era}"
        for era in ("", " BC")
        for _ in range(50)
    ]
    with connection.cursor() as cursor:
        cursor.execute("set timezone = %s", (zone,))
        cursor.execute("select v::timestamptz::text from unnest(%s) v", (stamps,))
        elsewhere = [row[0].encode() for row in cursor.fetchall()]
        cursor.execute("set timezone = 'UTC'")
    assert elsewhere != [stamp.encode() for stamp in stamps]
    got = decode(codec, "timestamptz", elsewhere).array
    assert to_pylist(got) == to_pylist(
        decode(codec, "timestamptz", [s.encode() for s in stamps]).array
    )


def test_interval(codec: Implementation, connection: Any) -> None:
    chosen = random.Random(5)
    literals = [
        "infinity",
        "-infinity",
        "0",
        "1 year",
        "-1 day",
        "1 mon -1 day",
        "-178956970 years",
    ]
    literals += ["-1 mon +1 day", "2562047788:00:54.775807", "-2562047788:00:54.775807"]
    literals += ["2147483647 days", "-2147483648 days", "-1 mon +00:00:01", "-1 day +00:00:00.1"]
    for _ in range(500):
        parts = [
            f"{chosen.randrange(-3000, 3000)} {unit}"
            for unit in ("year", "mon", "day", "hour", "minute", "second", "microsecond")
            if chosen.random() < 0.4
        ]
        literals.append(" ".join(parts) or "0")
    check(codec, connection, "interval", "interval_send", literals)


def test_interval_as_a_duration(codec: Implementation, connection: Any) -> None:
    """It is the server's extract(epoch from …)."""
    chosen = random.Random(6)
    literals = ["-23 mons", "99999 years 11 mons", "-100000 years -1 mon", "36525001 days"]
    literals += ["555555554:00:00", "-555555556:00:00", "-178956 years +2147483 days"]
    literals += [
        " ".join(f"{chosen.randrange(-limit, limit)} {unit}" for unit, limit in limits.items())
        for limits in [{"mon": 3_000_000, "day": 10_000_000, "microsecond": 10**17}]
        for _ in range(500)
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            "select format('%%s', v::interval), interval_send(v::interval),"
            " (extract(epoch from v::interval) * 1000000)::int8 from unnest(%s::text[]) v",
            (literals,),
        )
        rows = cursor.fetchall()
    for binary in (False, True):
        values = [bytes(row[1]) if binary else row[0].encode() for row in rows]
        array = decode(codec, "interval", values, binary=binary, intervals="microseconds").array
        assert array.buffers[0].tolist() == [row[2] for row in rows]


OTHERS = {
    "inet": [
        "127.0.0.1",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "::1",
        "::",
        "::2",
        "::1.2.3.4",
        "::ffff:1.2.3.4/100",
        "2001:db8::/32",
        "1:0:0:2:0:0:0:3",
        "1:0:2:0:3:0:4:0",
        "0:0:1::1",
        "::1:2",
        "::ffff",
        "1::/16",
        "64:ff9b::1.2.3.4",
        "1:2:3:4:5:6:7:8",
        "1:0:0:2:3:0:0:4",
        "fe80::1/64",
    ],
    "cidr": ["10.0.0.0/8", "2001:db8::/32", "1.2.3.4/32", "::1/128", "::/0"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit": ["1"],
    "varbit": ["", "1", "0101010", "10101010", "101010101"],
    "bool": ["t", "f"],
    "int2": ["-32768", "7"],
    "oid": ["4294967295"],
    "xid8": ["18446744073709551615"],
    "pg_lsn": ["0/0", "FFFFFFFF/FFFFFFFF", "16/B374D848"],
    "tid": ["(0,1)", "(4294967295,65535)"],
    "int2vector": ["", "1 2 -3"],
    "oidvector": ["", "1 4294967295"],
    "pg_snapshot": ["10:20:10,14,15", "5:5:"],
    "point": ["(1,2)", "(-0,1e300)", "(NaN,Infinity)", "(1e15,0.1)"],
    "line": ["{1,-1,0.5}"],
    "lseg": ["[(1,2),(3,4)]"],
    "box": ["(1,2),(3,4)", "(0,0),(-1,-1)"],
    "path": ["[(1,2),(3,4)]", "((1,2),(3,4))", "((1,1))"],
    "polygon": ["((1,2),(3,4),(5,6))"],
    "circle": ["<(1,2),3>"],
    "jsonb": ['{"b": 1, "a": [true, null, "\\u00e9"]}', "1.50", "null"],
    "jsonpath": ["$.a[*] ? (@ > 2)", "strict $"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "bytea": ["\\x", "\\x00ff5c"],
    "tsvector": ["", "a:1A,2B,3C,4 b''c:16383 'd\\\\ e'", "a b c"],
    "tsquery": [
        "",
        "a",
        "a:*AB & b",
        "!(a | b:D) & !c",
        "a <-> (b | c)",
        "(a <-> b) <5> (c <-> d)",
        "a <-> (b <-> c)",
        "(a & b) | (c & !!d)",
        "!(a <-> b)",
        "'x''y\\\\z' & q",
    ],
    "int4range": ["empty", "[1,5)", "(,5)", "[7,)", "(,)"],
    "numrange": ["[1.50,2]", "(-Infinity,NaN]", "[,2.0]"],
    "tsrange": ['["2024-01-01","2024-02-01 12:00")', "[,infinity]"],
    "tstzrange": ['["2024-01-01","2024-02-01 12:00")'],
    "daterange": ["[2024-01-01,2024-02-01)"],
    "int8multirange": ["{}", "{[1,5),[7,9)}"],
    "tsmultirange": ['{["2024-01-01","2024-02-01 12:00"),["2025-01-01",)}'],
    "int4[]": [
        "{}",
        "{1,NULL,-3}",
        "[5:6]={10,20}",
        "{{1,2},{3,4}}",
        "[0:1][-1:0]={{1,2},{3,4}}",
        "{{{{{{1}}}}}}",
    ],
    "text[]": ['{a,"",NULL,"NULL","null",nul,"q\\"q","b\\\\s","c,","{b}"," sp ","t\tb","\x01"}'],
    "box[]": ["{(1,2),(3,4);(5,6),(7,8)}"],
    "numeric[]": ["{1.50,NaN,NULL}"],
    "date[]": ["{2024-02-29,infinity,0044-03-15 BC}"],
    "interval[]": ['{"1 day","2 mons 03:00:00"}'],
    "timestamptz[]": ['{"2024-02-29 12:00:00+00",NULL}'],
    "int4range[]": ['{"[1,2)",empty,"(,)"}'],
    "bytea[]": ['{"\\\\x00ff",NULL}'],
    "tsvector[]": ["{\"'a':1 'b'\"}"],
    "name": ["pg_class"],
    "json": ['{"a": 1}'],
    "int4": ["-2147483648", "7"],
    "int8": ["-9223372036854775808", "7"],
    "xid": ["4294967295"],
    "cid": ["4294967295"],
    "text": ["", "a é"],
    "varchar": ["", "a é"],
    "bpchar": ["a  "],
    "txid_snapshot": ["10:20:10,14,15"],
    "int8range": ["[1,5)"],
    "int4multirange": ["{[1,5),[7,9)}"],
    "nummultirange": ["{[1.50,2],(3,)}"],
    "tstzmultirange": ['{["2024-01-01","2024-02-01 12:00")}'],
    "datemultirange": ["{[2024-01-01,2024-02-01)}"],
}
#: These have tests of their own, below and above.
ELSEWHERE = {
    *("float4", "float8", "numeric", "date", "timestamp", "timestamptz", "time", "timetz"),
    *("interval", "char", "refcursor", "pg_node_tree"),
}
#: Those whose text is not in their bytes: see reference/families. XML needs a server with libxml.
NOT_IN_BYTES = {
    *("money", "xml", "regclass", "regcollation", "regconfig", "regdictionary", "regnamespace"),
    *("regoper", "regoperator", "regproc", "regprocedure", "regrole", "regtype"),
}
#: Their send functions write the server's memory: these stay bytes, as unknown types do.
MEMORY = {
    *("pg_ndistinct", "pg_dependencies", "pg_mcv_list"),
    *("pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_types(codec: Implementation, connection: Any, kind: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select typsend::text from pg_type where oid = %s::regtype", (kind,))
        ((send,),) = cursor.fetchall()
    check(codec, connection, kind, send, OTHERS[kind])


def test_golden_values_are_what_the_server_sends(connection: Any) -> None:
    wrong = []
    with connection.cursor() as cursor:
        for name, text, sent in GOLDEN:
            kind = '"char"' if name == "char" else name
            cursor.execute("select typsend::text from pg_type where oid = %s::regtype", (kind,))
            ((send,),) = cursor.fetchall()
            query = f"select format('%%s', v), {send}(v) from (select %s::{kind} as v) t"
            cursor.execute(query, (text,))
            ((shown, binary),) = cursor.fetchall()
            if (shown, bytes(binary).hex()) != (text, sent):
                wrong.append((name, text, shown, bytes(binary).hex()))
    assert not wrong


def test_char(codec: Implementation, connection: Any) -> None:
    check(codec, connection, '"char"', "charsend", ["", "a", "\\001", "\\377", "\\\\"])


def test_refcursor(codec: Implementation, connection: Any) -> None:
    """Its send function is that of another type, which SQL lets nobody call with it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "create or replace function pg_temp.send(refcursor) returns bytea"
            " language internal as 'textsend'"
        )
    check(codec, connection, "refcursor", "pg_temp.send", ["", "a é"])


def test_pg_node_tree(codec: Implementation, connection: Any) -> None:
    """No literal makes one; the catalog has some."""
    with connection.cursor() as cursor:
        cursor.execute("create table defaults (a int default 7, b text default 'é' || now())")
        cursor.execute("select adbin::text, pg_node_tree_send(adbin) from pg_attrdef")
        texts, sent = zip(*cursor.fetchall(), strict=True)
        cursor.execute("drop table defaults")
    binary = [bytes(each) for each in sent]
    assert to_pylist(decode(codec, "pg_node_tree", binary, binary=True).array) == list(texts)
    assert len(texts) == 2


def test_no_type_with_a_binary_form_is_left_out(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace"
            " and typsend <> 0 and typtype <> 'p' and typrelid = 0 and typcategory <> 'A'"
            " union select unnest(array['int2vector', 'oidvector'])"
        )
        names = {name for (name,) in cursor.fetchall()}
    compared = {name for name in OTHERS if not name.endswith("[]")} | ELSEWHERE
    assert names == compared | NOT_IN_BYTES | MEMORY
    assert not (compared | NOT_IN_BYTES) & MEMORY
