"""Plans of record batches: names, types and schemas, which are the same for many batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pgwire_codec.arrow.export import c_schema, pyarrow_schema
from pgwire_codec.arrow.layout import MOST_SHARED, ArrowBuffers, null_array, shared_nulls
from pgwire_codec.changes.metadata import METADATA_FORMATS, RELATION_OID, free_name
from pgwire_codec.codec.values import null_column
from pgwire_codec.options import DecoderOptions
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.types import ColumnType, column_type, default_registry

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_PLANS: Final = 4096  # of different columns
_MOST_VERSIONS: Final = 32_768
_MOST_CHOICES: Final = 64  # of a table's columns
_MOST_NULLS: Final = 4  # arrays of them, which may be large

_Key = TypeVar("_Key")
_Made = TypeVar("_Made")


class Selection(NamedTuple):
    """Columns of a table that are decoded: their names, and their numbers with their types."""

    names: list[str]
    columns: list[tuple[int, ColumnType]]


class RecordPlan:
    """Fields of a table's record batches: the columns asked for, then the metadata columns.

    Attributes
    ----------
    current : Selection
        The table's columns.
    before : Selection
        The columns of ``_before``; without any there is no such field.
    key : list of int
        Places in it of the columns of the relation's key.
    option_before : str
        The option ``before``.
    all_names : list of str
        Names of all of the table's columns.
    all_numbers : list of int
        Their numbers.
    names_invalid : bool
        Whether there is ``_invalid``.
    invalid_names : list of str
        Names in it of the columns of both selections.
    names : list of str
        Names of the fields.
    width : int
        Number of the relation's columns.
    compiled : object
        What an implementation made of the plan, for its own use.
    """

    def __init__(self, plan: TablePlan, names: Sequence[str], before: Sequence[str]) -> None:
        self.width = len(plan.types)
        self.compiled: Any = None
        self.current = plan.select(names)
        self.before = plan.select(before)
        self.key = [place for place, name in enumerate(self.before.names) if name in plan.key]
        self.option_before = plan.option_before
        self.all_names = list(plan.numbers)
        self.all_numbers = list(plan.numbers.values())
        self.names_invalid = plan.names_invalid
        self.invalid_names = self.current.names + [f"_before.{each}" for each in self.before.names]
        absent = {RELATION_OID}
        if not self.before.names:
            absent.add("_before")
        if not self.names_invalid:
            absent.add("_invalid")
        self._metadata = [name for name in METADATA_FORMATS if name not in absent]
        metadata = [free_name(name, plan.numbers) for name in self._metadata]
        self.names = [*self.current.names, *metadata]
        decoded = [*self.current.columns, *self.before.columns]
        # The Arrow type of an unknown type depends on the form of its values.
        self._varies = any(kind.pg.family == "unknown" for _, kind in decoded)
        self._before_at = len(self.current.names) + self._metadata.index("_unchanged") + 1
        self._null_before: dict[int, ArrowBuffers] = {}  # by number of rows
        self._schemas: dict[object, pa.Schema] = {}
        self._c_schemas: dict[object, Any] = {}

    def null_before(self, rows: int) -> ArrowBuffers:
        """Return ``_before`` of rows without an old tuple, which must not be changed."""
        known = self._null_before.get(rows)
        if known is None:
            known = null_array("+s", rows)
            known.children = [null_column(kind, rows) for _, kind in self.before.columns]
            known.names = self.before.names
            if rows <= MOST_SHARED:  # or it would take much memory
                _add(self._null_before, _MOST_NULLS, rows, known)
        return known

    @cached_property
    def fixed_schema(self) -> pa.Schema:
        """Schema of all record batches, unless a column is of an unknown type."""
        fields = [null_column(kind, 0) for _, kind in self.current.columns]
        fields += [
            self.null_before(0) if name == "_before" else shared_nulls(METADATA_FORMATS[name], 0)
            for name in self._metadata
        ]
        return self.schema(ArrowBuffers("+s", 0, 0, None, [], fields, self.names))

    def schema(self, struct: ArrowBuffers) -> pa.Schema:
        """Return the schema of a struct with these fields."""
        return self._memo(self._schemas, struct, pyarrow_schema)

    def c_schema(self, struct: ArrowBuffers) -> Any:
        """Return the nanoarrow.c_schema.CSchema of a struct with these fields."""
        return self._memo(self._c_schemas, struct, c_schema)

    def _memo(
        self,
        made: dict[object, _Made],
        struct: ArrowBuffers,
        make: Callable[[ArrowBuffers], _Made],
    ) -> _Made:
        key = self._formats(struct)
        found = made.get(key)
        if found is None:
            found = make(struct)
            _add(made, _MOST_CHOICES, key, found)
        return found

    def _formats(self, struct: ArrowBuffers) -> tuple[str, ...]:
        if not self._varies:
            return ()
        formats = [child.format for child in struct.children]
        if self.before.names:
            formats += [child.format for child in struct.children[self._before_at].children]
        return tuple(formats)


class TablePlan:
    """Names and types of a table's columns, for all batches of a Relation version.

    Attributes
    ----------
    numbers : dict of str to int
        The table's columns; of columns with one name, which no server sends, the last one.
    types : list of ColumnType
        Their types.
    key : frozenset of str
        Names of the columns that the relation flags as key.
    before : list of str
        Names of the columns of ``_before``, by the option ``before``.
    option_before : str
        That option.
    names_invalid : bool
        Whether ``_invalid`` names the columns of values that a type cannot hold.
    registrations : int
        Of the registry, before the types were looked up.
    """

    def __init__(self, version: RelationVersion, options: DecoderOptions) -> None:
        registry = options.registry or default_registry
        self.registrations = registry.registrations
        columns = version.relation.columns
        user_types = {each.oid: (each.namespace, each.name) for each in version.types}
        self.numbers: Mapping[str, int] = {column.name: i for i, column in enumerate(columns)}
        self.types = [
            column_type(
                column.type_oid,
                column.type_modifier,
                options.type_options,
                user_types=user_types,
                registry=registry,
            )
            for column in columns
        ]
        self.option_before = options.before
        full = options.before == "full"
        before = [column.name for column in columns if full or column.flags & 1]
        self.before = before if options.before != "none" else []
        self.key = frozenset(column.name for column in columns if column.flags & 1)
        self.names_invalid = options.unrepresentable != "raise"
        self._records: dict[object, RecordPlan] = {}

    def record(
        self,
        version: RelationVersion,
        names: Sequence[str] | None,
        before: Sequence[str] | None = None,
    ) -> RecordPlan:
        """Return the plan of record batches with these of the table's columns, None for all.

        Unless all columns belong to it, ``_before`` has the columns ``before``, by default the key.

        Raises ``KeyError`` for a column that the relation does not have.
        """
        if isinstance(names, str):
            raise TypeError("columns must be a sequence of names, not a str")
        if before is None or self.option_before == "full":
            before = self.before
        choice = None if names is None else tuple(names)
        key = (choice, tuple(before))
        plan = self._records.get(key)
        if plan is None:
            known = list(self.numbers)
            for name in choice or ():
                if name not in known:
                    raise KeyError(
                        f"{version.qualified_name} has no column {name!r}: it has {known}"
                    )
            plan = RecordPlan(self, known if choice is None else choice, before)
            _add(self._records, _MOST_CHOICES, key, plan)
        return plan

    def select(self, names: Sequence[str]) -> Selection:
        names = list(dict.fromkeys(names))
        numbers = [self.numbers[name] for name in names]
        return Selection(names, [(number, self.types[number]) for number in numbers])


class Plans:
    """Plans of Relation versions under the same options.

    They are found by the identity of a version, which costs next to nothing, or else by its
    columns: some databases have the same table in a schema for each of their customers.
    """

    def __init__(self, options: DecoderOptions) -> None:
        self._options = options
        self._registry = options.registry or default_registry
        # With the version, so that no other one gets its identity.
        self._by_identity: dict[int, tuple[RelationVersion, TablePlan]] = {}
        self._by_columns: dict[object, TablePlan] = {}

    def of(self, version: RelationVersion) -> TablePlan:
        """Return the plan of a version."""
        found = self._by_identity.get(id(version))
        if found is None or found[1].registrations != self._registry.registrations:
            found = version, self._of_columns(version)
            _add(self._by_identity, _MOST_VERSIONS, id(version), found)
        return found[1]

    def _of_columns(self, version: RelationVersion) -> TablePlan:
        key = (version.relation.columns, version.types)
        plan = self._by_columns.get(key)
        if plan is None or plan.registrations != self._registry.registrations:
            if len(self._by_columns) >= _MOST_PLANS:
                self._by_identity.clear()  # or it would keep the plans
            plan = TablePlan(version, self._options)
            _add(self._by_columns, _MOST_PLANS, key, plan)
        return plan


def _add(cache: dict[_Key, _Made], most: int, key: _Key, made: _Made) -> None:
    if len(cache) >= most:
        cache.clear()
    cache[key] = made
