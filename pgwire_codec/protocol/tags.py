"""Sets of messages by their tags, and the stream block that a message is in."""

from __future__ import annotations

from pgwire_codec.protocol.spec import MESSAGES

#: Messages inside a stream block, between Stream Start and Stream Stop. Any other message ends the
#: block, too: after a session that broke off in mid-block, the next one begins with such a message.
STREAM_CONTENT = b"RYOMIUDT"

#: Changes of one row: Insert, Update and Delete.
ROW_CHANGES = b"IUD"

#: Messages of which ``scan`` makes no object: changes, and those that begin and end plain
#: transactions and stream blocks.
TABULATED = b"IUDBCSEcA"

#: Changes that may have an old tuple: Update and Delete.
WITH_OLD_TUPLE = b"UD"

#: Messages that commit a transaction, with its commit time: Commit, Stream Commit, Commit Prepared.
COMMITS = b"CcK"

#: Messages that begin a plain or prepared transaction, or a stream block.
OPENS = b"BbS"

#: Messages that end what those begin: Commit, Prepare and Stream Stop.
CLOSES = b"CPE"

#: Messages that end a transaction, or its part in a session: Commit, Prepare, Stream Commit, Stream
#: Prepare, Commit Prepared and Rollback Prepared.
ENDS = b"CPcpKr"

#: Messages that may be the last one before a position in the stream: those that end a transaction
#: or a stream block, and a Message outside of transactions.
POSITIONS = b"CMEcPKrp"


def in_stream_block(tag: bytes, before: bool) -> bool:
    """Return whether the message after one with this tag is inside a stream block."""
    if tag == b"S":
        return True
    known = any(message.tag == tag for message in MESSAGES)
    return before and (not known or tag in STREAM_CONTENT)
