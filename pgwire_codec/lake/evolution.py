"""Evolution: steps by which the columns of a target follow those of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

import pyarrow as pa

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.changes.table_schema import widest
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.row_types import sql_name
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.lake.tables.column_steps import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    RenameColumn,
    WidenColumn,
)
from pgwire_codec.protocol.messages import Relation, RelationColumn
from pgwire_codec.protocol.quoting import qualified_name

#: Version of the first server whose publications can have lists of columns.
COLUMN_LISTS: Final = 150000

#: Action when the columns of a table change.
Policy = Literal["evolve", "rename", "freeze", "fail"]

POLICIES: Final = get_args(Policy)


@dataclass(frozen=True, slots=True)
class TablePolicies:
    """Policies by table."""

    usual: Policy = "evolve"  # policy of tables without another one
    #: Policies by name, or by a pattern of names; the first that matches counts.
    by_name: tuple[tuple[str, Policy], ...] = ()

    @classmethod
    def parse(cls, usual: Policy, by_name: Mapping[str, Policy] | None = None) -> TablePolicies:
        """Return policies. Raises ``OptionError`` for another policy."""
        by_name = {} if by_name is None else by_name
        if not isinstance(by_name, Mapping):
            raise TypeError(f"policies must be a mapping, not {type(by_name).__name__}")
        policies = cls(usual, tuple(by_name.items()))
        for name, policy in (("on_schema_change", usual), *policies.by_name):
            if policy not in POLICIES:
                known = ", ".join(POLICIES)
                raise OptionError(f"{name} must be one of {known}, not {policy!r}")
        return policies

    def of(self, table: str) -> Policy:
        """Return the policy of a table."""
        for name, policy in self.by_name:
            if TableNames.parse([name]).match(table):
                return policy
        return self.usual


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """Changes of a table's columns between two of its versions."""

    renamed: dict[str, str]  # new names, by the name in the first version
    #: Columns of the last version only, by their last name; one can be that of a dropped column.
    new: frozenset[str]
    dropped: tuple[str, ...]  # columns of the first version only

    @classmethod
    def from_versions(cls, versions: Sequence[Relation], *, renames: bool) -> ColumnHistory:
        """Compare consecutive versions of a table, at least one.

        A Relation does not number its columns. But a new column is always the last one. So if a
        column has the same name and place in two versions, those before it are the same columns,
        too: one with another name and the same type was renamed. That is so without lists of
        columns in publications, and ``renames`` requires it. With lists, the same Relations can be
        those of another list, with a column in place of another one. Then a name that is gone is
        that of a dropped column, and a new name that of a new one.

        A column that comes after all others, and did not before, is a new one with its name.

        Raises ``TableError`` if another column may have the former name of one that was renamed.
        """
        first = [column.name for column in versions[0].columns]
        origin: dict[str, str | None] = {name: name for name in first}
        for before, after in pairwise(versions):
            found = _renamed(before, after)
            former = {new: old for old, new in found.items()} if renames else {}
            known = {column.name for column in before.columns} - _created_again(before, after)
            columns: dict[str, str | None] = {}
            for column in after.columns:
                name = former.get(column.name, column.name)
                columns[column.name] = origin[name] if name in known else None
            origin = columns
        renamed = {old: new for new, old in origin.items() if old not in (None, new)}
        for old, new in renamed.items():
            if old in origin:
                raise _exchanged(versions[-1], str(old), new)
        kept = set(origin.values())
        return cls(
            {str(old): new for old, new in renamed.items()},
            frozenset(name for name, old in origin.items() if old is None),
            tuple(name for name in first if name not in kept),
        )


def _renamed(before: Relation, after: Relation) -> dict[str, str]:
    """Return the new names of the columns that were renamed between two versions."""
    pairs = list(zip(before.columns, after.columns, strict=False))
    same = [place for place, (old, new) in enumerate(pairs) if old.name == new.name]
    known = {column.name for column in before.columns}
    left = {column.name for column in after.columns}
    found = {}
    for old, new in pairs[: max(same, default=0)]:
        if old.name == new.name:
            continue
        if old.name in left or new.name in known:
            raise _exchanged(after, old.name, new.name)
        if _type(old) == _type(new):
            found[old.name] = new.name
    return found


def _created_again(before: Relation, after: Relation) -> set[str]:
    """Return the names of columns that were dropped, and are those of new columns.

    Columns never change places. Raises ``TableError`` for others that did.
    """
    places = {column.name: place for place, column in enumerate(before.columns)}
    kept = -1
    again: list[str] = []
    for column in after.columns:
        place = places.get(column.name)
        if place is not None and place < kept:
            again.append(column.name)
        elif place is not None:
            kept = place
            if again:
                raise _exchanged(after, again[-1], column.name)
    return set(again)


def _type(column: RelationColumn) -> tuple[int, int]:
    return column.type_oid, column.type_modifier


def _exchanged(relation: Relation, old: str, new: str) -> TableError:
    name = qualified_name(relation.namespace, relation.name)
    return TableError(
        f"column {old} of {name} was renamed to {new}, and the names of other columns changed "
        "with it",
        hint=f"A name that goes from one column to another cannot be followed. {COPY_AGAIN}",
    )


def evolution_steps(
    history: ColumnHistory,
    held: Mapping[str, pa.DataType],
    wanted: Mapping[str, pa.DataType],
    policy: Policy = "evolve",
) -> list[ColumnStep]:
    """Return the steps after which a target can hold a table's rows.

    Steps that were done before, and not recorded because of a failure, are left out, or do nothing
    when they are repeated. ``held`` are the columns of the target, and ``wanted`` those of the
    rows. ``freeze`` leaves the target's columns as they are.

    Raises ``TableError`` when the target cannot hold the rows, or when the policy is ``fail`` and
    columns changed.
    """
    if policy == "freeze":
        for name, kind in wanted.items():
            if name in held and _widened(name, held[name], kind) is not None:
                raise _other_type(name, held[name], kind)
        return []
    steps: list[ColumnStep] = []
    columns = dict(held)
    for old, new in history.renamed.items():
        if old not in columns:
            continue
        if new in columns:
            raise TableError(
                f"column {old} was renamed to {new}, but the target still has the column {new} "
                "that was dropped before",
                hint=f"Rename or drop the column {new} of the target, and resume the table.",
            )
        steps.append(RenameColumn(old, new))
        columns[new] = columns.pop(old)
    for name, kind in wanted.items():
        if name not in columns:
            steps.append(AddColumn(name, kind))
            continue
        if name in history.new:
            steps.append(ClearColumn(name))
        wider = _widened(name, columns[name], kind)
        if wider is not None:
            steps.append(WidenColumn(name, wider))
    if policy == "fail" and (steps or history.dropped):
        changed = [*map(str, steps), *(f"drop column {name}" for name in history.dropped)]
        raise TableError(
            f"the table's columns changed: {', '.join(changed)}",
            hint='Use `on_schema_change="evolve"` or "freeze", and resume the table.',
        )
    return steps


def _widened(name: str, held: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """Return the wider type that a column needs; None if it holds the values.

    Raises ``TableError`` if no wider type holds both.
    """
    if held == wanted or _is_exact_text(held, wanted):
        return None
    if _is_number(held) and _is_number(wanted):
        common = widest({held, wanted})
        if common is not None:
            return None if common == held else common
    if (
        pa.types.is_list(held)
        and pa.types.is_list(wanted)
        and _widened(name, held.value_type, wanted.value_type) is None
    ):
        return None
    raise _other_type(name, held, wanted)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_exact_text(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column has text that values of another type are the same as for Spark."""
    is_exact = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date)
    return bool(pa.types.is_string(held)) and any(check(wanted) for check in is_exact)


def _other_type(name: str, held: pa.DataType, wanted: pa.DataType) -> TableError:
    return TableError(
        f"column {name} of the target is {sql_name(held)}, which does not hold {sql_name(wanted)}",
        hint="Change its type in the target, and resume the table. Or remove the table from the "
        "target, and resume it: it is then written again from the log's beginning.",
    )
