"""Connection strings, and libpq's errors about them without any part of a password.

libpq quotes the part of a connection string that it cannot parse, and in a mistyped one that can
be a part of the password. Its text about a string that it cannot parse is never shown. Its text
about a failed connection is shown only if it shares no run of characters with anything that may
have been meant as a password.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from pgwire_codec.errors import CaptureError

#: Options whose values libpq itself treats as secrets.
_SECRET_OPTIONS: Final = (
    "password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key",
)  # fmt: skip

#: Consecutive characters of a password that a text may not contain; of a shorter one, all of them.
_RUN: Final = 4

_EXAMPLE: Final = (
    "Write it as in 'host=db.example.org dbname=shop user=me', or as "
    "postgresql://me@db.example.org/shop. Its content is not shown here, because that could be a "
    "part of the password."
)

#: Fixed words of libpq's about a string that it cannot parse; primary text and hint in their place.
_FAULTS: Final = (
    (
        'missing "="',
        "a word in it is not followed by =",
        "Put values that contain spaces in single quotes. ",
    ),
    (
        "unterminated quoted string",
        "a single quote in it is not closed",
        "In a quoted value write ' as \\' and \\ as \\\\. ",
    ),
    (
        "invalid connection option",
        "it contains an option that libpq does not know",
        "Check the names before each =, and put values that contain spaces in single quotes. ",
    ),
    (
        "percent-encoded",
        "a % in it is not followed by two hexadecimal digits",
        "Write % as %25 in a URI. ",
    ),
    (
        "URI query parameter",
        "the part of the URI after ? is not written as name=value&name=value with the names of "
        "libpq's options",
        "Write & as %26 and = as %3D in a value, and ? as %3F in user and password. ",
    ),
    (
        "in URI",
        "the URI has no valid host or port",
        "Write @ as %40, : as %3A, / as %2F, [ as %5B and ? as %3F in its user and password. ",
    ),
)
_NOT_TEXT: Final = ("it contains a NUL, or bytes that are not UTF-8", "")
_INVALID: Final = ("it is invalid", "")


def parse_dsn(dsn: str) -> dict[str, str]:
    """Return the options that a connection string or URI sets.

    Raises
    ------
    CaptureError
        When libpq cannot parse it. Neither the text nor the exceptions in its context contain
        anything of the string.
    """
    from psycopg2 import ProgrammingError, extensions

    fault = _NOT_TEXT
    try:
        if "\0" not in dsn:  # libpq would not see what follows
            options: dict[str, str] = extensions.parse_dsn(dsn)
            return options
    except ProgrammingError as error:
        text = str(error)
        fault = next(
            ((reason, hint) for theirs, reason, hint in _FAULTS if theirs in text), _INVALID
        )
    except UnicodeError:
        pass
    # Not in the handler: the exception would keep libpq's, and tracebacks would show that.
    reason, hint = fault
    raise CaptureError(f"invalid DSN: {reason}", hint=hint + _EXAMPLE)


def has_password(dsn: str) -> bool:
    """Return whether a connection string contains a password, or another secret.

    Raises ``CaptureError`` as :func:`parse_dsn` does.
    """
    options = parse_dsn(dsn)
    return any(options.get(name) for name in _SECRET_OPTIONS)


def shows_secret(text: str, dsn: str, password: str = "") -> bool:
    """Return whether a text may contain a part of a password.

    Passwords are those of a DSN that can be parsed, and another one.
    """
    return any(
        secret[start : start + _RUN] in text
        for secret in filter(None, (password, *_possible_secrets(dsn)))
        for start in range(max(1, len(secret) - _RUN + 1))
    )


def _possible_secrets(dsn: str) -> Iterator[str]:
    """Yield each substring that may have been meant as a password, as written and as read."""
    options = parse_dsn(dsn)
    found = [options.get(name, "") for name in _SECRET_OPTIONS]
    found.append(os.environ.get("PGPASSWORD", ""))
    # The userinfo of a URI whose password contains characters that end it too early for libpq, or
    # that libpq reads as something else.
    found += [_after_colon(text.rpartition("@")[0]) for text in (dsn, *options.values())]
    found.append(options.get("user", "").partition(":")[2])
    if "@" not in dsn and not _are_ports(options.get("port", "")):
        found.append(_after_colon(dsn))  # a URI without its host
    for secret in found:
        yield from {secret, unquote(secret)} - {""}


def _after_colon(text: str) -> str:
    """Return what follows the first colon, of a URI the first one after its scheme."""
    scheme, separator, rest = text.partition("://")
    return (rest if separator else scheme).partition(":")[2]


def _are_ports(ports: str) -> bool:
    return all(not port or (port.isdecimal() and int(port) < 1 << 16) for port in ports.split(","))
