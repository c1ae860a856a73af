"""Names of the metadata columns beside a table's own columns."""

from __future__ import annotations

import pytest

from pgwire_codec.changes.metadata import METADATA_COLUMNS, free_name, metadata_names


@pytest.mark.parametrize(
    ("table", "op"),
    [
        (["id"], "_op"),
        (["_op"], "__op"),
        (["__op"], "_op"),
        (["__op", "_op"], "___op"),
        (["_op", "___op"], "__op"),
        (["op", "_opp", "__seq"], "_op"),
    ],
)
def test_names_are_found_again_beside_similar_columns(table: list[str], op: str) -> None:
    names = {name: free_name(name, table) for name in METADATA_COLUMNS}
    assert names["_op"] == op
    assert metadata_names([*table, *names.values()]) == names


def test_metadata_columns_may_be_missing() -> None:
    assert metadata_names(["id", "_op", "_seq"]) == {"_op": "_op", "_seq": "_seq"}
    assert metadata_names([]) == {}
