"""Choices of what the gate tests of many combinations: the rest is marked thorough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest


def examples(few: int, many: int) -> pytest.MarkDecorator:
    """Parametrise a property test by `examples`: a few, and many as a thorough test."""
    thorough = pytest.param(many, marks=pytest.mark.thorough)
    return pytest.mark.parametrize("examples", [few, thorough])


def in_turn(
    values: Iterable[Any],
    choices: Sequence[tuple[Any, ...]],
    *,
    quick: Callable[[Any], bool] = lambda value: True,
    few: Sequence[tuple[Any, ...]] = (),
    marks: Sequence[pytest.MarkDecorator] = (),
) -> Iterator[Any]:
    """Yield each value with each choice, of which all but one in turn are marked thorough.

    That one is from `few`, if it is not empty. All are thorough for a value that is not `quick`.
    All have the other marks.
    """
    chosen = few or choices
    number = 0
    for value in values:
        is_quick = quick(value)
        for choice in choices:
            in_gate = is_quick and choice == chosen[number % len(chosen)]
            thorough = [] if in_gate else [pytest.mark.thorough]
            yield pytest.param(value, *choice, marks=[*marks, *thorough])
        number += is_quick
