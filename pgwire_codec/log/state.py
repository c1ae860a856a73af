"""State of a log between two parts: the carry there, and where open transactions began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgwire_codec.transactions.carry import Carry, Position, RelationVersion, Scope
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.plan import apply_summary, open_keys
from pgwire_codec.transactions.resolver import Key, Resolver
from pgwire_codec.transactions.summary import Summary


@dataclass(frozen=True, slots=True)
class LogState:
    """The carry between two parts, and where the open transactions began.

    Attributes
    ----------
    carry : Carry
        Must not be changed. Its scope is empty: the relations that hold for everyone are recorded
        in the segments that declare them.
    opened : dict of Key to int
        For each transaction that is open: the first ordinal of the part in which it began.
    """

    carry: Carry = field(default_factory=Carry)
    opened: dict[Key, int] = field(default_factory=dict)


class StateTracker:
    """Applies the parts of a log, one after the other, to a state, by their summaries.

    Parameters
    ----------
    state : LogState
        State before the first part.
    scope : Scope, optional
        The relations known there. It must not change as long as the tracker is used. Without it,
        ``versions`` and the carry's relations are of no use.
    on_commit : callable, optional
        Called at each commit, with the transaction and the ordinal where it began, except for plain
        transactions that are whole in one part.
    """

    def __init__(
        self,
        state: LogState,
        scope: Scope | None = None,
        on_commit: Callable[[Committed, int], None] | None = None,
    ) -> None:
        base = Scope() if scope is None else scope
        self._resolver = Resolver(state.carry.with_scope(base.branch()), self)
        self._opened = dict(state.opened)
        self._on_commit = on_commit
        self._ordinal = 0

    def apply(self, summary: Summary, ordinal: int) -> None:
        """Apply the next part, whose first message has this ordinal."""
        self._ordinal = ordinal
        if summary.new_session:
            self._resolver.new_session()
        # Messages out of order are skipped: a decoder raises their error, or skips them, too.
        apply_summary(summary, self._resolver, skip=True)
        for key in open_keys(self._resolver.carry):
            self._opened.setdefault(key, ordinal)

    @property
    def carry(self) -> Carry:
        """The carry after the last part. It must not be changed, and is valid until the next."""
        return self._resolver.carry

    @property
    def rolled_back(self) -> int:
        """Number of changes that the parts rolled back."""
        return self._resolver.rolled_back

    @property
    def state(self) -> LogState:
        """The state after the last part."""
        return LogState(self._resolver.carry.with_scope(Scope()), dict(self._opened))

    @property
    def declared(self) -> Scope:
        """The relations that the parts declared, and the types and the names."""
        return self._resolver.carry.scope.changes()

    @property
    def opened(self) -> Mapping[Key, int]:
        """As in :class:`LogState`; valid until the next part."""
        return self._opened

    @property
    def versions(self) -> list[RelationVersion]:
        """The versions of relations that the parts declared, each unlike the one before it."""
        return self._resolver.versions

    def copy(self) -> StateTracker:
        """Return a tracker with the same state. This one must not be used before the copy's end."""
        state = LogState(self._resolver.carry, self._opened)
        copied = StateTracker(state, self._resolver.carry.scope, self._on_commit)
        copied._resolver.versions = list(self._resolver.versions)
        return copied

    def commit(self, key: Key, committed: Committed) -> None:
        first = self._opened.pop(key, self._ordinal)
        if self._on_commit is not None:
            self._on_commit(committed, first)

    def drop(self, key: Key) -> None:
        self._opened.pop(key, None)

    def truncate(self, key: Key, position: Position) -> None:
        """Do nothing: the rollback of a savepoint does not end its transaction."""

    def rename(self, key: Key, new: Key) -> None:
        if key in self._opened:
            self._opened[new] = self._opened.pop(key)
