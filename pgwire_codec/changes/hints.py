"""Hints of several errors."""

from __future__ import annotations

from typing import Final

#: For a table whose changes cannot be applied.
COPY_AGAIN: Final = (
    "Have the capture copy the table again (pgwire-codec log add-table), and then resume the table."
)
