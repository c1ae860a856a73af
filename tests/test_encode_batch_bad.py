"""What encode_batch refuses, alike in both implementations: column, row and what was wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from tests.encoding import Encode, each, same
from tests.support.arrow_columns import numeric
from tests.support.build import T, column, relation

ROWS = {
    "id": pa.array([1, 2, None], pa.int32()),
    "v": pa.array(["a", None, ""]),
    "note": pa.array(["x", "y", "z"]),
}


def one(name: str, values: Any, typmod: int = -1) -> tuple[pgc.Relation, dict[str, Any]]:
    """A table of a good column and one of a value or a type that its column does not have."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    table = relation(1, column("id", "int4"), column("c", name, typmod=typmod))
    return table, {"id": pa.array(range(len(array))), "c": array}


BAD_VALUES = {
    "int2": (one("int2", [1, 2**15]), "int2 from -32768 to 32767, not 32768"),
    "int4": (one("int4", [1, -(2**31) - 1]), "not -2147483649"),
    "int8": (one("int8", pa.array([1, 2**63], pa.uint64())), "not 9223372036854775808"),
    "oid": (one("oid", [1, -1]), "oid from 0 to 4294967295, not -1"),
    "pg_lsn": (one("pg_lsn", [1, -1]), "not -1"),
    "digits": (
        one("numeric", pa.array(["1.00", "1000.00"]).cast(pa.decimal128(9, 2)), numeric(5, 2)),
        "a numeric of 5 digits, 2 of them after the point, not 1000.00",
    ),
    "fraction": (
        one("numeric", pa.array(["1.00", "1.01"]).cast(pa.decimal128(9, 2)), numeric(5, 1)),
        "a numeric of 1 digits after the point, not 1.01",
    ),
    "date": (
        one("date", pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())),
        "a date from 4714",
    ),
    "timestamp": (
        one("timestamp", pa.array([0, -(2**62)]).cast(pa.timestamp("us"))),
        "4714-11-24 BC",
    ),
    "far timestamp": (one("timestamp", pa.array([0, 2**62]).cast(pa.timestamp("s"))), "294276"),
    "nanoseconds": (
        one("timestamptz", pa.array([0, 1]).cast(pa.timestamp("ns", "UTC"))),
        "whole microseconds, not 1 ns",
    ),
    "interval": (one("interval", [pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([0, 0, 1])]), "1 ns"),
    "text of a number": (one("int4", ["1", "1.5"]), "an int4 in decimal digits, not b'1.5'"),
    "text of a date": (one("date", ["2024-01-01", "1.2.2024"]), "a date as 2024-02-29"),
    "element": (one("int2[]", [[1], [1, 2**15]]), "int2 from"),
}


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize(("given_", "wanted"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_value_that_its_type_does_not_have(
    given_: tuple[pgc.Relation, Any], wanted: str, binary: bool
) -> None:
    message = same(*given_, binary=binary)
    assert isinstance(message, str)
    assert message.startswith("column 'c', row 1: wanted ")
    assert wanted in message


def test_the_first_bad_row_is_told_whichever_column_it_is_in() -> None:
    table = relation(1, column("a", "interval"), column("b", "int2"), column("c", "int2[]"))
    good, bad = pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([0, 0, 1])
    for rows in ((2, 1, 3), (3, 2, 1), (1, 2, 3), (2, 3, 3)):
        columns = pa.table(
            {
                "a": pa.array([bad if number == rows[0] else good for number in range(4)]),
                "b": pa.array([2**15 if number == rows[1] else 1 for number in range(4)]),
                "c": pa.array([[2**15 if number == rows[2] else 1] for number in range(4)]),
            }
        )
        chunked = pa.concat_tables([columns.slice(0, 1), columns.slice(1)])
        first = "abc"[rows.index(min(rows))]
        assert f"column {first!r}, row {min(rows)}" in str(same(table, chunked))


BAD_TYPES = {
    "float for int4": (
        "int4",
        pa.array([1.5]),
        "an integer, or string \\(the server's text\\), not Arrow g",
    ),
    "float64 for float4": ("float4", pa.array([1.5]), "float32, or string"),
    "no zone": ("timestamptz", pa.array([0]).cast(pa.timestamp("us")), "timestamp with time zone"),
    "a zone": ("timestamp", pa.array([0]).cast(pa.timestamp("us", "UTC")), "without time zone"),
    "binary for text": ("text", pa.array([b"a"]), "string \\(the server's text\\)"),
    "dictionary": ("text", pa.array(["a"]).dictionary_encode(), "not Arrow dictionary"),
    "struct": ("jsonb", pa.array([{"a": 1}]), "string"),
    "wrong element": ("int4[]", pa.array([["a", 1.5][1:]]), "a list of an integer"),
    "list of lists": ("int4[]", pa.array([[[1]]]), "a list of"),
    "15 bytes": ("uuid", pa.array([b"a" * 15], pa.binary(15)), "fixed_size_binary\\(16\\)"),
    "null type": ("int4", pa.nulls(1), "an integer"),
}


@each
@pytest.mark.parametrize(("name", "array", "wanted"), BAD_TYPES.values(), ids=BAD_TYPES)
def test_an_arrow_type_that_a_column_is_not_written_from(
    encode: Encode, name: str, array: pa.Array, wanted: str
) -> None:
    with pytest.raises(pgc.EncodeError, match=f"column 'c' of type .*: wanted .*{wanted}"):
        encode(relation(1, column("c", name)), [array])


KEYLESS = relation(1, column("id", "int4"))
ID = {"id": pa.array([1, 2])}
CALLS: dict[str, tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = {
    "missing": (pgc.EncodeError, "'note' is missing", (T, pa.table(ROWS).drop(["note"])), {}),
    "missing from a mapping": (pgc.EncodeError, "'v' is missing", (T, ID), {}),
    "missing key": (pgc.EncodeError, "'id' is missing", (T, {"v": ROWS["v"]}), {"op": "D"}),
    "missing, no rows": (pgc.EncodeError, "missing", (T, pa.table({"id": pa.array([], "i4")})), {}),
    "unknown": (pgc.EncodeError, "'x' is none of", (T, {**ROWS, "x": ROWS["id"]}), {}),
    "unknown in a table": (pgc.EncodeError, "'x' is none", (KEYLESS, pa.table({"x": [1]})), {}),
    "too few": (pgc.EncodeError, "1 columns given", (T, [ROWS["id"]]), {}),
    "lengths": (pgc.EncodeError, "'v' has 1 rows", (T, {**ROWS, "v": pa.array(["a"])}), {}),
    "twice": (
        pgc.EncodeError,
        "two columns of one name",
        (KEYLESS, pa.table([ID["id"], ID["id"]], names=["id", "id"])),
        {},
    ),
    "null rows": (
        pgc.EncodeError,
        "null as a whole",
        (KEYLESS, pa.array([{"id": 1}, None])),
        {},
    ),
    "no array": (
        pgc.EncodeError,
        "column 'id': an Arrow array is wanted, not list",
        (KEYLESS, [[1]]),
        {},
    ),
    "no key": (pgc.EncodeError, "no replica identity", (KEYLESS, ID), {"op": "D"}),
    "no key to old": (pgc.EncodeError, "identity", (KEYLESS, ID), {"op": "U", "old": ID}),
    "old of other length": (
        pgc.EncodeError,
        "old has 2 rows and columns 3",
        (T, ROWS),
        {"op": "U", "old": ID},
    ),
    "unchanged of what": (
        pgc.EncodeError,
        "'x' is none",
        (T, ROWS),
        {"op": "U", "unchanged": {"x": np.zeros(3, bool)}},
    ),
    "unchanged too short": (
        pgc.EncodeError,
        "must be 3 booleans",
        (T, ROWS),
        {"op": "U", "unchanged": {"v": np.zeros(2, bool)}},
    ),
    "unchanged numbers": (
        pgc.EncodeError,
        "must be 3 booleans",
        (T, ROWS),
        {"op": "U", "unchanged": {"v": [0, 1, 0]}},
    ),
    "xid": (pgc.EncodeError, "xid does not fit", (T, ROWS), {"xid": 2**32}),
    "op": (pgc.OptionError, "one of I, U, D", (T, ROWS), {"op": "T"}),
    "old of an insert": (pgc.OptionError, "goes with op='U'", (T, ROWS), {"old": ROWS}),
    "unchanged delete": (pgc.OptionError, "goes with", (T, ROWS), {"op": "D", "unchanged": {}}),
    "relation": (TypeError, "must be a Relation, not int", (1, ROWS), {}),
    "columns": (TypeError, "an Arrow table or record batch", (T, 1), {}),
    "a column for a table": (TypeError, "columns must be a table", (T, ROWS["id"]), {}),
}


@each
@pytest.mark.parametrize(("error", "match", "arguments", "options"), CALLS.values(), ids=CALLS)
def test_what_is_refused(
    encode: Encode,
    error: type[Exception],
    match: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    with pytest.raises(error, match=match):
        encode(*arguments, **options)
