"""Evolution: steps by which the columns of a target follow those of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

import pyarrow as pa

from pgwire_codec.changes.table_schema import widest
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.column_history import ColumnHistory
from pgwire_codec.lake.row_types import sql_name
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.lake.tables.column_steps import (
    AddColumn,
    ClearColumn,
    ColumnStep,
    RenameColumn,
    WidenColumn,
)

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
