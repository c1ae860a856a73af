"""The ``pgwire-codec`` command. It needs the extra ``cli``, and says so where that is missing."""

from __future__ import annotations

import io
import sys

from pgwire_codec.cli.exit_codes import NEEDS_SOMEBODY


def main() -> None:
    """Run the command line; the process ends with its exit status."""
    try:
        from pgwire_codec.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        print(f"pgwire-codec needs {missing}: pip install 'pgwire-codec[cli]'", file=sys.stderr)
        sys.exit(NEEDS_SOMEBODY)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Values hold every alphabet; a terminal that cannot show one gets its code point.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="pgwire-codec")
