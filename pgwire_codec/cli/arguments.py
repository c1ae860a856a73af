"""Commands with an argument that can contain a password."""

from __future__ import annotations

import click


class DsnCommand(click.Command):
    """A command with options only, which does not repeat stray arguments in its error.

    The shell splits a DSN with spaces that is not quoted, and a stray word can then be a part of
    the password.
    """

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; an argument that belongs to none of them is a usage error."""
        stray = super().parse_args(ctx, args)
        if stray and not ctx.resilient_parsing:
            ctx.fail(
                f"{len(stray)} of the arguments belong to no option. Put a value that contains "
                "spaces, such as a DSN, in quotes."
            )
        return stray
