"""What the messages up to a place in the log leave behind, and how a part changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgwire_codec.transactions.carry import Carry, Position, RelationVersion
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.plan import apply_summary, open_keys
from pgwire_codec.transactions.resolver import Key, Resolver
from pgwire_codec.transactions.summary import Summary


@dataclass(frozen=True, slots=True)
class State:
    """The carry at a place between two parts, and where the open transactions began.

    Attributes
    ----------
    carry : Carry
        Not to be changed.
    opened : dict of Key to int
        For each transaction that is open: the first ordinal of the part in which it began.
    """

    carry: Carry = field(default_factory=Carry)
    opened: dict[Key, int] = field(default_factory=dict)


class Follower:
    """Follows the parts of a log, one after the other, by their summaries.

    ``on_commit`` is told each transaction that is not plain and whole in one part, with the
    ordinal where it began, when its commit is found.
    """

    def __init__(
        self, state: State, on_commit: Callable[[Committed, int], None] | None = None
    ) -> None:
        self._resolver = Resolver(state.carry.copy(), self)
        self._opened = dict(state.opened)
        self._on_commit = on_commit
        self._ordinal = 0

    def follow(self, summary: Summary, ordinal: int) -> None:
        """Follow the next part, whose first message has this ordinal."""
        self._ordinal = ordinal
        if summary.new_session:
            self._resolver.new_session()
        # What cannot follow is passed over here; a decoder says so, unless it is to pass over it.
        apply_summary(summary, self._resolver, skip=True)
        for key in open_keys(self._resolver.carry):
            self._opened.setdefault(key, ordinal)

    @property
    def carry(self) -> Carry:
        """The carry behind the last part; not to be changed, and valid until the next."""
        return self._resolver.carry

    @property
    def rolled_back(self) -> int:
        """How many changes the parts rolled back."""
        return self._resolver.rolled_back

    @property
    def state(self) -> State:
        """The state behind the last part."""
        return State(self._resolver.carry.copy(), dict(self._opened))

    @property
    def opened(self) -> Mapping[Key, int]:
        """As in :class:`State`; valid until the next part."""
        return self._opened

    @property
    def versions(self) -> list[RelationVersion]:
        """The versions of relations that held before the first part, and those told since."""
        return self._resolver.versions

    def copy(self) -> Follower:
        """Give a follower that stands at the same place."""
        copied = Follower(self.state, self._on_commit)
        copied._resolver.versions = list(self._resolver.versions)
        return copied

    def commit(self, key: Key, committed: Committed) -> None:
        first = self._opened.pop(key, self._ordinal)
        if self._on_commit is not None:
            self._on_commit(committed, first)

    def drop(self, key: Key) -> None:
        self._opened.pop(key, None)

    def truncate(self, key: Key, position: Position) -> None:
        """A rolled-back savepoint does not end its transaction."""

    def rename(self, key: Key, new: Key) -> None:
        if key in self._opened:
            self._opened[new] = self._opened.pop(key)
