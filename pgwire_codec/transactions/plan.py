"""Plans: summaries folded into the context that each part needs to be decoded alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pgwire_codec.errors import DecodeError, check_on_error
from pgwire_codec.protocol.messages import Relation, StreamStart, StreamStop
from pgwire_codec.transactions.carry import START, Carry, Position, RelationVersion
from pgwire_codec.transactions.committed import Committed
from pgwire_codec.transactions.resolver import PLAIN, Key, Resolver
from pgwire_codec.transactions.summary import ChangeCount, Summary


def fold(carry: Carry, summary: Summary, *, on_error: str = "raise") -> Carry:
    """Return the carry after a part, from the carry before it and the part's summary.

    Raises ``DecodeError`` (without message index) when the part cannot follow this carry; with
    ``on_error="skip"`` an event that cannot follow is skipped, as ``Decoder`` does.
    """
    return plan([summary], carry, on_error=on_error).carry


@dataclass(slots=True)
class Outcome:
    """Outcome, in later parts, of a transaction that a part leaves open.

    Attributes
    ----------
    committed : Committed or None
        Its commit; None when it is rolled back, repeated, or open to the end.
    before : Position or None
        Only the changes before it in the transaction count; None: all of them do.
    """

    committed: Committed | None = None
    before: Position | None = None


@dataclass(frozen=True, slots=True)
class PartPlan:
    """Context that the decoding of a part needs from the others. Picklable.

    ``carry`` has the Relations of which the part has changes. ``outcomes`` are those of the
    transactions that the part leaves open and has changes of. ``rejects`` is true if messages of it
    cannot follow the ones before them, and ``on_error="skip"`` leaves them out.
    """

    carry: Carry
    outcomes: dict[Key, Outcome]
    rejects: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How to decode each part, and the carry after the last.

    ``versions`` has every version of a Relation that was sent, in the order in which they were.
    """

    parts: tuple[PartPlan, ...]
    carry: Carry
    versions: tuple[RelationVersion, ...]


def plan(
    summaries: Iterable[Summary | Sequence[Summary]],
    carry: Carry | None = None,
    *,
    on_error: str = "raise",
) -> Plan:
    """Fold the summaries of consecutive parts into the context that each needs.

    Parameters
    ----------
    summaries : iterable of Summary, or of sequences of Summary
        In the order of the parts. A sequence stands for a part that was summarised piece by piece;
        only the first piece may begin a new session.
    carry : Carry, optional
        State before the first part; by default that of a new stream.
    on_error : {"raise", "skip"}
        As for ``Decoder``, and the same as for the decoding of the parts.

    Raises
    ------
    DecodeError
        When a part cannot follow the ones before it.
    """
    before = Carry() if carry is None else carry
    known = [version for _, version in before.scope.relations.values()]
    parts, resolver = plan_parts(map(_pieces, summaries), before.copy(), on_error=on_error)
    return Plan(parts, resolver.carry, tuple(dict.fromkeys([*known, *resolver.versions])))


def plan_parts(
    parts: Iterable[Sequence[Summary]], carry: Carry, *, on_error: str = "raise"
) -> tuple[tuple[PartPlan, ...], Resolver]:
    """Return the plans of parts, each of consecutive pieces, and the resolver after them.

    To decode a part, begin a session at each piece after the first that begins one. ``carry`` is
    changed to that after the last part.
    """
    skip = check_on_error(on_error)
    planner = _Planner()
    resolver = Resolver(carry, planner)
    plans = []
    for pieces in parts:
        if pieces and pieces[0].new_session:
            resolver.new_session()
        before = _needed(carry, pieces)
        skipped = resolver.skipped
        for number, piece in enumerate(pieces):
            if number and piece.new_session:
                resolver.new_session()
            apply_summary(piece, resolver, skip=skip, changed=planner.changed)
        plans.append(PartPlan(before, planner.watch(), resolver.skipped > skipped))
    return tuple(plans), resolver


def _needed(carry: Carry, pieces: Sequence[Summary]) -> Carry:
    """Return a copy of the carry with the Relations and Types that the decoding of a part needs."""
    relations: set[int] = set()
    types: set[int] = set()
    for piece in pieces:
        if piece.relations is None:
            return carry.copy()
        relations.update(piece.relations)
        for events in (piece.outside, piece.inside):
            for event in events if isinstance(events, tuple) else ():
                if isinstance(event, Relation):
                    types.update(column.type_oid for column in event.columns)
    return carry.only(relations, types)


class _Planner:
    """Transaction listener that fills in the outcomes of transactions that parts left open."""

    def __init__(self) -> None:
        self._watched: dict[Key, list[Outcome]] = {}
        self._changed: set[Key] = set()  # by the current part, and open

    def changed(self, key: Key) -> None:
        """Take note that the current part has changes of a transaction."""
        self._changed.add(key)

    def watch(self) -> dict[Key, Outcome]:
        """Return an outcome, to be filled in, for each that the part changed and leaves open."""
        outcomes = {key: Outcome() for key in sorted(self._changed, key=repr)}
        self._changed.clear()
        for key, outcome in outcomes.items():
            self._watched.setdefault(key, []).append(outcome)
        return outcomes

    def commit(self, key: Key, committed: Committed) -> None:
        self._changed.discard(key)
        for outcome in self._watched.pop(key, ()):
            outcome.committed = committed

    def drop(self, key: Key) -> None:
        self._changed.discard(key)
        self._watched.pop(key, None)

    def truncate(self, key: Key, position: Position) -> None:
        for outcome in self._watched.get(key, ()):
            if outcome.before is None or position < outcome.before:
                outcome.before = position

    def rename(self, key: Key, new: Key) -> None:
        self._watched[new] = self._watched.pop(key, [])
        if key in self._changed:
            self._changed.remove(key)
            self._changed.add(new)


def _pieces(part: Summary | Sequence[Summary]) -> Sequence[Summary]:
    pieces = part if isinstance(part, (list, tuple)) else (part,)
    for number, piece in enumerate(pieces):
        if not isinstance(piece, Summary):
            raise TypeError(f"summaries must be Summary objects, not {type(piece).__name__}")
        if number and piece.new_session:
            raise ValueError("a summary of a new session must be the first of its part")
    return pieces


def open_keys(carry: Carry) -> list[Key]:
    """Return the keys of the open transactions."""
    keys: list[Key] = [] if carry.plain is None else [PLAIN]
    keys += [("stream", xid) for xid in carry.streams]
    keys += [("prepared", gid) for gid in carry.prepared]
    return keys


def apply_summary(
    summary: Summary,
    resolver: Resolver,
    *,
    skip: bool,
    changed: Callable[[Key], None] | None = None,
    stop: int | None = None,
) -> None:
    """Apply the events of a part, or the first ``stop`` of them, to a resolver.

    ``changed`` is called with each transaction that it has changes of. ``new_session`` of the
    summary is the caller's business. Raises ``DecodeError`` (without message index) for an event
    that cannot follow, unless it is to be skipped.
    """
    carry = resolver.carry
    for event in summary.events(carry.in_block)[:stop]:
        try:
            if not isinstance(event, ChangeCount):
                resolver.apply(event)
                continue
            if event.xid is not None:
                resolver.apply(StreamStart(event.xid, event.first_segment))
            key, _ = resolver.advance(event.position, event.first)
            if changed is not None and event.position != START:
                changed(key)
            if event.xid is not None:
                resolver.apply(StreamStop())
        except DecodeError:
            if not skip:
                raise
            resolver.skipped += 1
    if summary.ends_in_block is not None:
        carry.in_block = summary.ends_in_block
