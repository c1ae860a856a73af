"""Session settings that the text form of values and the server's notices depend on, pinned.

A walsender pins none of them: they are those of the role, the database or the client's
environment. Startup options (``options='-c datestyle=ISO'``) are not enough, because libpq sends
``PGDATESTYLE`` and ``PGTZ`` after them and the last one wins. ``SET`` on the open connection wins
over all.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Setting, and the value with which the text of values is unambiguous.
PINNED: Final = {
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "timezone": "UTC",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",  # of which a missing publication is one
}

#: Locale of money, ``$1,234.56``. A locale also decides how many digits of a stored number are the
#: fraction, so that only one with as many can be in its place.
_MONETARY: Final = {"lc_monetary": "C"}
_HAS_CENTS: Final = "SELECT cash_send('1'::money) = int8send(100)"

#: Encoding of a database whose text has no known one.
_SQL_ASCII: Final = "SQL_ASCII"


def pinned_settings(cursor: Any) -> dict[str, str]:
    """Return every pinned setting, and its value for the database of a session.

    A database in SQL_ASCII has any bytes. Its server would refuse all rows of a COPY, and end the
    stream, at one that is not UTF-8. So they are sent as they are: decoding refuses that value.
    """
    settings = dict(PINNED)
    cursor.execute(_HAS_CENTS)
    if cursor.fetchone()[0]:
        settings |= _MONETARY
    if cursor.connection.get_parameter_status("server_encoding") == _SQL_ASCII:
        settings["client_encoding"] = _SQL_ASCII
    return settings


def pin(cursor: Any) -> None:
    """Set every pinned setting for the session, and check that each took effect.

    Raises
    ------
    CaptureError
        When the server reports another value afterwards, as can happen through a pooler.
    """
    settings = pinned_settings(cursor)
    for name, value in settings.items():
        cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
    for name, value in settings.items():
        cursor.execute("SELECT current_setting(%s)", (name,))
        actual = cursor.fetchone()[0]
        if actual != value:
            raise CaptureError(
                f"the session has {name} = {actual!r} although it was set to {value!r}: values "
                "would be in another form",
                hint="Connect to the server directly, not through a pooler.",
            )


def disable_timeouts(cursor: Any) -> None:
    """Turn off, for the session, every timeout that would end long statements or transactions."""
    cursor.execute(
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout',"
        " 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout',"
        " 'lock_timeout')"
    )


@contextmanager
def pinned_transaction(connection: Any) -> Iterator[Any]:
    """Yield a cursor under the pinned settings, and leave the session as it was found.

    It also works within an open transaction: the settings end with a savepoint.
    """
    from psycopg2.extensions import TRANSACTION_STATUS_IDLE

    with connection.cursor() as cursor:
        begins = connection.info.transaction_status == TRANSACTION_STATUS_IDLE
        if begins and connection.autocommit:
            cursor.execute("BEGIN")
        cursor.execute("SAVEPOINT pgwire_codec_pinned")
        try:
            for name, value in pinned_settings(cursor).items():
                cursor.execute("SELECT set_config(%s, %s, true)", (name, value))
            yield cursor
        finally:
            if not connection.closed:
                cursor.execute("ROLLBACK TO SAVEPOINT pgwire_codec_pinned")
                if begins and connection.autocommit:
                    cursor.execute("ROLLBACK")
                elif begins:
                    connection.rollback()
                else:
                    cursor.execute("RELEASE SAVEPOINT pgwire_codec_pinned")
