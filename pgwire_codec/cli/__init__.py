"""The ``pgwire-codec`` command, which needs the extra ``cli``.

Its exit status is 0 for success. A service manager can restart a command after ``RETRY``, and
should not after the others.
"""

from __future__ import annotations

import io
import sys
from typing import Final

DIFFERENT: Final = 1  #: Tables that were compared differ.
USAGE: Final = 2  #: Invalid options or arguments.
RETRY: Final = 3  #: The cause can pass by itself: the server is unreachable, a disk is full.
PERMANENT: Final = 4  #: A retry fails in the same way until the cause is fixed.
EXCEPT: Final = 5  #: Tables are equal except for columns that cannot be compared.


def main() -> None:
    """Run the command line and exit with its status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks is printed as its code point.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from pgwire_codec.cli.app import app

        app(prog_name="pgwire-codec")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        print(f"Error: pgwire-codec needs {missing}", file=sys.stderr)
        print("hint: Run pip install 'pgwire-codec[cli]'.", file=sys.stderr)
        sys.exit(PERMANENT)
