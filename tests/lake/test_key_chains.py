"""Values that a row did not send come from the lives that it had under other keys."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.lake.change_columns import ChangeColumns
from pgwire_codec.lake.key_chains import resolve_chains
from pgwire_codec.lake.key_states import ARROW_PLACE

COLUMNS = ChangeColumns(("id", "one", "two"), (0,), {}, ("id",))
SCHEMA = pa.schema(
    [
        ("gone", pa.bool_()),
        ("is_last", pa.bool_()),
        ("far", pa.bool_()),
        ("written", pa.bool_()),
        ("arrived", ARROW_PLACE),
        ("left", ARROW_PLACE),
        ("unchanged", pa.list_(pa.string())),
        ("c0", pa.int32()),
        ("c1", pa.string()),
        ("c2", pa.string()),
        ("r0", pa.int32()),
    ]
)


def life(
    key: int,
    one: str | None,
    two: str | None,
    *,
    root: int | None = None,
    arrived: tuple[int, int] | None = None,
    left: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """A life of a key; "?" for a value that its changes do not send."""
    far = left is None
    values = dict(zip(("one", "two"), (one, two), strict=True))
    unchanged = [name for name, value in values.items() if value == "?"]
    places = [at and dict(zip(("lsn", "seq"), at, strict=True)) for at in (arrived, left)]
    sent = [None if value == "?" else value for value in values.values()]
    row = [not far, far, far, True, *places, unchanged or None, key, *sent, root]
    return dict(zip(SCHEMA.names, row, strict=True))


def followed(*lives: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Key, values ("?" where unknown) and root of the rows."""
    table = resolve_chains(pa.Table.from_pylist(list(lives), SCHEMA), COLUMNS)
    assert table.schema.names == ["gone", "unchanged", "c0", "c1", "c2", "r0"]
    assert not any(table.column("gone").to_pylist())
    return [
        (
            row["c0"],
            *(
                "?" if name in (row["unchanged"] or ()) else row[f"c{number}"]
                for number, name in enumerate(("one", "two"), start=1)
            ),
            row["r0"],
        )
        for row in table.to_pylist()
    ]


def test_a_value_is_the_last_that_was_told() -> None:
    chain = [
        life(1, "first", "first", root=1, left=(10, 3)),
        life(2, "second", "?", arrived=(10, 3), left=(10, 4)),
        life(3, "?", "?", arrived=(10, 4)),
    ]
    assert followed(*chain) == [(3, "second", "first", 1)]


def test_null_is_a_value() -> None:
    chain = [
        life(1, "first", "first", left=(5, 0)),
        life(2, None, "?", arrived=(5, 0), left=(6, 0)),
        life(3, "?", "third", arrived=(6, 0)),
    ]
    assert followed(*chain) == [(3, None, "third", None)]


def test_what_nobody_told_is_the_roots() -> None:
    chain = [life(1, "?", "x", root=1, left=(5, 0)), life(2, "?", "?", arrived=(5, 0))]
    assert followed(*chain) == [(2, "?", "x", 1)]


def test_rows_do_not_mix() -> None:
    """Chains of all lengths, in any order; places that differ in one of their parts only."""
    chance = Random(5)
    lives, expected = [], []
    for number in range(200):
        length = chance.randrange(1, 6)
        steps = range(10, 10 + length)
        # Of half of the chains only the LSN changes, of half only the number in the transaction.
        places = [(1000 + step, number) if number % 2 else (number, step) for step in steps]
        values = [f"{number}", chance.choice(["?", f"{number} too"])]
        lives.append(life(number, *values, root=number, left=places[0]))
        for before, after in itertools.pairwise(places):
            lives.append(life(number, "?", "?", arrived=before, left=after))
        lives.append(life(-number, "?", "?", arrived=places[-1]))
        expected.append((-number, *values, number))
    chance.shuffle(lives)
    assert sorted(followed(*lives), reverse=True) == sorted(expected, reverse=True)


def test_a_row_that_moves_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for each of its keys would be a loop over all changes."""
    count, rounds = 5000, []
    equal = np.array_equal
    monkeypatch.setattr(np, "array_equal", lambda *both: [rounds.append(1), equal(*both)][1])
    lives = [life(0, "first", "?", root=0, left=(0, 0))]
    for step in range(1, count):
        two = "half" if step == count // 2 else "?"
        lives.append(life(step, "?", two, arrived=(step - 1, 0), left=(step, 0)))
    assert followed(*lives, life(count, "?", "?", arrived=(count - 1, 0))) == [
        (count, "first", "half", 0)
    ]
    assert len(rounds) < 60


def test_none_at_all() -> None:
    assert followed() == []
    assert followed(life(1, "a", "b", left=(1, 1))) == []
