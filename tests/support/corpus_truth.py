"""Tables of a capture, compared with what the server had at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.support.corpus import Capture, truth

Row = dict[str, Any]

#: DDL is not in the stream: a row that was written before an ALTER TABLE lacks what it added or
#: renamed until the row is sent again. These columns may be missing from rows, and no others.
ALTERED: Final[dict[str, set[str]]] = {
    "evolved": {"bee", "c"},
    "u": {"x1", "x2"},
    "log": {"extra", "extra2"},
    "gen": {"twice"},  # generated: not published before 18
}


def truth_differences(capture: Capture, tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield what rows of texts do not have in common with the server's.

    ``tables`` have the names that the truth gives them. One that is left out has no rows.
    """
    for name, expected in truth(capture).items():
        rows = truth_rows(expected)
        found = tables.get(name, ())
        if len(found) != len(rows):
            yield f"{name} has {len(found)} rows, the server {len(rows)}"
            continue
        unmatched = list(rows)
        for row in found:
            if missing := set(rows[0]) - set(row) - ALTERED.get(name, set()):
                yield f"{name}: a row lacks {', '.join(sorted(missing))}"
            match = next((i for i, want in enumerate(unmatched) if _agree(row, want)), None)
            if match is None:
                yield f"{name}: the server has no row {row}"
            else:
                unmatched.pop(match)


def truth_rows(expected: Mapping[str, Any]) -> list[Row]:
    if "columns" in expected:
        return [dict(zip(expected["columns"], row, strict=True)) for row in expected["rows"]]
    return [{"k": str(row[0]), "v": row[1]} for row in expected["rows"]]


def _agree(row: Row, want: Row) -> bool:
    return all(row[name] == value for name, value in want.items() if name in row)
