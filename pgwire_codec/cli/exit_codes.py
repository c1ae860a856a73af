"""Exit statuses of the command line.

0 stands for a command that has done its work. A service manager can start a command again after
``TRY_AGAIN``, and should not after the others.
"""

from __future__ import annotations

from typing import Final

from pgwire_codec.errors import OptionError, PgwireError

USAGE: Final = 2  #: Options or arguments are wrong.
TRY_AGAIN: Final = 3  #: The cause can go by itself: the server is away, a disk is full.
NEEDS_SOMEBODY: Final = 4  #: Every attempt fails in the same way until somebody does something.


def exit_code_of(error: PgwireError) -> int:
    """Return the exit status for an error of this package."""
    if isinstance(error, OptionError):
        return USAGE
    return TRY_AGAIN if error.is_transient else NEEDS_SOMEBODY
