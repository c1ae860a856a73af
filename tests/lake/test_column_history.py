"""Columns of a table across its versions, and the steps by which a target follows; no session."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pgwire_codec.errors import TableError
from pgwire_codec.lake.evolution import ColumnHistory, evolution_steps
from pgwire_codec.lake.row_types import sql_name
from tests.support import build

INT, TEXT = pa.int32(), pa.string()


def version(names: str, **kinds: str) -> Any:
    columns = [build.column(name, kinds.get(name, "text")) for name in names.split()]
    return build.relation(1, *columns)


def history(*names: str, renames: bool = True) -> ColumnHistory:
    return ColumnHistory.from_versions([version(each) for each in names], renames=renames)


def test_a_rename_needs_a_later_column_that_keeps_its_name_and_place() -> None:
    assert history("id x k", "id y k") == ColumnHistory({"x": "y"}, frozenset(), ())
    assert history("id x k", "id y k n") == ColumnHistory({"x": "y"}, frozenset({"n"}), ())
    assert history("x k", "y k") == ColumnHistory({"x": "y"}, frozenset(), ())
    assert history("id a b k", "id c d k") == ColumnHistory({"a": "c", "b": "d"}, frozenset(), ())
    assert history("id x", "id y") == ColumnHistory({}, frozenset({"y"}), ("x",))
    assert history("id x k", "id k y") == ColumnHistory({}, frozenset({"y"}), ("x",))
    assert history("id x y k", "id k p q") == ColumnHistory({}, frozenset("pq"), ("x", "y"))


def test_another_type_is_another_column() -> None:
    versions = [version("id x k"), version("id y k", y="int4")]
    found = ColumnHistory.from_versions(versions, renames=True)
    assert found == ColumnHistory({}, frozenset({"y"}), ("x",))


def test_no_rename_is_certain_with_lists_of_columns() -> None:
    """The same Relations are those of a list with y in place of x."""
    expected = ColumnHistory({}, frozenset({"y"}), ("x",))
    assert history("id x k", "id y k", renames=False) == expected
    assert history("id x", "id y", renames=False) == expected
    assert history("id x k", "id y k", "id x k", renames=False) == ColumnHistory(
        {}, frozenset({"x"}), ("x",)
    )


@pytest.mark.parametrize("renames", [True, False])
def test_a_column_that_comes_last_is_a_new_one(renames: bool) -> None:
    """Dropped, and created again, before another change was sent."""
    found = history("id x k", "id k x", renames=renames)
    assert found == ColumnHistory({}, frozenset({"x"}), ("x",))
    found = history("id x k", "id k n x", renames=renames)
    assert found == ColumnHistory({}, frozenset({"x", "n"}), ("x",))


def test_versions_are_compared_one_after_the_other() -> None:
    assert history("id x k", "id y k", "id z k") == ColumnHistory({"x": "z"}, frozenset(), ())
    assert history("id x k", "id y k", "id x k") == ColumnHistory({}, frozenset(), ())
    assert history("id x", "id", "id x") == ColumnHistory({}, frozenset({"x"}), ("x",))
    assert history("id x k", "id k", "id k x", "id k z x") == ColumnHistory(
        {}, frozenset({"x", "z"}), ("x",)
    )
    assert history("id x", "id x") == history("id x") == ColumnHistory({}, frozenset(), ())


@pytest.mark.parametrize(
    "versions",
    [
        ("id a b k", "id b a k"),
        ("id a b k", "id b c k"),
        ("id a b k", "id t b k", "id t a k", "id b a k"),
        ("id a k", "id b k", "id b k a"),
    ],
)
def test_a_name_that_another_column_gets(versions: tuple[str, ...]) -> None:
    with pytest.raises(TableError, match="the names of other columns changed with it"):
        history(*versions)
    if len(versions) == 2:
        with pytest.raises(TableError, match="the names of other columns changed with it"):
            history(*versions, renames=False)
    else:  # one after the other, no name goes to another column that may have its values
        assert not {"a"} - history(*versions, renames=False).new


def steps(found: ColumnHistory, held: dict[str, Any], wanted: dict[str, Any], *policy: Any) -> Any:
    return list(map(str, evolution_steps(found, held, wanted, *policy)))


def test_steps() -> None:
    found = history("id x k", "id y k n")
    held = {"id": INT, "x": TEXT, "k": TEXT}
    wanted = {"id": pa.int64(), "y": TEXT, "k": TEXT, "n": INT}
    expected = ["rename column x to y", "widen column id to bigint", "add column n int"]
    assert sorted(steps(found, held, wanted)) == sorted(expected)
    assert steps(found, held, {"id": INT, "y": TEXT, "k": TEXT}, "freeze") == []
    with pytest.raises(TableError, match="the table's columns changed: rename column x to y, "):
        steps(found, held, wanted, "fail")


def test_steps_that_were_done_before() -> None:
    """After a failure between two steps, or before the rows were merged."""
    found = history("id x k", "id y k n")
    wanted = {"id": INT, "y": TEXT, "k": TEXT, "n": INT}
    done = {"id": INT, "k": TEXT, "y": TEXT}
    assert steps(found, done, wanted) == ["add column n int"]
    assert steps(found, done | {"n": INT}, wanted) == ["clear column n"]
    again = history("id x", "id", "id x")
    assert steps(again, {"id": INT, "x": TEXT}, {"id": INT, "x": TEXT}) == ["clear column x"]


def test_a_dropped_column_stays() -> None:
    found = history("id x", "id")
    assert steps(found, {"id": INT, "x": TEXT}, {"id": INT}) == []
    with pytest.raises(TableError, match="the table's columns changed: drop column x"):
        steps(found, {"id": INT, "x": TEXT}, {"id": INT}, "fail")
    with pytest.raises(TableError, match="still has the column y that was dropped"):
        steps(
            history("id x k", "id y k"),
            {"id": INT, "x": TEXT, "k": TEXT, "y": TEXT},
            {"id": INT, "y": TEXT, "k": TEXT},
        )


@pytest.mark.parametrize(
    ("held", "wanted", "wider"),
    [
        (pa.int16(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int16(), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(12, 2), pa.decimal128(10, 4), pa.decimal128(14, 4)),
        (pa.decimal128(14, 4), pa.decimal128(10, 2), None),
        (TEXT, INT, None),
        (TEXT, pa.date32(), None),
        (pa.list_(pa.int64()), pa.list_(INT), None),
    ],
)
def test_widening(held: Any, wanted: Any, wider: Any) -> None:
    expected = [] if wider is None else [f"widen column v to {sql_name(wider)}"]
    assert steps(history("v"), {"v": held}, {"v": wanted}) == expected


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (INT, TEXT),
        (INT, pa.float64()),
        (TEXT, pa.bool_()),
        (TEXT, pa.float64()),
        (pa.decimal128(38, 0), pa.decimal128(10, 2)),
        (pa.list_(INT), INT),
    ],
)
@pytest.mark.parametrize("policy", ["evolve", "freeze", "fail"])
def test_types_that_no_type_holds(held: Any, wanted: Any, policy: str) -> None:
    with pytest.raises(TableError, match=r"column v of the target is .* which does not hold"):
        steps(history("v"), {"v": held}, {"v": wanted}, policy)


def test_freeze_does_not_widen() -> None:
    with pytest.raises(TableError, match="v of the target is int, which does not hold bigint"):
        steps(history("v"), {"v": INT}, {"v": pa.int64()}, "freeze")
