"""TableCounter: counts of the changes of each table, committed or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.message_array import Messages
from pgwire_codec.codec.tables import MessageTable, tagged
from pgwire_codec.log.segment import RelationCount, TableCount
from pgwire_codec.protocol.messages import Relation, Truncate
from pgwire_codec.protocol.spec import MESSAGES
from pgwire_codec.protocol.tags import STREAM_CONTENT
from pgwire_codec.transactions.carry import Carry, RelationVersion, Scope

_ROWS: Final = {ord("I"): 0, ord("U"): 1, ord("D"): 2}
_COLUMN_OF_KIND: Final = np.zeros(256, np.int64)
_COLUMN_OF_KIND[list(_ROWS)] = list(_ROWS.values())
#: By tag: whether it determines if a stream block is open after it.
_SETS_BLOCK: Final = np.zeros(256, np.bool_)
_SETS_BLOCK[[each.tag[0] for each in MESSAGES if each.tag not in STREAM_CONTENT]] = True
_TRUNCATES, _BYTES, _COLUMNS = 3, 4, 5


class TableCounter:
    """Counts changes by the table's name, without an object a change.

    Parameters
    ----------
    codec : Codec
        The implementation.
    scope : Scope
        The relations known before the first message. It must not change meanwhile.
    carry : Carry
        Carry before the first message: open transactions declare relations, too.
    """

    def __init__(self, codec: Codec, scope: Scope, carry: Carry) -> None:
        self._codec = codec
        self._scope = scope
        self._names: dict[int, str] = {}  # those that the scope does not have
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._changed: set[tuple[str, int]] = set()  # since they were returned
        self._returned: dict[tuple[str, int], RelationCount] = {}  # by name and OID
        for opened in (*carry.prepared.values(), *carry.streams.values()):
            for oid, (_, version) in opened.scope.relations.items():
                if oid not in scope.relations:
                    self._names[oid] = version.qualified_name

    def add(self, messages: Messages, table: MessageTable, streaming: bool) -> None:
        """Count scanned messages; ``streaming`` as it was for the scan."""
        start = 0
        places = np.flatnonzero(tagged(table.kind, b"RT"))
        blocks = _inside(messages, table, places, streaming)
        for index, inside in zip(places.tolist(), blocks.tolist(), strict=True):
            message = self._codec.decode_message(messages[index], streaming=inside)
            if isinstance(message, Truncate):
                for oid in message.relation_oids:
                    self._of(oid)[_TRUNCATES] += 1
            elif isinstance(message, Relation):
                name = RelationVersion(message).qualified_name
                if self._name(message.oid) != name:
                    # Changes before it count under the old name.
                    self._count(messages, table, start, index)
                    start = index
                    self._names[message.oid] = name
        self._count(messages, table, start, len(messages))

    def counts(self) -> tuple[RelationCount, ...]:
        """Return the counts so far, by name and OID."""
        is_complete = self._changed <= self._returned.keys()
        for name, oid in self._changed:
            self._returned[name, oid] = RelationCount(name, *(*self._counts[name, oid], oid))
        if not is_complete:
            self._returned = {key: self._returned[key] for key in sorted(self._returned)}
        self._changed.clear()
        return tuple(self._returned.values())

    def _name(self, oid: int) -> str | None:
        if oid not in self._names and oid in self._scope.relations:
            self._names[oid] = self._scope.relations[oid][1].qualified_name
        return self._names.get(oid)

    def _of(self, oid: int) -> list[int]:
        name = self._name(oid)
        if name is None:
            name = f"relation {oid}"
        self._changed.add((name, oid))
        return self._counts.setdefault((name, oid), [0] * _COLUMNS)

    def _count(self, messages: Messages, table: MessageTable, start: int, stop: int) -> None:
        rows = start + np.flatnonzero(table.body[start:stop] >= 0)
        if not len(rows):
            return
        oids, number = np.unique(table.relation[rows], return_inverse=True)
        sizes = messages.offsets[rows + 1] - messages.offsets[rows]
        # float64 holds every count of bytes below 2**53.
        size = np.bincount(number, sizes, len(oids))
        cell = number * len(_ROWS) + _COLUMN_OF_KIND[table.kind[rows]]
        cells = np.bincount(cell, minlength=len(oids) * len(_ROWS)).reshape(-1, len(_ROWS))
        for oid, kinds, total in zip(oids.tolist(), cells.tolist(), size.tolist(), strict=True):
            counts = self._of(oid)
            for column, count in enumerate(kinds):
                counts[column] += count
            counts[_BYTES] += int(total)


def counts_by_name(counts: Iterable[TableCount]) -> tuple[TableCount, ...]:
    """Return the sums of counts, by name."""
    numbers = [each.name for each in fields(TableCount) if each.name != "table"]
    sums: dict[str, TableCount] = {}
    for each in counts:
        held = sums.get(each.table, TableCount(each.table))
        added = {name: getattr(held, name) + getattr(each, name) for name in numbers}
        sums[each.table] = TableCount(each.table, **added)
    return tuple(sums[name] for name in sorted(sums))


def _inside(
    messages: Messages, table: MessageTable, places: npt.NDArray[np.int64], streaming: bool
) -> npt.NDArray[np.bool_]:
    """Return which of some messages are inside a stream block."""
    if not len(places):
        return np.empty(0, np.bool_)
    kind = table.kind
    if table.errors:  # one that does not decode may open or close a block all the same
        kind = kind.copy()
        for index in table.errors:
            kind[index] = (messages.tag(index) or b"\0")[0]
    setting = np.flatnonzero(_SETS_BLOCK[kind])
    last = np.searchsorted(setting, places) - 1
    opened = np.append(kind[setting] == ord("S"), streaming)  # none before: last is -1
    inside: npt.NDArray[np.bool_] = opened[last]
    return inside
