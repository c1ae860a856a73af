"""Errors of this package in the text of Spark's, which contains the stacks of all processes."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from pgwire_codec.errors import PgwireError, TableError

#: Begin of the text of an error of Java that Py4J passes on, and causes in its stack, except those
#: that are a Python process's traceback.
_CALLING: Final = "An error occurred while calling "
_CAUSE: Final = re.compile(r"^Caused by: ((?!.*Traceback \(most recent call).*)", re.MULTILINE)

#: Error that a call of Java has thrown.
_THROWN: Final = re.compile(r"^: (.*)", re.MULTILINE)

#: Begin of the stack of a Python process's error, and the error below it.
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^(?:Caused by: )?(\w[\w.]*(?:: .*)?)$", re.MULTILINE)

_OURS: Final = re.compile(r"pgwire_codec\.errors\.\w+: (.*)")  # error of this package

#: Texts of the operating system for a disk that is full. Every engine's errors contain them.
_FULL: Final = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))

#: Text of Spark's error when a Python process has not started within 10 seconds.
_BUSY: Final = "Python worker failed to connect back"


def failure_of(text: str) -> PgwireError:
    """Return the error for the text of one that Spark raised."""
    if _BUSY in text:
        return PgwireError(
            "a Python process of Spark did not start within 10 seconds",
            hint="The machine is busy. Start again when it is less so.",
            is_transient=True,
        )
    if full := _full_disk(text):
        return full
    ours = _OURS.findall(text)
    return error_of(ours[-1]) if ours else PgwireError(cause_of(text))


def cause_of(text: str) -> str:
    """Return the innermost cause in the text of an error of Spark's, in one line.

    That is the last error of a Python process, or else the last cause in Java's stack, or else the
    first line with content.
    """
    lines: list[str] = []
    if _TRACEBACK in text:
        lines = _RAISED.findall(text.rpartition(_TRACEBACK)[2])[:1]
    elif text.startswith(_CALLING):
        lines = _CAUSE.findall(text)[-1:] or _THROWN.findall(text)[:1]
    lines += [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason given"


def _full_disk(text: str) -> PgwireError | None:
    """Return the error for the text of one that a full disk caused; None for any other one."""
    for reason in _FULL:
        if reason in text:
            named = re.search(rf"cannot write [^\n]*: {reason}", text)
            return PgwireError(
                named[0] if named else f"cannot write a file: {reason}",
                hint="Free some space, and start again. Changes that were applied are safe.",
                is_transient=True,
            )
    return None


def error_of(text: str) -> TableError:
    """Return an error with the primary text and the hint of the text of another one."""
    primary, _, hint = text.partition(" — hint: ")
    return TableError(primary, hint=hint or None)
