"""Changes that a server has, and a log does not."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.quoting import quote_identifier

if TYPE_CHECKING:
    from pgwire_codec.log.source import LogSource

#: Number of messages that are looked at: a server keeps their text meanwhile.
_MOST: Final = 100_000

#: Begin and Truncate as they are, and of other messages the first bytes, with the relation.
_PEEK: Final = """
    SELECT CASE WHEN get_byte(data, 0) IN (66, 84) THEN data ELSE substring(data, 1, 5) END
    FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version', '1',
                                             'publication_names', %s)
"""


def unlogged_relations(
    dsn: str, source: LogSource, publications: Sequence[str], after: int, until: int
) -> frozenset[int] | None:
    """Return the OIDs of the relations that a server changed in a range of LSNs.

    The slot of the log decodes the range, and stays where it is. None: it is in use by a capture,
    or has so many changes that they are not all looked at. The result is empty if the slot cannot
    be read.
    """
    psycopg2 = load_psycopg2()
    names = ",".join(map(quote_identifier, publications))
    with closing(connect(dsn)) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(_PEEK, (source.slot, format_lsn(until), _MOST, names))
        except psycopg2.errors.ObjectInUse:
            return None
        except psycopg2.Error:
            return frozenset()
        if cursor.rowcount >= _MOST:
            return None
        return changed_relations((bytes(data) for (data,) in cursor), after)


def changed_relations(messages: Iterable[bytes], after: int) -> frozenset[int] | None:
    """Return the OIDs of the relations that transactions change whose commit LSN is after one.

    Messages are those of protocol version 1 outside of streams; only the first five bytes of an
    Insert, Update or Delete are needed. None: a prepared transaction commits, whose changes came
    before.
    """
    found: set[int] = set()
    is_after = False
    for message in messages:
        kind = message[:1]
        if kind == b"B":
            (commit_lsn,) = struct.unpack_from(">Q", message, 1)
            is_after = commit_lsn > after
        elif kind == b"b":
            is_after = False
        elif kind == b"K":
            return None
        elif kind == b"T" and is_after:
            (count,) = struct.unpack_from(">I", message, 1)
            found.update(struct.unpack_from(f">{count}I", message, 6))
        elif kind in (b"I", b"U", b"D") and is_after:
            found.update(struct.unpack_from(">I", message, 1))
    return frozenset(found)
