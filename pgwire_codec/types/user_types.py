"""UserType: facts about a user-defined type that never change for its OID."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class UserType:
    """Type of a database, by what ``pg_type`` has of it for as long as its OID exists.

    Attributes
    ----------
    oid : int
        Its OID in the database.
    name : str
        Its name without schema.
    kind : {"enum", "domain", "array", "range", "multirange", "base", "composite"}
        ``"base"`` is a type with input and output functions of its own.
    part : int
        OID of a domain's base type, an array's element, a range's bound or a multirange's range;
        of a base type: the built-in type whose output and send functions it has; else 0.
    typmod : int
        Type modifier of a domain's values, -1 for none.
    delimiter : str
        What separates an array's elements.
    has_binary_form : bool
        Whether it has a send function. Values of other types are always sent as text.
    """

    oid: int
    name: str
    kind: Literal["enum", "domain", "array", "range", "multirange", "base", "composite"]
    part: int = 0
    typmod: int = -1
    delimiter: str = ","
    has_binary_form: bool = True
