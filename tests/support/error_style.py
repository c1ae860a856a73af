"""Check of an error against PostgreSQL's Error Message Style Guide."""

from __future__ import annotations

import re

from pgwire_codec.errors import PgwireError

#: First words that are names: `option`, "name", (detail), COPY.
_BEGINNING = re.compile(r"[a-z`\"'(]|[A-Z]{2,}\b|[A-Z][a-z]*[A-Z]")


def check_style(error: PgwireError) -> tuple[str, str | None]:
    """Return an error's primary text and its hint, after a check of how they are written."""
    [text] = error.args
    assert _BEGINNING.match(text), text
    assert not text.endswith("."), text
    if error.hint is not None:
        assert error.hint[0].isupper(), error.hint
        assert error.hint.endswith((".", ";")), error.hint
        assert str(error) == f"{text} — hint: {error.hint}"
    return text, error.hint
