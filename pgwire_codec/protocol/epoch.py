"""PostgreSQL's epoch, 2000-01-01 00:00:00 UTC, beside Unix's.

Source: ``POSTGRES_EPOCH_JDATE`` and ``UNIX_EPOCH_JDATE`` in ``src/include/datatype/timestamp.h``.
"""

from __future__ import annotations

from typing import Final

#: Days from 1970-01-01 to 2000-01-01.
EPOCH_DAYS: Final = 10_957

#: Microseconds from 1970-01-01 to 2000-01-01.
EPOCH_MICROSECONDS: Final = EPOCH_DAYS * 86_400_000_000

_INT64_MAX: Final = 2**63 - 1


def unix_microseconds(time: int) -> int:
    """Convert a wire time (microseconds since 2000) to microseconds since 1970, at most int64."""
    return min(time + EPOCH_MICROSECONDS, _INT64_MAX)
