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


@pytest.mark.parametrize("unused", METADATA_COLUMNS[1:])
def test_a_metadata_column_that_is_not_in_use(unused: str) -> None:
    """A column of that name is the table's."""
    for table in (
        ["id", unused],
        [unused, f"_{unused}"],
        [f"_{unused}"],
        ["op", *METADATA_COLUMNS],
    ):
        names = {name: free_name(name, table) for name in METADATA_COLUMNS if name != unused}
        assert metadata_names([*table, *names.values()]) == names
        # Nor do names depend on the table's columns that are present.
        assert metadata_names(list(names.values())) == names


def test_metadata_columns_may_be_missing() -> None:
    assert metadata_names(["id", "_op", "_seq"]) == {"_op": "_op", "_seq": "_seq"}
    assert metadata_names([]) == {}
