"""Capture of a live server's changes: a replication slot's stream, or a slot that is peeked at.

>>> from pgwire_codec import capture
>>> with capture.Capture("dbname=shop", slot="s", publication="p", create_slot=True) as c:
...     for batch in c.batches(until_lsn=c.current_lsn()):
...         store(batch.to_arrow())          # make it durable first,
...         c.confirm(batch.confirm_lsn)     # and only then confirm it

>>> capture.LogCapture("dbname=shop", "shop.log", slot="s", publication="p").run()

Needs the extra ``capture``: ``pip install 'pgwire-codec[capture]'``.
"""

from pgwire_codec.capture.batch import MessageBatch
from pgwire_codec.capture.capture import Capture
from pgwire_codec.capture.checks.check_server import ServerCheck, check_server
from pgwire_codec.capture.checks.finding import Finding
from pgwire_codec.capture.connection.interrupt import Interrupt, Interrupted
from pgwire_codec.capture.connection.password_command import with_password_command
from pgwire_codec.capture.log_capture import LogCapture
from pgwire_codec.capture.options import PluginOptions
from pgwire_codec.capture.peek import peek
from pgwire_codec.capture.status import Status
from pgwire_codec.options import SegmentOptions

__all__ = [
    "Capture",
    "Finding",
    "Interrupt",
    "Interrupted",
    "LogCapture",
    "MessageBatch",
    "PluginOptions",
    "SegmentOptions",
    "ServerCheck",
    "Status",
    "check_server",
    "peek",
    "with_password_command",
]


def __dir__() -> list[str]:
    return __all__
