"""Generated messages are those of the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.encode import encode_rows
from pgwire_codec import reference
from tests.support.arrow_columns import example_table

TABLE, ROWS = example_table()
FIRST = ROWS.column_names[0]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"op": "U", "unchanged": {FIRST: np.arange(len(ROWS)) % 2 == 0}},
        {"op": "U", "old": ROWS, "xid": 7},
        {"op": "D"},
    ],
    ids=["insert", "unchanged", "old", "delete"],
)
@pytest.mark.parametrize("identity", ["d", "f"])
def test_messages(options: dict[str, Any], identity: str, binary: bool) -> None:
    columns = tuple(
        replace(column, flags=int(identity == "f" or column.name == FIRST))
        for column in TABLE.columns
    )
    table = replace(TABLE, replica_identity=identity, columns=columns)
    wanted = reference.encode_batch(table, ROWS, binary=binary, **options).to_pylist()
    assert encode_rows(table, ROWS, binary=binary, **options).to_pylist() == wanted
