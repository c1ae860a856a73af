"""Random histories of a table, as DataFrames of changes have them, and the rows that they leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import groupby
from random import Random
from typing import Any

import pgwire_codec as pgc
from tests.support import build
from tests.support.build import column

SCHEMA = (
    "shelf int, id int, v string, note string, tags array<string>, _op string, _xid long,"
    " _lsn long, _commit_lsn long, _commit_time timestamp, _seq long, _origin string,"
    " _unchanged array<string>, _before struct<{before}>"
)
KEYS = ("shelf", "id")
VALUES = ("v", "note", "tags")
_LONG = ("note", "tags")


def relation(*, full: bool) -> pgc.Relation:
    columns = [column(name, "int4", key=True) for name in KEYS]
    columns += [column(name, key=full) for name in VALUES]
    return build.relation(1, *columns, identity="f" if full else "d")


Key = tuple[int, int]
Row = dict[str, Any]


@dataclass
class History:
    """Makes changes to a table of rows by (shelf, id); ``note`` and ``tags`` may not be sent.

    ``full``: replica identity FULL.
    """

    seed: int
    full: bool = False
    rows: dict[Key, Row] = field(default_factory=dict)
    changes: list[tuple[Any, ...]] = field(default_factory=list)
    lsn: int = 1000

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._seq = 0

    @property
    def schema(self) -> str:
        full = ", v: string, note: string, tags: array<string>" if self.full else ""
        return SCHEMA.format(before=f"shelf: int, id: int{full}")

    def expected(self) -> dict[Key, Row]:
        return {key: dict(row) for key, row in self.rows.items()}

    def transaction(self, shelf: int, length: int) -> None:
        """A transaction of random changes to the rows of a shelf."""
        self.lsn += self.random.randrange(1, 100)
        self._seq = 0
        for _ in range(length):
            self.change(shelf)

    def change(self, shelf: int) -> None:
        here = [key for key in self.rows if key[0] == shelf]
        free = [(shelf, number) for number in range(4) if (shelf, number) not in self.rows]
        what = self.random.choices(
            ("insert", "update", "move", "delete"), (2 if free else 0, 4, 5 if free else 0, 1)
        )[0]
        if not here or what == "insert":
            if free:
                self.insert(self.random.choice(free))
        elif what == "update":
            self.update(key := self.random.choice(here), key)
        elif what == "move":
            self.update(self.random.choice(here), self.random.choice(free))
        else:
            self.delete(self.random.choice(here))

    def insert(self, key: Key) -> None:
        self.rows[key] = {name: self._value(name) for name in VALUES}
        self._tell("I", key, self.rows[key])

    def update(self, key: Key, new_key: Key) -> None:
        old = self.rows.pop(key)
        row = {name: self._value(name) if self.random.random() < 0.3 else old[name] for name in old}
        # Only what is long, and so never NULL, is left out.
        unchanged = [name for name in _LONG if row[name] is old[name] is not None]
        self.rows[new_key] = row
        sent = {name: None if name in unchanged else row[name] for name in row}
        before = None
        if self.full or key != new_key:
            before = (*key, *(old.values() if self.full else ()))
        self._tell("U", new_key, sent, unchanged or None, before)

    def delete(self, key: Key) -> None:
        old = self.rows.pop(key)
        self._tell("D", key, old if self.full else dict.fromkeys(VALUES))

    def truncate(self) -> None:
        self.rows.clear()
        self._tell("T", (None, None), dict.fromkeys(VALUES))

    def _value(self, name: str) -> Any:
        if self.random.random() < 0.2:
            return None
        text = f"{name} {self.random.randrange(10**6)}"
        return [text, "x"] if name == "tags" else text

    def _tell(
        self,
        op: str,
        key: tuple[int | None, int | None],
        row: Row,
        unchanged: list[str] | None = None,
        before: tuple[Any, ...] | None = None,
    ) -> None:
        time = datetime(2024, 2, 29, tzinfo=timezone.utc) + timedelta(seconds=self.lsn)
        about = (op, self.lsn, None, self.lsn, time, self._seq, None, unchanged, before)
        self.changes.append((*key, *row.values(), *about))
        self._seq += 1


def to_messages(changes: list[tuple[Any, ...]], *, full: bool = False) -> list[bytes]:
    """The changes as a server sends them (``tags`` as text); every third transaction streamed.

    The transaction before a streamed one comes between two pieces of it.
    """
    made: list[Any] = [relation(full=full)]
    transactions = [list(each) for _, each in groupby(changes, key=lambda change: change[8])]
    held: list[Any] = []
    for number, transaction in enumerate(transactions):
        lsn = transaction[0][8]
        if number % 3 == 2 and len(transaction) > 1:
            xid = lsn
            first, *rest = (_message(change, xid) for change in transaction)
            made += build.streamed(first, xid=xid)
            made += held
            made += build.streamed(*rest, xid=xid, first=False)
            made.append(pgc.StreamCommit(xid, 0, lsn, lsn + 1, 0))
            held = []
        else:
            made += held
            held = build.transaction(*map(_message, transaction), xid=lsn, lsn=lsn)
    return build.wire([*made, *held])


def _message(change: tuple[Any, ...], xid: int | None = None) -> Any:
    values, op, unchanged, before = change[:5], change[5], change[-2] or (), change[-1]
    sent = build.row(
        *(
            ... if name in unchanged else _text(value)
            for name, value in zip((*KEYS, *VALUES), values, strict=True)
        )
    )
    if op == "I":
        return pgc.Insert(xid, 1, sent)
    if op == "D":
        is_full = any(value is not None for value in values[len(KEYS) :])
        return build.delete(1, **{"old" if is_full else "key": sent}, xid=xid)
    if before is None:
        return build.update(1, sent, xid=xid)
    if len(before) > len(KEYS):
        return build.update(1, sent, old=build.row(*map(_text, before)), xid=xid)
    key = build.row(*map(_text, before), *[None] * len(VALUES))
    return build.update(1, sent, key=key, xid=xid)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
