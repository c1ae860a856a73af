"""Bounds of the columns of Delta tables: only those that contain all values of their files.

A commit has the lowest and the highest value of a file's columns, and so has the file for each row
group. Readers and merges skip what cannot have a value by these bounds. A bound that does not
contain its values hides rows without an error. By type:

- Integers are JSON integers, which are exact.
- Strings are compared by their UTF-8 bytes. A long lowest value is cut, and a long highest value is
  cut and increased.
- Decimals are wrong: delta-rs writes doubles, or an int64 for scale 0 (delta-rs#3905).
- Floating-point bounds, in commits and in files, lack NaN, which PostgreSQL and most readers order
  after all other values. Infinity is null in JSON.
- Dates and timestamps before the year 1 or after 9999 have texts that readers do not parse. For
  dates after the year 262142, delta-rs fails.
- Booleans have no bounds if Spark writes them. PyArrow takes a missing bound for one that no value
  matches.

So tables have bounds of integers and strings only, by ``delta.dataSkippingStatsColumns``. Writers
follow this property, and most readers do. A column that is added later has no bounds: older files
lack them, and PyArrow would not find the column's nulls there.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pgwire_codec.spark.sinks.sql import quoted

LOGGER: Final = logging.getLogger("pgwire_codec.spark.delta")

#: Property of a Delta table: columns of which it has bounds and counts of nulls.
COLUMNS: Final = "delta.dataSkippingStatsColumns"

#: Property of a Delta table: number of columns of which it has bounds if it does not list them.
_NUMBER: Final = "delta.dataSkippingNumIndexedCols"

#: Property of a Delta table whose files cannot be written again.
_APPEND_ONLY: Final = "delta.appendOnly"

#: Property of a table whose files may have other bounds.
_FILES: Final = "pgwire_codec.bounds"
_UNKNOWN: Final = "unknown"
_CERTAIN: Final = "certain"

#: Types, by their names in Delta, whose bounds contain their values.
_BOUNDED: Final = frozenset({"byte", "short", "integer", "long", "string"})

#: Types that never have bounds.
_UNBOUNDED: Final = frozenset({"binary", "array", "map"})

_BOOLEAN: Final = "boolean"

#: Columns that have bounds by default. A commit has them for each of its files.
_MOST: Final = 32

#: A part of a column's path in the property, and what follows it.
_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.,]*?))\s*([.,]|$)")

_Path: TypeAlias = tuple[str, ...]


def bounds_property(schema: str, partition_by: Sequence[str] = ()) -> dict[str, str]:
    """Return the property of a new table, by its schema in JSON; empty if it does not need it."""
    if not _uncertain_columns(schema):
        return {}
    return _property((name,) for name in _bounded_columns(schema, partition_by)[:_MOST])


def floating_columns(schema: str) -> list[str]:
    """Return the floating-point columns, of which files are to have no bounds either."""
    return [field["name"] for field in _fields(schema) if field["type"] in ("float", "double")]


def are_bounded(schema: str, names: Sequence[str]) -> bool:
    """Return whether columns of a table are of types whose bounds contain their values."""
    return set(names) <= set(_bounded_columns(schema, ()))


@dataclass(frozen=True, slots=True)
class TableBounds:
    """Bounds of a table that exists.

    Attributes
    ----------
    name : str
        Its name for messages.
    schema : str
        Its columns, as the Delta protocol writes them in JSON.
    configuration : mapping of str to str
        Its properties.
    partition_by : sequence of str
        Columns of its partitions.
    set_properties : callable
        Sets those of some properties that it does not have.
    """

    name: str
    schema: str
    configuration: Mapping[str, str | None]
    partition_by: Sequence[str]
    set_properties: Callable[[Mapping[str, str]], object]

    @property
    def are_certain(self) -> bool:
        """True if the table lists only columns whose bounds contain their values."""
        uncertain = [_lower(path) for path in _uncertain_columns(self.schema)]
        listed = self._listed
        if listed is None:
            return not uncertain or self.configuration.get(_NUMBER) == "0"
        # delta-rs takes a name for that of a nested column, too.
        return not any(
            column[: len(path)] == path or column[-1] == ".".join(path)
            for path in map(_lower, listed)
            for column in uncertain
        )

    def ensure(self, rewrite: Callable[[str], object]) -> None:
        """Have the table, and all its files, bounds that contain their values.

        ``rewrite`` writes the rows again, in one commit, by an update of a column. If it is
        interrupted, the next call does it.
        """
        if self.are_certain and self.configuration.get(_FILES) != _UNKNOWN:
            return
        listed = bounds_property(self.schema, self.partition_by)
        if not _uncertain_columns(self.schema, but={_BOOLEAN}):
            self.set_properties(listed)
            return
        if self.configuration.get(_APPEND_ONLY) == "true":
            LOGGER.warning(
                "%s can only be appended to: its existing files keep bounds that may not contain "
                "their values, which most readers do not use",
                self.name,
            )
            self.set_properties(listed)
            return
        LOGGER.warning(
            "%s has bounds that may not contain their values (of numeric, floating-point, date or "
            "timestamp columns): its files are written again without them",
            self.name,
        )
        self.set_properties({**listed, _FILES: _UNKNOWN})
        names = [field["name"] for field in _fields(self.schema)]
        rewrite(next(name for name in names if name not in self.partition_by))
        self.set_properties({_FILES: _CERTAIN})

    def restrict(self, after: str, renamed: Mapping[str, str]) -> None:
        """Have the table no bounds of columns that are added, or get another type.

        ``after`` is the schema after that, and ``renamed`` has new names by old ones.
        """
        listed = self._listed
        existing = {renamed.get(field["name"], field["name"]) for field in _fields(self.schema)}
        is_added = any(field["name"] not in existing for field in _fields(after))
        if listed is None and not is_added and not _uncertain_columns(after):
            return
        bounded = _bounded_columns(after, self.partition_by)
        names = _bounded_columns(self.schema, self.partition_by)[:_MOST]
        paths = [(name,) for name in names] if listed is None else listed
        remaining = [
            path for path in paths if len(path) > 1 or renamed.get(path[0], path[0]) in bounded
        ]
        if remaining != listed:
            self.set_properties(_property(remaining))

    @contextmanager
    def replacing(self, after: str) -> Iterator[None]:
        """Have the table bounds that contain their values while its rows and columns are replaced.

        Meanwhile, it lists only columns of both schemas: Delta's Spark refuses others.
        """
        if (
            self._listed is None
            and not _uncertain_columns(self.schema)
            and not _uncertain_columns(after)
        ):
            yield
            return
        bounded = _bounded_columns(after, self.partition_by)[:_MOST]
        before = _bounded_columns(self.schema, self.partition_by)
        self.set_properties(_property((name,) for name in bounded if name in before))
        yield
        self.set_properties(_property((name,) for name in bounded))

    @property
    def _listed(self) -> list[_Path] | None:
        """Paths of the columns that the table lists; None if it lists none."""
        listed = self.configuration.get(COLUMNS)
        return None if listed is None else list(_parse(listed))


def _property(paths: Iterable[_Path]) -> dict[str, str]:
    return {COLUMNS: ",".join(".".join(map(quoted, path)) for path in paths)}


def _parse(listed: str) -> Iterator[_Path]:
    path: list[str] = []
    for match in _PART.finditer(listed):
        inside, plain, end = match.groups()
        path.append(plain if inside is None else inside.replace("``", "`"))
        if end != ".":
            if any(path):
                yield tuple(path)
            path.clear()


def _lower(path: _Path) -> _Path:
    return tuple(part.lower() for part in path)


def _bounded_columns(schema: str, partition_by: Sequence[str]) -> list[str]:
    """Return the columns whose bounds contain their values."""
    # delta-rs takes a name for that of a nested column, too.
    excluded = {path[-1] for path in _uncertain_columns(schema) if len(path) > 1}.union(
        partition_by
    )
    kinds = {field["name"]: field["type"] for field in _fields(schema)}
    names = [name for name, kind in kinds.items() if isinstance(kind, str) and kind in _BOUNDED]
    return [name for name in names if name not in excluded]


def _uncertain_columns(schema: str, but: Set[str] = frozenset()) -> list[_Path]:
    """Return the paths of columns whose bounds may not contain their values."""
    known = _BOUNDED | _UNBOUNDED | but
    return [path for path, kind in _leaves(json.loads(schema)) if kind not in known]


def _leaves(schema: Mapping[str, Any], above: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Yield the path and the type of each column that has values of its own."""
    for field in schema["fields"]:
        path, kind = (*above, field["name"]), field["type"]
        if isinstance(kind, str):
            yield path, kind
        elif kind["type"] == "struct":
            yield from _leaves(kind, path)
        else:
            yield path, kind["type"]


def _fields(schema: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema)["fields"]
    return fields
