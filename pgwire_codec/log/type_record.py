"""TypeRecord: facts about the user-defined types of a log's columns.

The stream has a type's OID, and the capture has a connection to ask for the type. The facts never
change for an OID, so they need no place among the messages: they are durable before the first
message that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgwire_codec.log.checked_json import dump, load
from pgwire_codec.types import UserType

if TYPE_CHECKING:
    from pgwire_codec.log.store import Store

TYPES: Final = "types.json"


@dataclass(frozen=True, slots=True)
class _Types:
    types: list[UserType]


class TypeRecord:
    """File of the types of a log, which it has once there is one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self) -> tuple[UserType, ...]:
        """Return the types, by OID. Raises ``LogError`` when the file is damaged."""
        data = self._store.read(TYPES)
        if data is None:
            return ()
        return tuple(load(data, _Types, f"{self._store.name}/{TYPES}").types)

    def add(self, types: Iterable[UserType]) -> None:
        """Make types durable; those of OIDs that are recorded stay as they are."""
        recorded = {each.oid: each for each in self.read()}
        new = {each.oid: each for each in types if each.oid not in recorded}
        if new:
            found = sorted((recorded | new).values(), key=lambda each: each.oid)
            self._store.write(TYPES, dump(_Types(found)))
