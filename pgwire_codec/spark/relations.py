"""The relation that a name or an OID selects."""

from __future__ import annotations

from collections.abc import Sequence

from pgwire_codec.errors import OptionError
from pgwire_codec.log.relations import logged_relations, no_relation
from pgwire_codec.transactions.carry import RelationVersion, Scope


def select_relation(
    scope: Scope,
    versions: Sequence[RelationVersion],
    table: str | None,
    relation_oid: int | None,
) -> RelationVersion:
    """Return the newest version of a relation.

    Parameters
    ----------
    scope : Scope
        What is known at the end of the changes.
    versions : sequence of RelationVersion
        All versions of all relations.
    table : str or None
        ``schema.table``, at the end of the changes.
    relation_oid : int or None
        In place of ``table``.

    Raises
    ------
    OptionError
        Unless one of ``table`` and ``relation_oid`` is given.
    ValueError
        When there is no such relation; the text lists those that there are.
    """
    if (table is None) == (relation_oid is None):
        raise OptionError("give either table or relation_oid")
    found = None
    if table is not None:
        found = scope.named(table)
    elif relation_oid in scope.relations:
        found = scope.relations[relation_oid][1]
    if found is not None:
        return found
    known = logged_relations(versions, scope)
    if table is not None:
        raise no_relation(table, known)
    there = ", ".join(f"{each.oid} ({each.name})" for each in known) or "none"
    raise ValueError(f"the messages have no relation {relation_oid}; they have: {there}")
