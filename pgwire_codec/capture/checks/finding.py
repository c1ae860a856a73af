"""Finding: something that a capture would fail of, or that its user should know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pgwire_codec.errors import CaptureError

_SHOWN = 5  # names in a text


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check that a server does not pass.

    Attributes
    ----------
    code : str
        Name of the check, for programs.
    level : {"error", "warning"}
        ``"error"``: a capture fails, or makes other statements fail. ``"warning"``: it works, but
        costs or risks something.
    text : str
        Description of what was found.
    remedy : tuple of str
        SQL or advice, a line each.
    """

    code: str
    level: Literal["error", "warning"]
    text: str
    remedy: tuple[str, ...]


def error(code: str, text: str, *remedy: str) -> Finding:
    """Return a finding of the level ``"error"``."""
    return Finding(code, "error", text, remedy)


def warning(code: str, text: str, *remedy: str) -> Finding:
    """Return a finding of the level ``"warning"``."""
    return Finding(code, "warning", text, remedy)


def of_error(code: str, raised: CaptureError) -> Finding:
    """Return the finding for an error that a capture would end with."""
    return error(code, raised.primary, *([] if raised.hint is None else [raised.hint]))


def listed(names: Iterable[str]) -> str:
    """Return names as a list for a text: the first ones, and the number of others."""
    found = list(names)
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
