"""Exit statuses of the command line.

0 is success. A service manager can restart a command after ``RETRY``, and should not after the
others.
"""

from __future__ import annotations

from typing import Final

from pgwire_codec.errors import OptionError, PgwireError

USAGE: Final = 2  #: Invalid options or arguments.
RETRY: Final = 3  #: The cause can pass by itself: the server is unreachable, a disk is full.
PERMANENT: Final = 4  #: A retry fails in the same way until the cause is fixed.


def exit_code_of(error: PgwireError) -> int:
    """Return the exit status for an error of this package."""
    if isinstance(error, OptionError):
        return USAGE
    return RETRY if error.is_transient else PERMANENT
