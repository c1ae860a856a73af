"""Column history: the columns of a table's newest version, and their names in its first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.errors import TableError
from pgwire_codec.protocol.messages import Relation, RelationColumn
from pgwire_codec.protocol.quoting import qualified_name

#: Version of the first server whose publications can have lists of columns.
COLUMN_LISTS: Final = 150000


@dataclass(frozen=True, slots=True)
class ColumnHistory:
    """Changes of a table's columns between two of its versions."""

    renamed: dict[str, str]  # new names, by the name in the first version
    #: Columns of the last version only, by their last name; one can be that of a dropped column.
    new: frozenset[str]
    dropped: tuple[str, ...]  # columns of the first version only

    @classmethod
    def of(cls, versions: Sequence[Relation], *, renames: bool) -> ColumnHistory:
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
