"""Errors of encode_batch: column, row and expected value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import reference
from tests.support.build import T, column, relation
from tests.support.encoding import encoded

ROWS = {
    "id": pa.array([1, 2, None], pa.int32()),
    "v": pa.array(["a", None, ""]),
    "note": pa.array(["x", "y", "z"]),
}


@pytest.mark.differential
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
        assert f"column {first!r}, row {min(rows)}" in str(encoded(table, chunked))


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


@pytest.mark.parametrize(("name", "array", "wanted"), BAD_TYPES.values(), ids=BAD_TYPES)
def test_an_arrow_type_that_a_column_is_not_written_from(
    name: str, array: pa.Array, wanted: str
) -> None:
    with pytest.raises(pgc.EncodeError, match=f"column 'c' of type .*: wanted .*{wanted}"):
        reference.encode_batch(relation(1, column("c", name)), [array])


KEYLESS = relation(1, column("id", "int4"))
ID = {"id": pa.array([1, 2])}
CALLS: dict[str, tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = {
    "missing": (pgc.EncodeError, "'note' is missing", (T, pa.table(ROWS).drop(["note"])), {}),
    "missing from a mapping": (pgc.EncodeError, "'v' is missing", (T, ID), {}),
    "missing key": (pgc.EncodeError, "'id' is missing", (T, {"v": ROWS["v"]}), {"op": "D"}),
    "missing, no rows": (pgc.EncodeError, "missing", (T, pa.table({"id": pa.array([], "i4")})), {}),
    "unknown": (pgc.EncodeError, "'x' is not one of", (T, {**ROWS, "x": ROWS["id"]}), {}),
    "unknown in a table": (pgc.EncodeError, "'x' is not one", (KEYLESS, pa.table({"x": [1]})), {}),
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
        "'x' is not one",
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


@pytest.mark.parametrize(("error", "match", "arguments", "options"), CALLS.values(), ids=CALLS)
def test_what_is_refused(
    error: type[Exception],
    match: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    with pytest.raises(error, match=match):
        reference.encode_batch(*arguments, **options)
