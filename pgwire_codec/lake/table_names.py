"""Names of tables and patterns of names, by which relations of a log are chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Final

from pgwire_codec.errors import TableError
from pgwire_codec.log import Log
from pgwire_codec.log.relations import select_relation
from pgwire_codec.transactions.carry import RelationVersion, Scope

_WILDCARD: Final = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class TableNames:
    """Names of tables, and patterns of names."""

    exact: tuple[str, ...]  # ``schema.table``
    patterns: tuple[re.Pattern[str], ...] = ()  # they match whole names

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TableNames:
        """Return names and patterns: those with ``*``, ``?`` or ``[`` are patterns."""
        exact: list[str] = []
        patterns = []
        for text in texts:
            if _WILDCARD.search(text):
                patterns.append(re.compile(translate(text)))
            else:
                exact.append(text)
        return cls(tuple(exact), tuple(patterns))

    def match(self, name: str) -> bool:
        """Return whether a name is one of the names, or matches a pattern."""
        return name in self.exact or any(each.match(name) for each in self.patterns)

    def held_in(self, scope: Scope) -> dict[str, RelationVersion]:
        """Return the relations that have one of the names, by name."""
        names = [name for name in self.exact if name in scope.names]
        if self.patterns:
            others = (name for name in sorted(scope.names) if name not in self.exact)
            names += [name for name in others if self.match(name)]
        held = ((name, scope.named(name)) for name in names)
        return {name: version for name, version in held if version is not None}

    def select(self, log: Log, lsn: int | None) -> dict[str, RelationVersion]:
        """Return the relations that have one of the names at a commit LSN, by name.

        Raises ``TableError`` for a name that no relation has. A pattern may match none.
        """
        scope = log.relations_at(lsn)
        for name in self.exact:
            select_relation(scope, lambda: log.versions, table=name)
        return self.held_in(scope)


def no_table(patterns: Sequence[str], log: Log) -> TableError:
    """Return the error for patterns that no table of a log matches."""
    existing = ", ".join(sorted({each.name for each in log.relations if each.is_current}))
    return TableError(
        f"no table matches {', '.join(patterns)}", hint=f"The log's tables: {existing or 'none'}."
    )
