"""The ``pgwire-codec`` command, which needs the extra ``cli``."""

from __future__ import annotations

import io
import sys

from pgwire_codec.cli.exit_codes import PERMANENT


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from pgwire_codec.cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        hint = "Run pip install 'pgwire-codec[cli]'."
        print(f"Error: pgwire-codec needs {missing} — hint: {hint}", file=sys.stderr)
        sys.exit(PERMANENT)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks is printed as its code point.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="pgwire-codec")
