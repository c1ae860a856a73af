"""Journal of the changes to a state: with it a call that fails leaves the state as it was.

The journal costs what is changed, not what is known: a copy of the state would cost the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import cache
from operator import attrgetter
from typing import Any, Protocol, SupportsIndex, TypeVar

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound="Entry")


class Entry(Protocol):
    """Mutable object in a state."""

    def keep(self, journal: Journal) -> None:
        """Record the object as it is, and have its parts record their changes from now on."""


class Journal:
    """Inverse operations of the changes since the last commit, the newest last.

    An operation is recorded before its change, and may be undone twice: whatever interrupts a
    change or a roll-back, another roll-back restores the state.
    """

    __slots__ = ("_kept", "_undo")

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._kept: dict[int, Entry] = {}  # by identity: alive, so that no other has it

    def record(self, undo: Callable[..., object], *args: Any) -> None:
        """Record the call that undoes the change to come."""
        self._undo.append((undo, args))

    def keep(self, entry: Entry) -> None:
        """Record an entry as it is, unless that was done since the last commit."""
        if id(entry) not in self._kept:
            entry.keep(self)
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Take an entry that need not be kept: it is new, or was kept."""
        self._kept[id(entry)] = entry

    def keep_fields(self, entry: Any) -> None:
        """Record the fields of an object with slots: which objects they are, not their content."""
        self.record(_set_fields, entry, _fields(entry.__slots__)(entry))

    def map(self, content: MutableMapping[K, V]) -> Map[K, V]:
        """Return a map of the content that records its changes here: the content, if it does."""
        return content if isinstance(content, Map) else Map(self, content)

    def entries(self, content: dict[K, E]) -> EntryMap[K, E]:
        """Return the same of a map of entries."""
        return content if isinstance(content, EntryMap) else EntryMap(self, content)

    def stack(self, content: list[V]) -> Stack[V]:
        """Return the same of a list."""
        return content if isinstance(content, Stack) else Stack(self, content)

    def commit(self) -> None:
        """Accept all changes."""
        # An interruption strikes before both assignments or after them.
        self._undo, self._kept = [], {}

    def roll_back(self) -> None:
        """Undo all changes since the last commit."""
        while self._undo:
            undo, args = self._undo[-1]
            undo(*args)
            self._undo.pop()
        self._kept = {}


@cache
def _fields(names: tuple[str, ...]) -> attrgetter[tuple[Any, ...]]:
    return attrgetter(*names)


def _set_fields(entry: Any, values: tuple[Any, ...]) -> None:
    for name, value in zip(entry.__slots__, values, strict=True):
        setattr(entry, name, value)


class Map(dict[K, V]):
    """Dict that records its changes. Undone deletions are at its end.

    Compiled code must treat it as an object: the functions for exact dicts bypass the journal.
    """

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal, content: Mapping[K, V]) -> None:
        super().__init__(content)
        self._journal = journal

    def __setitem__(self, key: K, value: V) -> None:
        if key in self:
            self._journal.record(dict.__setitem__, self, key, dict.__getitem__(self, key))
        else:
            self._journal.record(dict.pop, self, key, None)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._journal.record(dict.__setitem__, self, key, dict.__getitem__(self, key))
        super().__delitem__(key)

    def pop(self, key: K, *default: Any) -> Any:
        if key not in self and default:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[K, V]:
        if not self:
            raise KeyError("the map is empty")
        key = next(reversed(self))
        self._journal.record(dict.__setitem__, self, key, dict.__getitem__(self, key))
        return super().popitem()

    def setdefault(self, key: K, default: V) -> V:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, other: Mapping[K, V]) -> None:  # type: ignore[override]
        for key, value in other.items():
            self[key] = value

    # Changes that are not recorded are not possible.
    __ior__ = clear = None  # type: ignore[assignment]


class EntryMap(Map[K, E]):
    """Map of mutable entries: it keeps an entry before it hands it out.

    Those that ``values`` and ``items`` yield are not kept, and must not be changed.
    """

    __slots__ = ()

    def __getitem__(self, key: K) -> E:
        entry = super().__getitem__(key)
        self._journal.keep(entry)
        return entry

    def __setitem__(self, key: K, entry: E) -> None:
        self._journal.add(entry)
        super().__setitem__(key, entry)

    def get(self, key: K, default: Any = None) -> Any:
        entry = super().get(key, default)
        if key in self:
            self._journal.keep(entry)
        return entry


class Stack(list[V]):
    """List that records its changes, each with the items from the first changed one on."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal, content: Iterable[V]) -> None:
        super().__init__(content)
        self._journal = journal

    def append(self, item: V) -> None:
        self._journal.record(list.__delitem__, self, slice(len(self), None))
        super().append(item)

    def pop(self, index: SupportsIndex = -1) -> V:
        self._keep_from(index)
        return super().pop(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._keep_from(index)
        super().__setitem__(index, value)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        self._keep_from(index)
        super().__delitem__(index)

    def _keep_from(self, index: SupportsIndex | slice) -> None:
        changed = range(len(self))[index]
        start = changed if isinstance(changed, int) else min(changed, default=changed.start)
        self._journal.record(list.__setitem__, self, slice(start, None), self[start:])

    # Changes that are not recorded are not possible.
    __iadd__ = __imul__ = extend = insert = remove = clear = reverse = sort = None  # type: ignore
